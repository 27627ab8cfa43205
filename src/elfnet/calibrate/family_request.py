"""What a family of operating points shall contain: the request that `fit_family` answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from elfnet.calibrate.adjustment_choice import AdjustmentChoice, choose_adjustment
from elfnet.calibrate.class_mix import AUTO, parse_mix
from elfnet.calibrate.measured_cost import TimeBudget
from elfnet.evaluate.exit_table import ExitTable
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import final_recipe, loss_scale

DEFAULT_EPSILONS = (0.01, 0.02, 0.05)


@dataclass(frozen=True, kw_only=True)
class RiskPoints:
    """Request for points with a guarantee on the accuracy lost; see `control_risks` for the other fields.

    Attributes:
        epsilons: largest accuracy loss against full depth; one point per value.
        delta: probability that a guarantee is broken.
        simultaneous: whether delta holds for all guarantees together instead of for each.
        required: whether too few examples for a guarantee are an error. If not, the point is omitted with a note.
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
    """Request for logits that are adjusted for the training prior; see `choose_adjustment` for the fields."""

    adjust: str = "off"
    taus: tuple[float, ...] = ()
    loss_scale: float = 1.0

    def choose(self, table: ExitTable) -> AdjustmentChoice:
        """Choose the adjustment on a table of the calibration split, or of a part of it."""
        return choose_adjustment(table, adjust=self.adjust, taus=self.taus, loss_scale=self.loss_scale)


@dataclass(frozen=True, kw_only=True)
class FamilyRequest:
    """The operating points that a family shall have.

    Attributes:
        search: candidates for s, the single threshold of the paper's line search.
        tolerance_points: largest accuracy loss of `economic`, in percentage points.
        confidence_scale: scale of all exits in the line search; the scale of the table by default.
        budgets: mean costs to fit thresholds for, or times per image (`TimeBudget`). Without a mean cost, steps of 0.05
            from the cheapest exit to full depth.
        geometric_budgets: mean costs of the points by MSDNet's rule; None for steps of 0.1.
        floors_points: accuracy losses X against full depth, in percentage points. Each gives the point `within-X` (loss
            over all examples) and the point `worst-group-within-X` (accuracy of the worst frequency group).
        mix: the class mix that points are chosen for; see `weighted_to`.
        accurate: `beyond-noise`: the point `accurate` is the most accurate of the line search and of the best
            thresholds per exit, at a cost of at most 1, and `full` unless it is better than that by two standard
            errors; `highest`: it is the most accurate of the line search, as the paper chooses s.
        scales: `own`, `fitted` or `auto`; see `choose_confidence`.
        combine: `on`, `off` or `auto`; see `choose_confidence`.
        adjust: whether the logits of all points are adjusted.
        classifiers: of a run with a second stage: `first-stage`, with adjusted logits, `second-stage`, or `auto`, the
            better ones; see `choose_classifiers`.
        risk: points with a guarantee.

    Example:
        >>> from elfnet import FamilyRequest, evaluate_run, fit_family, open_run
        >>> request = FamilyRequest(search=[0.5, 0.9], budgets=(0.5, 0.8), geometric_budgets=())
        >>> family = fit_family(evaluate_run(open_run("runs/first"), "calibration"), request)
        >>> [point.policy.name for point in family.points if "budget" in point.policy.name]
        ['budget=0.5', 'budget=0.8']
    """

    search: Sequence[str | float]
    tolerance_points: float = 1.0
    confidence_scale: float | None = None
    budgets: tuple[float | TimeBudget, ...] | None = None
    geometric_budgets: tuple[float, ...] | None = None
    floors_points: tuple[float, ...] = (0.5, 1.0)
    mix: str | tuple[float, ...] = AUTO
    accurate: Literal["beyond-noise", "highest"] = "beyond-noise"
    scales: str = "auto"
    combine: str = "auto"
    adjust: Adjust = field(default_factory=Adjust)
    classifiers: str = "auto"
    risk: RiskPoints = field(default_factory=RiskPoints)


def request_from_recipe(recipe: Recipe) -> FamilyRequest:
    """Return the default request of a run: all rules, with the recipe's candidates for s and tau."""
    return FamilyRequest(
        search=recipe.exits.search, adjust=adjust_from_recipe(recipe), mix=parse_mix(recipe.exits.class_mix)
    )


def adjust_from_recipe(recipe: Recipe, adjust: str | None = None) -> Adjust:
    """Return the recipe's logit adjustment; `adjust` (`auto`, `on` or `off`) overrides exits.logit_adjustment."""
    scale = loss_scale(final_recipe(recipe))
    return Adjust(adjust=adjust or recipe.exits.logit_adjustment, taus=recipe.refit.taus, loss_scale=scale)
