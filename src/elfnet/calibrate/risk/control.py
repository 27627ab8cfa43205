"""Risk control: the boldest policy that provably loses at most epsilon against full depth (Jazbec et al. 2024).

The guarantee holds for finite samples and any distribution. The only assumption is that later examples come from the
distribution of the calibration split, including its class frequencies. If the table has a target mix (`target_C`), the
classes may have those frequencies instead: the loss of each example is weighted by its class, and the bound pays for
the largest weight. Where a class has too few examples for that, the guarantee is refused.
"""

# Shapes: P candidates, N examples of the certification part

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.calibration_table import require_calibration, split_table
from elfnet.calibrate.risk.bounds import METHODS, Method, TooFewExamplesError, enough_examples, fewest_examples
from elfnet.calibrate.risk.losses import (
    GROUPINGS,
    LOSSES,
    LossForm,
    full_depth_prediction,
    loss_form,
    members_by_group,
    outcomes_of,
)
from elfnet.calibrate.risk.sequence import (
    PROCEDURES,
    Candidates,
    certified_prefix,
    ordered_candidates,
    relative_weights,
)
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.exits.policy import Policy, full_depth
from elfnet.registry import unknown_name


@dataclass(frozen=True, kw_only=True)
class RiskRequest:
    """How guarantees are certified; one request serves several epsilons.

    Attributes:
        delta: probability that a guarantee is broken.
        method: `betting` or `hoeffding-bentkus`.
        procedure: `fixed-sequence` or `upper-bound`.
        loss: `accuracy` or `agreement`.
        groups: `none`, `true` or `predicted`.
        seed: seed of the split and of the order of the examples.
        fraction: share of the examples that candidates are fitted on.
    """

    delta: float
    method: str
    procedure: str
    loss: str
    groups: str
    seed: int
    fraction: float

    def __post_init__(self) -> None:
        require_share("delta", self.delta, "the probability that the guarantee is broken")
        require_share("fraction", self.fraction, "the share of the examples to fit on")
        for kind, name, choices in (
            ("risk control method", self.method, METHODS.names()),
            ("risk control procedure", self.procedure, list(PROCEDURES)),
            ("risk control loss", self.loss, list(LOSSES)),
            ("grouping", self.groups, list(GROUPINGS)),
        ):
            if name not in choices:
                raise unknown_name(kind, name, choices)

    @property
    def bounds(self) -> Method:
        return METHODS[self.method]

    @property
    def form(self) -> LossForm:
        return loss_form(self.loss, prefers_signed=self.bounds.prefers_signed)

    @property
    def reads_labels(self) -> bool:
        """Whether the labels of the calibration split are used."""
        return self.loss == "accuracy" or self.groups == "true"


def require_share(name: str, value: object, meaning: str) -> None:
    """Check that a value is strictly between 0 and 1; `meaning` explains it in the error message."""
    if not isinstance(value, Real) or not 0.0 < float(value) < 1.0:
        raise RequestError(f"{name}={value!r} must lie between 0 and 1, both excluded: it is {meaning}; try 0.05")


@dataclass(frozen=True, kw_only=True)
class RiskControlled:
    """A policy whose risk is at most `epsilon` with probability at least 1 - `delta`.

    The probability is over the random choice of the calibration examples. The risk is the mean loss over new examples
    of the same distribution, in each group if there are groups.

    Attributes:
        policy: the last certified candidate; full depth, which has no risk, if no candidate is certified.
        epsilon: the largest risk that is guaranteed.
        delta: probability that the guarantee is broken: per policy, or for all epsilons together if `simultaneous`.
        level: level of each test: delta, or delta / (number of epsilons) if `simultaneous`.
        simultaneous: whether all guarantees hold at once with probability 1 - delta.
        method: `betting` or `hoeffding-bentkus`.
        procedure: `fixed-sequence` or `upper-bound`.
        loss: `accuracy` or `agreement`.
        form: form of the loss in the bound: `signed`, `clipped` or `agreement` (see `losses`).
        groups: `none`, `true` or `predicted`.
        n_fitted: number of examples that the candidates were fitted on.
        n_certified: number of examples that the guarantee was certified on.
        n_certified_by_group: number of certification examples in each group.
        n_candidates: number of candidates in the sequence.
        n_candidates_certified: number of candidates that passed before the first failure.
        empirical_risk: mean loss on the certification part; for `accuracy` the signed loss, negative if exits gain.
        empirical_risk_by_group: mean loss in each group.
        bound_or_p: p-value (`fixed-sequence`) or bound on the risk (`upper-bound`) of the worst group; 0 at full depth.
        mean_cost: mean cost on the certification part, in the table's unit.
        full_depth_cost: mean cost of full depth.
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
        """Return the policy with another name."""
        return replace(self.policy, name=name)

    def promise(self) -> dict[str, Any]:
        """Return all fields except the policy in plain JSON types, to be stored with an operating point."""
        return {name: value for name, value in self.to_dict().items() if name != "policy"}

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and `cost_saved` in plain JSON types."""
        return {**asdict(self), "policy": self.policy.to_dict(), "cost_saved": self.cost_saved}


def control_risk(
    table: ExitTable,
    *,
    epsilon: float,
    delta: float,
    candidates: Candidates | None = None,
    method: str = "betting",
    procedure: str = "fixed-sequence",
    loss: str = "accuracy",
    groups: str = "none",
    seed: int = 0,
    fraction: float = 0.5,
) -> RiskControlled:
    """Find the boldest candidate policy whose risk is at most `epsilon` with probability at least 1 - `delta`.

    The guarantee is for the returned policy alone: if this is called for several epsilons, each guarantee is broken
    with probability delta. `control_risks` with `simultaneous=True` gives guarantees that hold all at once.

    Args:
        table: exit table of the calibration split; a table of the test split is refused.
        epsilon: the largest risk, as a fraction: 0.01 is one point of accuracy (or 1 % of different predictions).
        delta: probability that the guarantee is broken.
        candidates: policies from the safest to the boldest, chosen without this table; or a function that fits them
            (thresholds, scales and their order) on the fitting part; one threshold for all exits by default.
        method: `betting` (tighter) or `hoeffding-bentkus`.
        procedure: `fixed-sequence` reports a p-value, `upper-bound` a bound on the risk; both certify the same policy.
        loss: `accuracy` lost against full depth, or `agreement` with the prediction of full depth (no labels needed).
        groups: guarantee in each frequency group, by `true` or by `predicted` class (no labels needed); or `none`.
        seed: seed of the split and of the order of the examples.
        fraction: share of the examples that candidates are fitted on; the others certify.

    Raises:
        RequestError: a value is invalid, or the examples are too few for the guarantee.

    Example:
        >>> from elfnet import control_risk, evaluate_run, open_run
        >>> table = evaluate_run(open_run("runs/first"), "calibration")
        >>> control_risk(table, epsilon=0.5, delta=0.1).epsilon
        0.5
    """
    request = RiskRequest(
        delta=delta, method=method, procedure=procedure, loss=loss, groups=groups, seed=seed, fraction=fraction
    )
    require_share("epsilon", epsilon, "the largest risk allowed")
    return _Evidence.of(table, request, candidates).certify(epsilon, level=delta, simultaneous=False)


def control_risks(
    table: ExitTable,
    *,
    epsilons: Sequence[float],
    delta: float,
    simultaneous: bool = False,
    candidates: Candidates | None = None,
    method: str = "betting",
    procedure: str = "fixed-sequence",
    loss: str = "accuracy",
    groups: str = "none",
    seed: int = 0,
    fraction: float = 0.5,
) -> tuple[RiskControlled, ...]:
    """Run `control_risk` for several epsilons on one split of the table; results are in the order of the epsilons.

    By default delta holds for each point: use this if one point is selected in advance. With `simultaneous` each
    guarantee is tested at delta / (number of epsilons), and the probability that *any* of them is broken is at most
    delta (Bonferroni): use this if the point is selected later or changed at run time.

    Example:
        >>> from elfnet import control_risks, evaluate_run, open_run
        >>> table = evaluate_run(open_run("runs/first"), "calibration")
        >>> [result.epsilon for result in control_risks(table, epsilons=(0.4, 0.5), delta=0.1)]
        [0.4, 0.5]
    """
    request = RiskRequest(
        delta=delta, method=method, procedure=procedure, loss=loss, groups=groups, seed=seed, fraction=fraction
    )
    if not epsilons:
        raise RequestError("risk control has no epsilon; give at least one, such as 0.01")
    for epsilon in epsilons:
        require_share("epsilon", epsilon, "the largest risk allowed")
    evidence = _Evidence.of(table, request, candidates)
    level = delta / len(epsilons) if simultaneous else delta
    return tuple(evidence.certify(epsilon, level=level, simultaneous=simultaneous) for epsilon in epsilons)


@dataclass(frozen=True, eq=False)
class _Evidence:
    """The data for certification: the candidates in order, and their losses on the certification part."""

    request: RiskRequest
    fitting: ExitTable
    certifying: ExitTable
    policies: tuple[Policy, ...]
    loss_PN: NDArray[np.int8]
    mean_cost_P: NDArray[np.float64]
    members: dict[str, NDArray[np.bool_]]
    weight_N: NDArray[np.float64] | None

    @classmethod
    def of(cls, table: ExitTable, request: RiskRequest, candidates: Candidates | None) -> Self:
        require_calibration(table)
        # Without labels, the prediction of full depth replaces the class of an example.
        class_N = table.labels_N if request.reads_labels else full_depth_prediction(table)
        if (class_N == class_N[0]).all():
            raise RequestError(
                f"all {table.examples} examples of the {table.split} exit table are of one class "
                f"({table.class_names[class_N[0]]!r}); calibrate on examples of all classes"
            )
        fitting, certifying = split_table(table, request.fraction, request.seed, strata_N=class_N)
        policies = ordered_candidates(fitting, candidates)
        # Full depth uses the logit adjustment of the candidates that are compared with it.
        if policies:
            certifying = replace(certifying, adjustment=_common_adjustment(policies))
        # Betting reads the examples one by one, and tables may be sorted by class.
        order_N = np.random.default_rng([request.seed, 1]).permutation(certifying.examples)
        members = {name: member_N[order_N] for name, member_N in members_by_group(certifying, request.groups).items()}
        loss_PN, mean_cost_P = outcomes_of(certifying, policies, request.loss)
        weight_N = None if certifying.target_C is None else certifying.example_weights()[order_N]
        return cls(request, fitting, certifying, policies, loss_PN[:, order_N], mean_cost_P, members, weight_N)

    def certify(self, epsilon: float, *, level: float, simultaneous: bool) -> RiskControlled:
        self._require_enough(epsilon, level)
        request = self.request
        certified = certified_prefix(
            self.loss_PN,
            self.members,
            epsilon=epsilon,
            delta=level,
            method=request.bounds,
            form=request.form,
            procedure=request.procedure,
            weight_N=self.weight_N,
        )
        full_policy = full_depth(
            self.certifying.exits,
            self.certifying.confidence_scale,
            measure=self.certifying.confidence_measure,
            adjustment=self.certifying.adjustment,
        )
        full_depth_cost = mean_cost = float(self.certifying.cost_under(full_policy)[-1])
        if certified.passed:
            boldest = certified.passed - 1
            policy, loss_N = self.policies[boldest], self.loss_PN[boldest]
            mean_cost = float(self.mean_cost_P[boldest])
        else:
            policy = full_policy
            loss_N = np.zeros(self.certifying.examples, dtype=np.int8)
        return RiskControlled(
            policy=policy,
            epsilon=float(epsilon),
            delta=float(request.delta),
            level=float(level),
            simultaneous=simultaneous,
            method=request.method,
            procedure=request.procedure,
            loss=request.loss,
            form=request.form.name,
            groups=request.groups,
            n_fitted=self.fitting.examples,
            n_certified=self.certifying.examples,
            n_certified_by_group={name: int(member_N.sum()) for name, member_N in self.members.items()},
            n_candidates=len(self.policies),
            n_candidates_certified=certified.passed,
            empirical_risk=self._mean(loss_N, np.ones(len(loss_N), dtype=np.bool_)),
            empirical_risk_by_group={name: self._mean(loss_N, member_N) for name, member_N in self.members.items()},
            bound_or_p=0.0 if certified.statistic is None else certified.statistic,
            mean_cost=mean_cost,
            full_depth_cost=full_depth_cost,
        )

    def _mean(self, loss_N: NDArray[np.int8], member_N: NDArray[np.bool_]) -> float:
        weights = None if self.weight_N is None else self.weight_N[member_N]
        return float(np.average(loss_N[member_N], weights=weights))

    def _require_enough(self, epsilon: float, level: float) -> None:
        """Refuse a guarantee that could not be certified even for a policy without any loss."""
        bounds, form = self.request.bounds, self.request.form
        self._require_all_classes(epsilon, level)
        for name, member_N in self.members.items():
            found = int(member_N.sum())
            # The rarest class has the largest weight, and a loss of its examples counts that much more.
            _, largest = relative_weights(self.weight_N, np.flatnonzero(member_N))
            weighted = epsilon / largest
            if enough_examples(found, epsilon=weighted, delta=level, method=bounds, form=form):
                continue
            needed = fewest_examples(epsilon=weighted, delta=level, method=bounds, form=form)
            group = "" if self.request.groups == "none" else f" of group {name!r} (by {self.request.groups} class)"
            mix = "" if largest == 1.0 else f" (the rarest class counts {largest:.1f}-fold to reach the class mix)"
            raise TooFewExamplesError(
                f"epsilon={epsilon:g} at delta={level:g} needs at least {needed} examples{group} to certify on{mix}, "
                f"and {found} are left for that ({self._chosen()}); calibrate on more, or use a larger epsilon",
                epsilon=epsilon,
            )

    def _chosen(self) -> str:
        return f"{self.request.fraction:.0%} of the calibration examples choose the thresholds"

    def _require_all_classes(self, epsilon: float, level: float) -> None:
        """Refuse a guarantee for a class mix with a class that has no example to certify on.

        A class with a share p of the mix needs that share of the examples that the mix as it is would need: with fewer,
        each of them counts more, and epsilon is smaller for the bound.
        """
        table = self.certifying
        if table.target_C is None:
            return
        size_C = np.bincount(table.labels_N, minlength=table.classes)
        if ((table.target_C > 0) & (size_C == 0)).any():
            whole = fewest_examples(epsilon=epsilon, delta=level, method=self.request.bounds, form=self.request.form)
            needed_C = np.ceil(whole * table.target_C - 1e-9).astype(np.int64)
            worst = int((needed_C - size_C).argmax())
            needed, more = int(needed_C[worst]), int((size_C < needed_C).sum()) - 1
            raise TooFewExamplesError(
                f"epsilon={epsilon:g} at delta={level:g} needs at least {needed} example{'' if needed == 1 else 's'} "
                f"of class {table.class_names[worst]!r} to certify on, and {size_C[worst] or 'none'} of it "
                f"{'are' if size_C[worst] > 1 else 'is'} left for that ({self._chosen()})"
                f"{f', and too few of {more} more' if more else ''}; calibrate on "
                f"{math.ceil(needed / (1 - self.request.fraction))} or more images of it, or use a larger epsilon",
                epsilon=epsilon,
            )


def _common_adjustment(policies: Sequence[Policy]) -> LogitAdjustment | None:
    first = policies[0]
    for policy in policies:
        if policy.adjustment != first.adjustment:
            raise RequestError(
                f"candidates {first.name!r} and {policy.name!r} have different logit adjustments; give candidates with "
                "the same adjustment"
            )
    return first.adjustment
