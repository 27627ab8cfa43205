"""Whether an exit pays for itself on this machine: what its head takes against what those who leave there save."""

from dataclasses import dataclass, replace

from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.calibrate.operating_point import OperatingPoint
from elfnet.exits.policy import NEVER, Policy


@dataclass(frozen=True)
class ExitUse:
    """One early exit at one operating point; times in seconds an image of the input.

    Attributes:
        exit: from 1.
        used: whether its head is run.
        reach: share of the images that get there.
        leave: share of the images that leave there.
        head_time: what the head takes, for all who get there.
        time_saved: what those who leave do not take on the way to the next exit in use; they might go further still.
    """

    exit: int
    used: bool
    reach: float
    leave: float
    head_time: float
    time_saved: float

    @property
    def pays(self) -> bool:
        return self.used and self.time_saved > self.head_time

    @property
    def why(self) -> str:
        """The verdict in words."""
        if not self.used:
            return f"exit {self.exit} is not used: nobody may leave there, its head is not run"
        verdict = "pays" if self.pays else "does not pay"
        return (
            f"exit {self.exit} {verdict}: {100 * self.leave:.0f} % of the images leave there and save "
            f"{1e6 * self.time_saved:.1f} us an image, its head takes {1e6 * self.head_time:.1f} us"
        )


def exit_use(point: OperatingPoint, cost: MeasuredCost) -> tuple[ExitUse, ...]:
    """Every early exit of an operating point, with the shares that were seen on the calibration split."""
    return _uses(point.policy, point.expected.exit_share, cost)


def without_unprofitable_exits(point: OperatingPoint, cost: MeasuredCost) -> tuple[Policy, tuple[ExitUse, ...]]:
    """The point's policy with the exits left out that do not pay here, and the reasons, exit by exit.

    The least profitable one goes first, and who would have left there is then taken to leave at the next one in use;
    this is repeated until all that are left pay. Nobody leaves earlier than before. A point with a promise, or one
    that combines exits, stays as it is: the promise is for this policy and no other, and the answers come from all
    exits.
    """
    policy, share = point.policy, list(point.expected.exit_share)
    if point.promise is not None or policy.combine:
        return policy, _uses(policy, share, cost)
    reasons: dict[int, ExitUse] = {}
    while True:
        uses = _uses(policy, share, cost)
        losing = [use for use in uses if use.used and not use.pays]
        if not losing:
            return policy, tuple(reasons.get(use.exit, use) for use in uses)
        worst = min(losing, key=lambda use: use.time_saved - use.head_time)
        reasons[worst.exit] = worst
        thresholds = list(policy.thresholds)
        thresholds[worst.exit - 1] = NEVER
        policy = replace(policy, thresholds=tuple(thresholds))
        following = _next_in_use(policy, worst.exit - 1)
        share[following] += share[worst.exit - 1]
        share[worst.exit - 1] = 0.0


def _uses(policy: Policy, share: tuple[float, ...] | list[float], cost: MeasuredCost) -> tuple[ExitUse, ...]:
    uses, reach = [], 1.0
    for k in range(policy.exits - 1):
        following = _next_in_use(policy, k)
        way_on = sum(cost.stages[k + 1 : following + 1]) + cost.heads[following]
        used = policy.runs_head(k)
        uses.append(
            ExitUse(
                exit=k + 1,
                used=used,
                reach=reach,
                leave=share[k],
                head_time=reach * cost.heads[k] if used else 0.0,
                time_saved=share[k] * way_on,
            )
        )
        reach -= share[k]
    return tuple(uses)


def _next_in_use(policy: Policy, exit_index: int) -> int:
    return next(k for k in range(exit_index + 1, policy.exits) if policy.runs_head(k))
