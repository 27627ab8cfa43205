"""Schedules: golden numbers, warm-up, and every length."""

import pytest

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
    assert message == f"train.{setting}={shown} is never reached in train.schedule_epochs=200; lower it"
