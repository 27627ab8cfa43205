"""One run of a table: a row, a column and a seed, and the recipe that they make."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from elfnet.errors import RequestError
from elfnet.methods.refit.build import TRAINED, is_second_stage
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import DEFAULT_REFIT_EPOCHS
from elfnet.reproduce.paper_table import Column, Row
from elfnet.reproduce.tiers import Tier

BASE_METHOD = "ce"
"""The plain method, whose recipe says how long a run of ordinary length is."""

NOT_HERE = {
    "train.seed": "use --seeds",
    "refit.run": "rows that start from another run find it themselves",
    "train.schedule_epochs": "the schedule belongs to the recipe; use --tier or --train.epochs",
}
"""Settings that belong to the table, and what to do instead of overriding them."""


@dataclass(frozen=True)
class Cell:
    """A row, a column and a seed."""

    row: Row
    column: Column
    seed: int

    @property
    def name(self) -> str:
        return f"{self.column.name}/{self.row.name}/seed{self.seed}"


def refuse_settings(settings: Mapping[str, Any]) -> None:
    """Refuse overrides that would make rows of a table something else than they say."""
    for name, way_out in NOT_HERE.items():
        if name in settings:
            raise RequestError(f"--{name} cannot be set for a whole table; {way_out}")


def recipe_of(cell: Cell, tier: Tier, settings: Mapping[str, Any], *, starts_from: str = "") -> Recipe:
    """The recipe of a run.

    Classifiers that are trained on fixed features (cRT, LWS, a second stage) have a length of their own, which does
    not shrink with the tier, as far as it is below that of an ordinary row: how long they take to learn has nothing to
    do with how long their features did. (On CIFAR-10-LT features of a young network cRT was 2.8 and LWS 1.8 points
    worse after 4 epochs than after 20.)

    Args:
        settings: overrides for all rows; `train.epochs` stands for the length of a row of ordinary length.
        starts_from: the run directory that the row starts from.
    """
    refuse_settings(settings)
    data = tier.data or cell.column.data
    name = f"{data}/{cell.row.method}"
    length = _length(settings.get("train.epochs")) or tier.epochs
    chosen = {**_column_settings(cell.column, tier), **cell.row.settings, **tier.settings, **settings}
    chosen["train.seed"] = cell.seed
    chosen.pop("train.epochs", None)
    if starts_from:
        chosen["refit.run"] = starts_from
    shipped = load_recipe(name, chosen)
    epochs = shipped.train.epochs
    if length is not None and shipped.refit.method == "balanced":
        chosen["refit.epochs"] = min(shipped.refit.epochs or DEFAULT_REFIT_EPOCHS, length)
    if length is not None:
        on_fixed_features = shipped.refit.method in TRAINED and not is_second_stage(shipped)
        epochs = min(epochs, length) if on_fixed_features else max(1, round(epochs * length / _ordinary_epochs(data)))
    return load_recipe(name, {**chosen, "train.epochs": epochs * cell.row.times_epochs})


@cache
def _ordinary_epochs(data: str) -> int:
    return load_recipe(f"{data}/{BASE_METHOD}").train.epochs


def _column_settings(column: Column, tier: Tier) -> dict[str, Any]:
    if tier.data is None:
        return dict(column.settings)
    # Of the column only its imbalance is left, as far as the other data has images for it.
    ratio = column.settings.get("data.ratio")
    return {} if ratio is None else {"data.ratio": min(ratio, tier.most_ratio)}


def _length(value: Any) -> int | None:
    if value is None:
        return None
    try:
        length = int(value)
    except ValueError:
        length = 0
    if length < 1:
        raise RequestError(f"--train.epochs {value} must be a positive whole number")
    return length
