"""Which runs, in which order, with those that they start from."""

import pytest

from elfnet.errors import RequestError
from elfnet.reproduce.paper_table import load_table
from elfnet.reproduce.selection import choose_cells, choose_rows

TABLE = load_table("table2")


def names(**asked: object) -> list[str]:
    return [cell.name for cell in choose_cells(TABLE, **asked)]  # type: ignore[arg-type]


def test_all_of_a_table() -> None:
    assert len(names()) == len(TABLE.rows) * len(TABLE.columns)
    assert len(names(seeds=[0, 1])) == 2 * len(names())


def test_a_row_brings_the_one_it_starts_from_once_and_before_it() -> None:
    found = names(rows=["lws", "crt"], columns=["cifar10-lt-10"], seeds=[3])
    assert found == [f"cifar10-lt-10/{row}/seed3" for row in ("ce", "crt", "lws")]


def test_seeds_outside_columns_outside_rows() -> None:
    found = names(rows=["elf-ce-drw", "ce"], columns=["cifar100-lt-10", "cifar10-lt-10"], seeds=[1, 0])
    assert found == [
        f"{column}/{row}/seed{seed}"
        for seed in (1, 0)
        for column in ("cifar10-lt-10", "cifar100-lt-10")
        for row in ("ce", "elf-ce-drw")
    ]


def test_paper_and_extra_stand_for_rows() -> None:
    paper, extra = choose_rows(TABLE, ["paper"]), choose_rows(TABLE, ["extra"])
    assert [row.name for row in (*paper, *extra)] == [row.name for row in TABLE.rows]
    assert all(row.in_paper for row in paper)
    assert [row.name for row in choose_rows(TABLE, ["extra", "ce"])] == ["ce", *(row.name for row in extra)]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"rows": ["elf-ce-drv"]}, "unknown row of table2 'elf-ce-drv'; did you mean 'elf-ce-drw'"),
        ({"columns": ["cifar10-100"]}, "unknown column of table2 'cifar10-100'; did you mean 'cifar10"),
        ({"seeds": []}, "names no seed"),
        ({"seeds": [-1]}, "--seeds -1"),
        ({"seeds": [1, 1]}, "twice"),
    ],
)
def test_what_does_not_exist_is_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        names(**asked)
