"""What operating points are asked for."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from elfnet.calibrate.adjustment_choice import AdjustmentChoice, choose_adjustment
from elfnet.evaluate.exit_table import ExitTable
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import final_recipe, loss_scale

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
class Adjust:
    """Whether and how logits may be adjusted for the training prior; see `choose_adjustment` for the fields."""

    adjust: str = "off"
    taus: tuple[float, ...] = ()
    loss_scale: float = 1.0

    def choose(self, table: ExitTable) -> AdjustmentChoice:
        """What a table of the calibration split, or of a part of it, speaks for."""
        return choose_adjustment(table, adjust=self.adjust, taus=self.taus, loss_scale=self.loss_scale)


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
        adjust: whether the logits of all points are adjusted.
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
    adjust: Adjust = field(default_factory=Adjust)
    risk: RiskPoints = field(default_factory=RiskPoints)


def request_of(recipe: Recipe) -> FamilyRequest:
    """The points that a run's recipe asks for: all rules, with its candidates for s and for tau."""
    return FamilyRequest(search=recipe.exits.search, adjust=adjust_of(recipe))


def adjust_of(recipe: Recipe, adjust: str | None = None) -> Adjust:
    """How the recipe lets logits be adjusted; `adjust` replaces its choice of whether."""
    scale = loss_scale(final_recipe(recipe))
    return Adjust(adjust=adjust or recipe.exits.logit_adjustment, taus=recipe.refit.taus, loss_scale=scale)
