"""What the benchmark counts and what it calls; its times are not tested."""

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.calibrate.line_search import fixed_points
from elfnet.evaluate.exit_table import ExitTable
from elfnet.inference.engine import Engine
from elfnet.inference.timing import RecordingBackend, batches_of, measure_stages, taking_turns, time_point

Features = NDArray[np.float32]


class CountingBackend:
    """Three stages that add 1; the image's first number is its confidence at every exit. Notes what is called."""

    exits = 3

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []

    def start(self, images_BKHW: Features) -> Features:
        return images_BKHW

    def run(self, k: int, features: Features) -> tuple[Features, Features]:
        self.calls.append(("with head", k, len(features)))
        sure_B = features[:, 0, 0, 0]
        return features + 1, np.stack([sure_B, -sure_B], axis=1)

    def run_without_head(self, k: int, features: Features) -> Features:
        self.calls.append(("alone", k, len(features)))
        return features + 1

    def keep(self, features: Features, stay: NDArray[np.int64]) -> Features:
        return features[stay]


@pytest.fixture
def table() -> ExitTable:
    return ExitTable(
        logits_NEC=np.zeros((4, 3, 2), dtype=np.float32),
        labels_N=np.array([0, 1, 0, 1]),
        cost_E=np.array([0.3, 0.7, 1.1]),
        head_cost_E=np.array([0.05, 0.05, 0.0]),
        plain_multiply_adds=1,
        class_counts_C=np.array([2, 2]),
        class_names=("a", "b"),
        split="calibration",
        checkpoint_sha256="0" * 64,
        confidence_scale=1.0,
        many_above=100,
        few_below=1,
    )


def images(*sure: float) -> Features:
    return np.array(sure, dtype=np.float32).reshape(-1, 1, 1, 1)


def test_the_same_work_can_be_called_again(table: ExitTable) -> None:
    backend = CountingBackend()
    recorder = RecordingBackend(backend)
    Engine(recorder, fixed_points(table, [0.9]))(images(5, 0, 5, -1), operating_point="s=0.9")
    in_engine = list(backend.calls)
    assert in_engine == [("with head", 0, 4), ("with head", 1, 2), ("with head", 2, 2)]
    backend.calls.clear()
    for call in recorder.calls:
        call()
    assert backend.calls == in_engine


def test_figures_of_a_point(table: ExitTable) -> None:
    backend = CountingBackend()
    batches = [images(5), images(0), images(0)]
    times = time_point(backend, fixed_points(table, [0.9]), "s=0.9", batches, plain=CountingBackend(), rounds=2)
    assert (times.point, times.batch) == ("s=0.9", 1)
    # One leaves at once, the others, 1 sure at the second exit and 2 at the third, at the end.
    assert times.mean_cost == pytest.approx((0.3 + 1.1 + 1.1) / 3)
    assert times.exit_share == pytest.approx((1 / 3, 0, 2 / 3))
    assert times.p50 <= times.p95 <= times.p99
    assert times.first_exit_p50 is not None
    assert times.last_exit_p50 is not None
    assert times.time_ratio is not None
    assert times.overhead > 0


def test_every_round_takes_every_call_once_and_begins_one_further_on() -> None:
    order: list[str] = []
    seconds = taking_turns(
        {name: lambda name=name: order.append(name) for name in "ab"},  # type: ignore[misc]
        rounds=2,
        warm_up=1,
    )
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert {name: len(taken) for name, taken in seconds.items()} == {"a": 2, "b": 2}


def test_stage_times_have_one_figure_for_each_part() -> None:
    backend = CountingBackend()
    cost = measure_stages(backend, images(1, 2, 3, 4), name="counting", threads=1, rounds=1)
    assert (len(cost.stages), len(cost.heads), cost.batch) == (3, 3, 4)
    assert ("alone", 2, 4) not in backend.calls
    assert min(cost.heads) > 0
    assert cost.plain == pytest.approx(sum(cost.stages) + cost.heads[-1])


def test_stages_follow_each_other_as_in_the_network() -> None:
    """A stage that is repeated finds its weights in the cache, which no network with exits does."""
    backend = CountingBackend()
    measure_stages(backend, images(1, 2), name="counting", threads=1, rounds=1)
    in_turns = [(what, k) for what, k, _ in backend.calls][-5:]
    chain = [("with head", 0), ("with head", 1), ("with head", 2), ("alone", 0), ("alone", 1)]
    assert in_turns in [chain[i:] + chain[:i] for i in range(5)]


def test_ratios_compare_neighbours_and_count_batches_by_their_time(
    table: ExitTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Seconds of engine, stages and plain in three rounds; the second round of the first batch was disturbed as a whole.
    made_up = iter(
        [
            {"engine": [2.2, 22.0, 2.2], "stages": [2.0, 20.0, 2.0], "plain": [4.0, 40.0, 4.0]},
            {"engine": [1.5, 1.5, 9.0], "stages": [1.0, 1.0, 1.0], "plain": [3.0, 3.0, 3.0]},
        ]
    )
    monkeypatch.setattr("elfnet.inference.timing.taking_turns", lambda *_args, **_settings: next(made_up))
    batches = [images(5, 0), images(0, 5)]
    family = fixed_points(table, [0.9])
    times = time_point(CountingBackend(), family, "s=0.9", batches, plain=CountingBackend(), rounds=3)
    assert times.overhead == pytest.approx((2 * 1.1 + 1 * 1.5) / 3)
    assert times.time_ratio == pytest.approx((4 * 0.55 + 3 * 0.5) / 7)
    assert (times.stages, times.plain) == pytest.approx((1500, 3500))
    assert times.exit_share == pytest.approx((0.5, 0, 0.5))


def test_batches_hold_different_images() -> None:
    batches = batches_of(images(*range(10)), 3, most=5)
    assert [len(batch) for batch in batches] == [3, 3, 3]
    assert len({float(value) for batch in batches for value in batch.ravel()}) == 9
    assert len(batches_of(images(*range(10)), 3, most=2)) == 2
    assert batches_of(images(1), 2, most=1) == []
