"""Schedules: golden numbers, warm-up, and every length."""

from dataclasses import replace
from math import cos, pi

import pytest
import torch

from elfnet.errors import RequestError
from elfnet.train.schedule import Schedule, scale_schedule


def _cifar(epochs: int, **changes: object) -> Schedule:
    settings: dict[str, object] = {
        "reference_epochs": 200,
        "lr": 0.1,
        "warmup_epochs": 5,
        "lr_steps": [160, 180],
        "lr_factor": 0.01,
        "drw_start": 160,
    }
    return scale_schedule(epochs=epochs, **(settings | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epochs", "warmup", "steps", "drw_start"),
    [(200, 5.0, (160, 180), 160), (40, 1.0, (32, 36), 32), (400, 10.0, (320, 360), 320), (60, 1.5, (48, 54), 48)],
)
def test_golden_schedules(epochs: int, warmup: float, steps: tuple[int, int], drw_start: int) -> None:
    schedule = _cifar(epochs)
    assert (schedule.warmup, schedule.lr_steps, schedule.drw_start) == (warmup, steps, drw_start)
    assert (schedule.epochs, schedule.lr, schedule.lr_factor) == (epochs, 0.1, 0.01)


def test_rate_drops_at_the_start_of_its_epochs() -> None:
    schedule = _cifar(200)
    rates = {epoch: schedule.learning_rate(epoch, 0, 97) for epoch in (5, 159, 160, 179, 180, 199)}
    assert rates == pytest.approx({5: 0.1, 159: 0.1, 160: 1e-3, 179: 1e-3, 180: 1e-5, 199: 1e-5})


@pytest.mark.parametrize(("epochs", "steps"), [(200, 97), (40, 97), (40, 1), (60, 8)])
def test_warm_up_is_linear_step_by_step_and_reaches_the_rate_exactly(epochs: int, steps: int) -> None:
    schedule = _cifar(epochs)
    length = schedule.warmup * steps
    for done in range(1, int(length) + 3):
        epoch, step = divmod(done - 1, steps)
        rate = schedule.learning_rate(epoch, step, steps)
        assert rate == pytest.approx(0.1 * min(1.0, done / length), rel=1e-12)
        assert (rate == 0.1) is (done >= length)
        assert rate > 0


def test_no_warm_up_starts_at_the_rate() -> None:
    assert _cifar(200, warmup_epochs=0).learning_rate(0, 0, 100) == 0.1


@pytest.mark.parametrize("epochs", range(1, 11))
def test_every_length_reaches_each_drop_and_the_weights(epochs: int) -> None:
    schedule = _cifar(epochs)
    assert all(0 <= at <= epochs - 1 for at in (*schedule.lr_steps, schedule.drw_start))
    assert schedule.learning_rate(epochs - 1, 9, 10) == pytest.approx(0.1 * 0.01**2)


def test_drops_fall_on_the_epoch_in_exact_arithmetic() -> None:
    """180 * (70 / 200) in floating point comes out a hair below 63."""
    for epochs in range(1, 301):
        assert _cifar(epochs).lr_steps == (160 * epochs // 200, 180 * epochs // 200)


@pytest.mark.parametrize(("setting", "value"), [("drw_start", 200), ("drw_start", 300), ("lr_steps", [160, 200])])
def test_what_is_never_reached_is_refused(setting: str, value: object) -> None:
    with pytest.raises(RequestError) as caught:
        _cifar(40, **{setting: value})
    message = str(caught.value)
    shown = value[-1] if isinstance(value, list) else value
    assert message == f"train.{setting}={shown} is never reached in train.schedule_epochs=200; give 0 to 199"


def test_a_negative_epoch_is_refused() -> None:
    with pytest.raises(RequestError, match=r"train\.lr_steps=-5 is negative; give 0 to 199"):
        _cifar(40, lr_steps=[-5])


def _all_rates(schedule: Schedule, steps: int) -> list[float]:
    return [schedule.learning_rate(epoch, step, steps) for epoch in range(schedule.epochs) for step in range(steps)]


@pytest.mark.parametrize(("epochs", "steps", "warmup"), [(10, 7, 0), (40, 3, 5), (3, 10, 20)])
def test_cosine_falls_to_zero_after_the_warm_up(epochs: int, steps: int, warmup: int) -> None:
    schedule = _cifar(epochs, kind="cosine", warmup_epochs=warmup)
    rates, length = _all_rates(schedule, steps), epochs * steps
    rising = warmup * epochs / 200 * steps
    for number, rate in enumerate(rates):
        fall = (1 + cos(pi * max(0.0, number - rising) / (length - rising))) / 2
        rise = min(1.0, (number + 1) / rising) if rising else 1.0
        assert rate == pytest.approx(0.1 * fall * rise, rel=1e-9)
    assert all(rate > 0 for rate in rates)
    assert rates[-1] < 0.1 * (pi / (length - rising)) ** 2


def test_a_later_stage_starts_its_schedule_at_its_first_epoch() -> None:
    schedule = Schedule(kind="cosine", epochs=5, lr=0.1, warmup=1, lr_steps=(), lr_factor=1, drw_start=0)
    later = replace(schedule, first_epoch=40)
    rates = [schedule.learning_rate(epoch, step, 7) for epoch in range(5) for step in range(7)]
    assert [later.learning_rate(40 + epoch, step, 7) for epoch in range(5) for step in range(7)] == rates


def test_cosine_does_not_read_the_steps() -> None:
    """Drops that lie beyond the reference length are no mistake where nothing drops."""
    schedule = _cifar(40, kind="cosine", lr_steps=[160, 300])
    assert _all_rates(schedule, 5) == _all_rates(_cifar(40, kind="cosine"), 5)


@pytest.mark.parametrize(("epochs", "steps", "share"), [(10, 10, 0.3), (4, 25, 0.25), (20, 5, 0.4)])
def test_one_cycle_is_torchs(epochs: int, steps: int, share: float) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.1, total_steps=epochs * steps, pct_start=share, cycle_momentum=False
    )
    ours = _all_rates(_cifar(epochs, kind="one-cycle", warmup_epochs=200 * share), steps)
    for rate in ours:
        assert rate == pytest.approx(theirs.get_last_lr()[0], rel=1e-9)
        optimizer.step()
        if theirs.last_epoch + 1 < epochs * steps:
            theirs.step()


@pytest.mark.parametrize("kind", ["steps", "cosine", "one-cycle"])
def test_a_warm_up_that_leaves_nothing_is_refused(kind: str) -> None:
    with pytest.raises(RequestError, match=rf"train.warmup_epochs=200 leaves nothing .* train.schedule={kind}; lower"):
        _cifar(40, kind=kind, warmup_epochs=200)


@pytest.mark.parametrize("kind", ["steps", "cosine", "one-cycle"])
@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_short_runs_have_a_rate_in_every_step(kind: str, epochs: int) -> None:
    assert all(0 < rate <= 0.1 for rate in _all_rates(_cifar(epochs, kind=kind), 1))
