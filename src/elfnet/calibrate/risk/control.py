"""Risk control: the boldest policy that provably loses at most epsilon against full depth (Jazbec et al. 2024).

Finite-sample and distribution-free: nothing is assumed of the model or the data but that the calibration examples are
drawn like those that come later. The promise is for data like the calibration split, its mix of classes included.
"""

# Shapes: P candidates, N examples of the certification part

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.require_calibration import require_calibration
from elfnet.calibrate.risk.candidates import Candidates, ordered_candidates
from elfnet.calibrate.risk.fewest_examples import TooFewExamplesError, enough_examples, fewest_examples
from elfnet.calibrate.risk.groups import members_by_group
from elfnet.calibrate.risk.losses import full_depth_answer, outcomes_of
from elfnet.calibrate.risk.request import RiskRequest, require_share
from elfnet.calibrate.risk.result import RiskControlled
from elfnet.calibrate.risk.sequence import certified_prefix
from elfnet.calibrate.risk.split_table import split_table
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.exits.policy import Policy, full_depth


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
    """The boldest policy whose risk is at most `epsilon`, with probability at least 1 - `delta`.

    The promise is for the one policy returned: with several epsilons, each is broken with a chance of delta on its own.
    `control_risks` with `simultaneous=True` makes promises that hold all at once.

    Args:
        table: of the calibration split; a table of the test split is refused.
        epsilon: the largest risk, as a fraction: 0.01 is one point of accuracy (or 1 % of answers that differ).
        delta: the chance that the promise is broken.
        candidates: policies from the safest to the boldest, chosen without this table; or a function that fits them
            (thresholds, scales and their order) on the fitting part; uniform thresholds by default.
        method: `betting` (tighter) or `hoeffding-bentkus`.
        procedure: `fixed-sequence` reports a p-value, `upper-bound` a bound on the risk; both certify the same policy.
        loss: `accuracy` lost against full depth, or `agreement` with the full-depth answer, which needs no labels.
        groups: the promise for each frequency group: by `true` class, by `predicted` class (no labels), or `none`.
        seed: of the split and of the order of the examples.
        fraction: share of the examples that candidates are fitted on; the others certify.
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
    """`control_risk` for several epsilons, in the order given, on one split of the table.

    By default delta holds per point: use it where one point is picked beforehand. With `simultaneous` each promise is
    tested at delta / (number of epsilons), and the chance that *any* of them is broken is at most delta (Bonferroni):
    use it where the point is picked later, or changed while running.
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
    """All that promises are made from: the candidates in order, and their losses on the certification part."""

    request: RiskRequest
    fitting: ExitTable
    certifying: ExitTable
    policies: tuple[Policy, ...]
    loss_PN: NDArray[np.int8]
    mean_cost_P: NDArray[np.float64]
    members: dict[str, NDArray[np.bool_]]

    @classmethod
    def of(cls, table: ExitTable, request: RiskRequest, candidates: Candidates | None) -> Self:
        require_calibration(table)
        # Without labels, what the full network takes an example for stands in for its class.
        class_N = table.labels_N if request.reads_labels else full_depth_answer(table)
        if (class_N == class_N[0]).all():
            raise RequestError(
                f"all {table.examples} examples of the {table.split} exit table are of one class "
                f"({table.class_names[class_N[0]]!r}); calibrate on examples of all classes"
            )
        fitting, certifying = split_table(table, request.fraction, request.seed, strata_N=class_N)
        policies = ordered_candidates(fitting, candidates)
        # Full depth, which the candidates are compared with, reads logits as they do.
        if policies:
            certifying = replace(certifying, adjustment=_common_adjustment(policies))
        # Betting takes the examples one by one, and tables may be sorted by class.
        order_N = np.random.default_rng([request.seed, 1]).permutation(certifying.examples)
        members = {name: member_N[order_N] for name, member_N in members_by_group(certifying, request.groups).items()}
        loss_PN, mean_cost_P = outcomes_of(certifying, policies, request.loss)
        return cls(request, fitting, certifying, policies, loss_PN[:, order_N], mean_cost_P, members)

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
        )
        nobody_early = full_depth(
            self.certifying.exits,
            self.certifying.confidence_scale,
            measure=self.certifying.confidence_measure,
            adjustment=self.certifying.adjustment,
        )
        full_depth_cost = mean_cost = float(self.certifying.cost_under(nobody_early)[-1])
        if certified.passed:
            boldest = certified.passed - 1
            policy, loss_N = self.policies[boldest], self.loss_PN[boldest]
            mean_cost = float(self.mean_cost_P[boldest])
        else:
            policy = nobody_early
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
            empirical_risk=float(loss_N.mean()),
            empirical_risk_by_group={name: float(loss_N[member_N].mean()) for name, member_N in self.members.items()},
            bound_or_p=0.0 if certified.statistic is None else certified.statistic,
            mean_cost=mean_cost,
            full_depth_cost=full_depth_cost,
        )

    def _require_enough(self, epsilon: float, level: float) -> None:
        """Refuse a promise that even a policy without any loss could not be certified for."""
        bounds, form = self.request.bounds, self.request.form
        for name, member_N in self.members.items():
            found = int(member_N.sum())
            if enough_examples(found, epsilon=epsilon, delta=level, method=bounds, form=form):
                continue
            needed = fewest_examples(epsilon=epsilon, delta=level, method=bounds, form=form)
            group = "" if self.request.groups == "none" else f" of group {name!r} (by {self.request.groups} class)"
            raise TooFewExamplesError(
                f"epsilon={epsilon:g} at delta={level:g} needs at least {needed} examples{group} to certify on, and "
                f"fraction={self.request.fraction:g} leaves {found}; calibrate on more, or ask for a larger epsilon",
                epsilon=epsilon,
            )


def _common_adjustment(policies: Sequence[Policy]) -> LogitAdjustment | None:
    first = policies[0]
    for policy in policies:
        if policy.adjustment != first.adjustment:
            raise RequestError(
                f"candidates {first.name!r} and {policy.name!r} adjust logits differently, and are compared with one "
                "full depth; give candidates with one adjustment"
            )
    return first.adjustment
