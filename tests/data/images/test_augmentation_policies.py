"""Policies: the published tables, the ends of every range, and draws that are a function of the generator."""

from collections import Counter

import numpy as np
import pytest
from PIL import Image

from elfnet.data.images import augmentation_policies
from elfnet.data.images.augmentation_policies import (
    AUTOAUGMENT_SPACE,
    CIFAR10_POLICY,
    RANDAUGMENT_SPACE,
    TRIVIALAUGMENT_SPACE,
    AutoAugment,
    Policy,
    RandAugment,
    Space,
    TrivialAugment,
    apply,
    build_policy,
)
from elfnet.data.images.operations import OPERATIONS, Operation

WIDTH, HEIGHT = 331, 662
Seen = list[tuple[str, float]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What the operations were asked for, by name and amount, instead of being done."""
    calls: Seen = []

    def recorded(name: str) -> Operation:
        def operation(image: Image.Image, amount: float) -> Image.Image:
            calls.append((name, amount))
            return image

        return operation

    monkeypatch.setattr(augmentation_policies, "OPERATIONS", {name: recorded(name) for name in OPERATIONS})
    return calls


IMAGE = Image.new("RGB", (WIDTH, HEIGHT))


def _ends(space: Space, seen: Seen) -> dict[str, tuple[float, ...]]:
    """Amounts at magnitude 0, at the largest, and at the largest with a minus sign, where it matters."""
    found = {}
    for name in space:
        seen.clear()
        for strength, negative in ((0.0, False), (1.0, False), (1.0, True)):
            apply(space, name, strength, IMAGE, negative=negative)
        found[name] = tuple(round(amount, 9) for _, amount in seen)
    return found


def test_ends_of_the_ranges(seen: Seen) -> None:
    common = dict.fromkeys(("identity", "autocontrast", "equalize"), (0.0, 0.0, 0.0))
    randaugment = common | {
        "rotate": (0, 30, -30),
        "solarize": (256, 0, 0),
        "posterize": (8, 4, 4),
        "color": (0, 0.9, -0.9),
        "contrast": (0, 0.9, -0.9),
        "brightness": (0, 0.9, -0.9),
        "sharpness": (0, 0.9, -0.9),
        "shear_x": (0, 0.3, -0.3),
        "shear_y": (0, 0.3, -0.3),
        "translate_x": (0, 150, -150),
        "translate_y": (0, 300, -300),
    }
    assert _ends(RANDAUGMENT_SPACE, seen) == randaugment
    assert _ends(AUTOAUGMENT_SPACE, seen) == randaugment | {"invert": (0, 0, 0)}
    assert _ends(TRIVIALAUGMENT_SPACE, seen) == common | {
        "rotate": (0, 135, -135),
        "solarize": (256, 0, 0),
        "posterize": (8, 2, 2),
        **dict.fromkeys(("color", "contrast", "brightness", "sharpness", "shear_x", "shear_y"), (0, 0.99, -0.99)),
        "translate_x": (0, 32, -32),
        "translate_y": (0, 32, -32),
    }


def test_the_sub_policies_are_the_published_ones() -> None:
    """Cubuk et al. 2019, table 7: operation, probability and magnitude of both steps of each sub-policy."""
    published = """
        invert .1 -, contrast .2 6;       rotate .7 2, translate_x .3 9;       sharpness .8 1, sharpness .9 3;
        shear_y .5 8, translate_y .7 9;   autocontrast .5 -, equalize .9 -;    shear_y .2 7, posterize .3 7;
        color .4 3, brightness .6 7;      sharpness .3 9, brightness .7 9;     equalize .6 -, equalize .5 -;
        contrast .6 7, sharpness .6 5;    color .7 7, translate_x .5 8;        equalize .3 -, autocontrast .4 -;
        translate_y .4 3, sharpness .2 6; brightness .9 6, color .2 8;         solarize .5 2, invert .0 -;
        equalize .2 -, autocontrast .6 -; equalize .2 -, equalize .6 -;        color .9 9, equalize .6 -;
        autocontrast .8 -, solarize .2 8; brightness .1 3, color .7 0;         solarize .4 5, autocontrast .9 -;
        translate_y .9 9, translate_y .7 9; autocontrast .9 -, solarize .8 3;  equalize .8 -, invert .1 -;
        translate_y .7 9, autocontrast .9 -
    """
    expected = [
        tuple(
            (name, float(probability), 0 if magnitude == "-" else int(magnitude))
            for name, probability, magnitude in (step.split() for step in pair.split(","))
        )
        for pair in published.split(";")
    ]
    assert [tuple(map(tuple, pair)) for pair in CIFAR10_POLICY] == expected
    assert len(CIFAR10_POLICY) == 25


def test_autoaugment_applies_its_steps_with_their_probabilities(seen: Seen) -> None:
    """Expected counts over all sub-policies, each of which is drawn as often as any other."""
    rng, draws = np.random.default_rng(0), 20_000
    policy = AutoAugment()
    for _ in range(draws):
        policy.change(IMAGE, rng)
    expected: Counter[str] = Counter()
    for pair in CIFAR10_POLICY:
        for step in pair:
            expected[step.operation] += step.probability * draws / len(CIFAR10_POLICY)  # type: ignore[assignment]
    found = Counter(name for name, _ in seen)
    assert found.keys() == {name for name, count in expected.items() if count}
    for name, count in found.items():
        assert abs(count - expected[name]) < 5 * expected[name] ** 0.5
    rotations = Counter(round(amount, 6) for name, amount in seen if name == "rotate")
    assert rotations.keys() == {round(sign * 30 * 2 / 9, 6) for sign in (-1, 1)}
    assert min(rotations.values()) > 0.4 * sum(rotations.values())
    assert {round(amount, 6) for name, amount in seen if name == "posterize"} == {round(8 - 4 * 7 / 9, 6)}


def test_randaugment_draws_operations_alike_with_one_magnitude(seen: Seen) -> None:
    rng = np.random.default_rng(0)
    policy = RandAugment(operations=3, magnitude=15)
    for _ in range(3_000):
        policy.change(IMAGE, rng)
    found = Counter(name for name, _ in seen)
    assert sum(found.values()) == 9_000
    assert found.keys() == RANDAUGMENT_SPACE.keys()
    assert all(abs(count - 9_000 / 14) < 130 for count in found.values())
    assert {round(abs(amount), 6) for name, amount in seen if name == "rotate"} == {15.0}


def test_trivialaugment_draws_one_operation_and_its_magnitude(seen: Seen) -> None:
    rng = np.random.default_rng(0)
    policy = TrivialAugment()
    for _ in range(6_000):
        policy.change(IMAGE, rng)
    found = Counter(name for name, _ in seen)
    assert sum(found.values()) == 6_000
    assert found.keys() == TRIVIALAUGMENT_SPACE.keys()
    degrees = {round(amount, 6) for name, amount in seen if name == "rotate"}
    assert degrees == {round(sign * 135 * step / 30, 6) for step in range(31) for sign in (-1, 1)}


@pytest.mark.parametrize("policy", [AutoAugment(), RandAugment(), TrivialAugment()], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_function_of_the_generator_for_grey_and_colour(policy: Policy, channels: int) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (12, 10, channels), dtype=np.uint8)
    before = pixels.copy()

    def run(seed: int) -> bytes:
        changed = policy(pixels, np.random.default_rng(seed))
        assert changed.shape == pixels.shape
        assert changed.dtype == np.uint8
        return changed.tobytes()

    assert [run(seed) for seed in range(20)] == [run(seed) for seed in range(20)]
    assert len({run(seed) for seed in range(40)}) > 15
    assert np.array_equal(pixels, before)


@pytest.mark.parametrize("policy", [AutoAugment(), RandAugment(), TrivialAugment()], ids=lambda one: type(one).__name__)
def test_every_image_draws_as_many_numbers(policy: Policy) -> None:
    """What is drawn after the policy then does not depend on what the policy did."""
    after = set()
    for seed in range(30):
        rng, other = np.random.default_rng(seed), np.random.default_rng(seed)
        policy.change(Image.new("RGB", (8, 8)), rng)
        ahead = other.random(40).tolist()
        after.add(ahead.index(rng.random()))
    assert len(after) == 1


def test_policies_by_name() -> None:
    assert build_policy("autoaugment") == AutoAugment()
    assert build_policy("randaugment", operations=3, magnitude=4) == RandAugment(3, 4)
    assert build_policy("trivialaugment") == TrivialAugment()
