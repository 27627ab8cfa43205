"""Random numbers of single examples."""

from elfnet.data.loading.sampler import ExampleRng


def test_random_numbers_of_an_example_are_its_own() -> None:
    numbers, again = ExampleRng(3, 5), ExampleRng(3, 5)
    drawn = {row: numbers.of(row).random(50).tolist() for row in range(20)}
    numbers.of(1).integers(0, 7, 3)  # leaves half a number behind
    assert all(again.of(row).random(50).tolist() == drawn[row] for row in reversed(range(20)))
    assert numbers.of(1).random(50).tolist() == drawn[1]
    values = [value for row in drawn.values() for value in row]
    assert len(set(values)) == len(values)
    assert ExampleRng(3, 6).of(0).random() != drawn[0][0] != ExampleRng(4, 5).of(0).random()
