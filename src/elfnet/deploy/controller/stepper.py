"""When to move, and how far: the state machine that cannot oscillate without bound.

Down at once when the target is missed; up only after a wait. Between every two neighbouring rungs stands a wait of its
own, and it doubles each time that a climb over this place is taken back. Only a new phase (a detected change of the
inputs, or a new target) makes the waits short again.

**Bound.** In a phase of n windows on a ladder of P rungs there are at most 2 (P - 1) (1 + log2 n) moves, whatever is
observed. Proof: take one of the P - 1 places between rungs. The phase crosses it up and down in turn. A crossing down
that follows one up in the phase doubles the place's wait, so after r of them the wait is 2^r windows. The next
crossing up comes at least 2^r windows after the last crossing down (for r = 0: after the phase began), and the one
down at least one window after that. So R >= 1 of them take at least sum(2^r + 1 for r = 0 .. R - 1) = 2^R - 1 + R >=
2^R windows, hence R <= log2 n. Besides these R pairs there is at most one crossing down before them and one up after
them: at most 2 + 2 log2 n crossings of this place. Every move crosses at least one place.

A stream without change of mix has one phase with probability 1 - `false_alarm`, however long it is (see `MixChange`):
its moves are O(log n). Under changes there are the moves of each phase, and never more than one in a window.
"""

from collections.abc import Sequence

from elfnet.deploy.controller.ladder import highest_within


class Stepper:
    """The present rung, and the patience before the next try upwards. One decision per window.

    Args:
        rungs: length of the ladder.
        start: the rung to begin at.
        far_off: from this relative distance from the target on, a move may take several rungs.
    """

    def __init__(self, rungs: int, start: int, *, far_off: float) -> None:
        self._places, self._far_off = rungs - 1, far_off
        self.rung = start
        self.moves = 0
        self.new_phase()

    @property
    def wait(self) -> int:
        """Windows between the last way down past the place above and the next try up; 0 on the top rung."""
        return self._wait[self.rung] if self.rung < self._places else 0

    def new_phase(self) -> None:
        """The inputs or the target are no longer what the waits were learned from."""
        self._wait = [1] * self._places
        self._since_down = [0] * self._places
        self._climbed = [False] * self._places

    def jump(self, rung: int) -> None:
        """Go to the rung that a new target asks for; begins a phase."""
        self.new_phase()
        self.moves += rung != self.rung
        self.rung = rung

    def decide(self, *, overloaded: bool, value: float, predicted: Sequence[float], target: float) -> bool:
        """One window is over; True if the rung has changed.

        Args:
            overloaded: the target is missed beyond noise and dead band.
            value: what the present rung gives.
            predicted: what each rung would give, rising.
            target: what is to be held.
        """
        self._since_down = [windows + 1 for windows in self._since_down]
        fitting = highest_within(predicted, target)
        before = self.rung
        if overloaded and self.rung > 0:
            far = value > target * (1.0 + self._far_off)
            self._descend(min(fitting, self.rung - 1) if far else self.rung - 1)
        elif not overloaded and fitting > self.rung:
            far = value < target * (1.0 - self._far_off)
            self._climb(fitting if far else self.rung + 1)
        self.moves += self.rung != before
        return self.rung != before

    def _descend(self, rung: int) -> None:
        for place in range(rung, self.rung):
            self._wait[place] *= 2 if self._climbed[place] else 1
            self._since_down[place] = 0
        self.rung = rung

    def _climb(self, rung: int) -> None:
        """As far up as the waits allow."""
        while self.rung < rung and self._since_down[self.rung] >= self._wait[self.rung]:
            self._climbed[self.rung] = True
            self.rung += 1
