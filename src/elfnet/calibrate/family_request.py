"""What operating points are asked for."""

from collections.abc import Sequence
from dataclasses import dataclass, field

DEFAULT_EPSILONS = (0.01, 0.02, 0.05)


@dataclass(frozen=True, kw_only=True)
class RiskPoints:
    """Points with a promise; see `control_risks` for the fields.

    Attributes:
        epsilons: the largest accuracy lost against full depth, one point each.
        delta: the chance that a promise is broken.
        simultaneous: whether delta holds for all promises together or for each.
        required: whether too few examples for a promise are an error; else the point is left out and a note says so.
    """

    epsilons: tuple[float, ...] = DEFAULT_EPSILONS
    delta: float = 0.05
    simultaneous: bool = False
    method: str = "betting"
    procedure: str = "fixed-sequence"
    loss: str = "accuracy"
    groups: str = "none"
    seed: int = 0
    fraction: float = 0.5
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class FamilyRequest:
    """The points of a family.

    Attributes:
        search: candidates for s, the one threshold of the paper's line search.
        tolerance_points: how much accuracy `economic` may give up, in percentage points.
        confidence_scale: of the line search, for all exits; the table's own by default.
        budgets: mean costs to find the best thresholds for; None: steps of 0.05 from the cheapest exit to full depth.
        geometric_budgets: the same for MSDNet's rule; None: steps of 0.1.
        floors_points: points `within-X` that lose at most X percentage points against full depth, overall, and
            `worst-group-within-X` for the frequency group that is worst off.
        scales: `own`, `fitted` or `auto`; see `choose_confidence`.
        combine: `on`, `off` or `auto`.
        risk: points with a promise.
    """

    search: Sequence[str | float]
    tolerance_points: float = 1.0
    confidence_scale: float | None = None
    budgets: tuple[float, ...] | None = None
    geometric_budgets: tuple[float, ...] | None = None
    floors_points: tuple[float, ...] = (0.5, 1.0)
    scales: str = "auto"
    combine: str = "auto"
    risk: RiskPoints = field(default_factory=RiskPoints)
