"""Decide which exits save time on this machine: time of the head against time saved by the examples that exit there."""

from dataclasses import dataclass, replace

from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.calibrate.operating_point import OperatingPoint
from elfnet.exits.policy import NEVER, Policy


@dataclass(frozen=True)
class ExitUse:
    """Time balance of one early exit at one operating point. Times are in seconds per input image.

    Attributes:
        exit: Number of the exit, from 1.
        used: Whether its head is run.
        reach: Share of the images that reach it.
        leave: Share of the images that exit there.
        head_time: Time of the head for all images that reach it.
        time_saved: Time that the images which exit there would need to the next exit in use. This is a lower bound:
            without this exit they might go further.
    """

    exit: int
    used: bool
    reach: float
    leave: float
    head_time: float
    time_saved: float

    @property
    def pays(self) -> bool:
        """Whether the exit is used and saves more time than its head takes."""
        return self.used and self.time_saved > self.head_time

    @property
    def why(self) -> str:
        """The verdict as one sentence."""
        if not self.used:
            return f"exit {self.exit} is not used: no image may exit there, its head is not run"
        verdict = "pays" if self.pays else "does not pay"
        return (
            f"exit {self.exit} {verdict}: {100 * self.leave:.0f} % of the images exit there and save "
            f"{1e6 * self.time_saved:.1f} us per image, its head takes {1e6 * self.head_time:.1f} us"
        )


def exit_use(point: OperatingPoint, cost: MeasuredCost) -> tuple[ExitUse, ...]:
    """Return the time balance of every early exit of an operating point, with the exit shares of calibration."""
    return _uses(point.policy, point.expected.exit_share, cost)


def without_unprofitable_exits(point: OperatingPoint, cost: MeasuredCost) -> tuple[Policy, tuple[ExitUse, ...]]:
    """Disable the exits of an operating point that take more time than they save on this machine.

    The least profitable exit is disabled first; its images are assumed to exit at the next exit in use. This is
    repeated until all remaining exits pay. No image exits earlier than before. A point with a promise does not change,
    because the promise holds for this policy only; nor does a point that combines exits, because its predictions
    depend on all of them.

    Returns:
        The new policy, and the verdict on every early exit.
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
        path_time = sum(cost.stages[k + 1 : following + 1]) + cost.heads[following]
        used = policy.runs_head(k)
        uses.append(
            ExitUse(
                exit=k + 1,
                used=used,
                reach=reach,
                leave=share[k],
                head_time=reach * cost.heads[k] if used else 0.0,
                time_saved=share[k] * path_time,
            )
        )
        reach -= share[k]
    return tuple(uses)


def _next_in_use(policy: Policy, exit_index: int) -> int:
    return next(k for k in range(exit_index + 1, policy.exits) if policy.runs_head(k))
