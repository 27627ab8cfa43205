"""Progress of training in lines: the time left follows from the pace since the process began."""

import pytest

from elfnet.train import logging
from elfnet.train.logging import Watch, time_left


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(logging, "time", clock)
    return clock


def test_times_are_rounded() -> None:
    assert [time_left(s) for s in (45.4, 480, 8000)] == ["45 s left", "8 min left", "2.2 h left"]


def test_a_long_epoch_says_where_it_is_every_half_minute(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    watch = Watch()
    watch._epochs = 4
    for step in (1, 2, 3):
        clock.now = 20.0 * step
        watch.step(step, 4)
    # A quarter of an epoch in 20 s: after 40 s half of the first of four epochs is done, and 280 s are left.
    assert capsys.readouterr().err == "epoch 1/4, step 2/4  5 min left\n"


def test_notes_of_the_set_up_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    Watch().note("28 px grey")
    assert capsys.readouterr().err == "28 px grey\n"
