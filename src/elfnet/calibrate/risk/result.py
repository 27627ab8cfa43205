"""What risk control promises of a policy, and what it measured."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from elfnet.exits.policy import Policy


@dataclass(frozen=True, kw_only=True)
class RiskControlled:
    """A policy whose risk is at most `epsilon` with probability at least 1 - `delta`.

    The probability is over the draw of the calibration examples; the risk is the mean loss over new examples of the
    same kind, in every group where groups were asked for.

    Attributes:
        policy: the boldest certified candidate; full depth, which has no risk, where none is.
        epsilon: the largest risk promised.
        delta: the chance that the promise is broken: per policy, or for all epsilons together if `simultaneous`.
        level: the level of each test; delta, or its share of delta if `simultaneous`.
        simultaneous: whether all promises made together hold at once with probability 1 - delta.
        method: `betting` or `hoeffding-bentkus`.
        procedure: `fixed-sequence` or `upper-bound`.
        loss: `accuracy` or `agreement`.
        form: what the bound was computed for: `signed`, `clipped` or `agreement` (see `losses`).
        groups: `none`, `true` or `predicted`.
        n_fitted: examples that the candidates were fitted on.
        n_certified: examples that the promise was certified on.
        n_certified_by_group: the same for each group.
        n_candidates: candidates in the sequence.
        n_candidates_certified: how many of the first ones passed.
        empirical_risk: mean loss on the certification part; for `accuracy` the signed one, negative where exits gain.
        empirical_risk_by_group: the same for each group.
        bound_or_p: p-value (`fixed-sequence`) or bound on the risk (`upper-bound`) of the worst group; 0 at full depth.
        mean_cost: mean multiply-adds on the certification part, relative to the plain backbone.
        full_depth_cost: the same for full depth.
    """

    policy: Policy
    epsilon: float
    delta: float
    level: float
    simultaneous: bool
    method: str
    procedure: str
    loss: str
    form: str
    groups: str
    n_fitted: int
    n_certified: int
    n_certified_by_group: dict[str, int]
    n_candidates: int
    n_candidates_certified: int
    empirical_risk: float
    empirical_risk_by_group: dict[str, float]
    bound_or_p: float
    mean_cost: float
    full_depth_cost: float

    @property
    def cost_saved(self) -> float:
        """Share of the full-depth cost that is saved."""
        return 1.0 - self.mean_cost / self.full_depth_cost

    def policy_named(self, name: str) -> Policy:
        """The policy under a name of one's own."""
        return replace(self.policy, name=name)

    def promise(self) -> dict[str, Any]:
        """Everything but the policy, in plain JSON types: what an operating point carries along."""
        return {name: value for name, value in self.to_dict().items() if name != "policy"}

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**asdict(self), "policy": self.policy.to_dict(), "cost_saved": self.cost_saved}
