"""Tiers: the same recipes at different length."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elfnet.registry import unknown_name


@dataclass(frozen=True, kw_only=True)
class Tier:
    """How long, and on what.

    Attributes:
        epochs: of a row of ordinary length; None: as many as the recipe has.
        data: used instead of every column's own; None: the column's own.
        most_ratio: of that data, which may have too few images for the column's.
        settings: of the recipe, by dotted name.
        text: what a table of this tier says of itself; empty if there is nothing to say.
    """

    name: str
    epochs: int | None = None
    data: str | None = None
    most_ratio: float = 20
    settings: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""


TIERS = {
    tier.name: tier
    for tier in (
        Tier(
            name="smoke",
            epochs=5,
            data="digits",
            settings={"train.evaluate_every": 5},
            text="handwritten digits and a small network instead of the column's own, 5 epochs: this shows that "
            "everything runs, and says nothing about the methods",
        ),
        Tier(name="short", epochs=40, text="40 epochs, with the schedule scaled to them, instead of the paper's"),
        Tier(name="medium", epochs=100, text="100 epochs, with the schedule scaled to them"),
        Tier(name="paper"),
    )
}


def tier_named(name: str) -> Tier:
    if name not in TIERS:
        raise unknown_name("tier", name, list(TIERS))
    return TIERS[name]
