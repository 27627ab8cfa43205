"""The grid: every combination once, and what cannot be swept refused before anything runs."""

import pytest

from elfnet.errors import RequestError
from elfnet.sweep.grid import expand_grid, parse_over


def test_every_combination_once_the_last_setting_fastest() -> None:
    over = parse_over(["exits.train_threshold=0.16, 2/C", "train.seed=0,1,2"])
    cells = expand_grid("digits/elf-ce-drw", {"train.epochs": 2}, over)
    assert [cell.name for cell in cells] == [
        f"train_threshold={t},seed={s}" for t in ("0.16", "2_C") for s in (0, 1, 2)
    ]
    assert [(c.recipe.exits.train_threshold, c.recipe.train.seed) for c in cells] == [
        (t, s) for t in ("0.16", "2/C") for s in (0, 1, 2)
    ]
    assert {cell.recipe.train.epochs for cell in cells} == {2}


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ([], "at least one --over"),
        (["train.seed"], "must name a setting and its values"),
        (["train.seed="], "must name a setting and its values"),
        (["train.seed=1,1"], "has the same value twice"),
        (["train.seed=1", "train.seed=2"], "given twice"),
        (["train.sead=1"], "did you mean 'train.seed'"),
        (["train.lr_steps=1,2"], r"--over train\.lr_steps is a list"),
    ],
)
def test_wrong_grids_are_refused(over: list[str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_over(over)


def test_a_wrong_value_is_refused_before_anything_runs() -> None:
    with pytest.raises(RequestError, match=r"train\.seed"):
        expand_grid("digits/elf-ce-drw", {}, {"train.seed": ["0", "many"]})


def test_names_that_would_coincide_are_refused() -> None:
    with pytest.raises(RequestError, match="same name"):
        expand_grid("digits/elf-ce-drw", {}, {"exits.train_threshold": ["2/C", "2_C"]} | {"train.seed": ["0"]})


def test_a_setting_that_the_grid_would_override_is_refused() -> None:
    with pytest.raises(RequestError, match=r"--train\.seed 3 has no effect beside --over train\.seed"):
        expand_grid("digits/elf-ce-drw", {"train.seed": 3}, {"train.seed": ["0", "1"]})
