"""Paths in two arrays behave like a list of paths."""

import numpy as np
import pytest

from elfnet.data.images.files import PathTable

PATHS = ["a.png", "", "b/ü c.png", "d"]


def test_gives_back_what_it_was_made_of() -> None:
    table = PathTable.of(PATHS)
    assert len(table) == 4
    assert list(table) == PATHS == [table[i] for i in range(4)]
    assert list(PathTable.of([b"x", "y"])) == ["x", "y"]
    assert list(PathTable.of([])) == []
    assert list(table.encoded())[2] == "b/ü c.png".encode()


def test_the_first_path_with_a_nul_byte() -> None:
    assert PathTable.of(PATHS).first_with_nul() is None
    for position in range(4):
        paths = [path + "\0" * (index >= position) for index, path in enumerate(PATHS)]
        assert PathTable.of(paths).first_with_nul() == position
    assert PathTable.of(["a", "\0b"]).first_with_nul() == 1


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([], None),
        (PATHS, None),
        (["a", "b", "c", "b", "a"], (1, 3)),
        (["", "x", ""], (0, 2)),
        (["a/b", "a", "/b"], None),
    ],
)
def test_the_first_path_that_is_there_twice(paths: list[str], expected: tuple[int, int] | None) -> None:
    assert PathTable.of(paths).first_duplicate() == expected


@pytest.mark.parametrize("chosen", [[], [2], [3, 0, 2, 2]])
def test_take(chosen: list[int]) -> None:
    taken = PathTable.of(PATHS).take(np.array(chosen, dtype=np.int64))
    assert list(taken) == [PATHS[i] for i in chosen]
