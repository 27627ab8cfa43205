"""Paths in two arrays behave like a list of paths."""

import numpy as np
import pytest

from elfnet.data.path_table import PathTable

PATHS = ["a.png", "", "b/ü c.png", "d"]


def test_gives_back_what_it_was_made_of() -> None:
    table = PathTable.of(PATHS)
    assert len(table) == 4
    assert list(table) == PATHS == [table[i] for i in range(4)]
    assert list(PathTable.of([b"x", "y"])) == ["x", "y"]
    assert list(PathTable.of([])) == []
    assert list(table.encoded())[2] == "b/ü c.png".encode()


@pytest.mark.parametrize("chosen", [[], [2], [3, 0, 2, 2]])
def test_take(chosen: list[int]) -> None:
    taken = PathTable.of(PATHS).take(np.array(chosen, dtype=np.int64))
    assert list(taken) == [PATHS[i] for i in chosen]
