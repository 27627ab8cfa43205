"""Timing adaptive inference: against its own stages, against full depth, and by how hard the images are.

What the engine adds is judged against the very stage calls that it made, on the same inputs, one after the other and
with nothing in between. Each stage repeated by itself would be a flattering reference: its weights then stay in the
cache (batch 1, ResNet-32: 0.87 to 0.94 of the time), while whoever runs a network with exits runs stage after stage.
"""

# Shapes: B batch, N images of one call, K channels, H height, W width
# Shapes: B batch, K channels, H height, W width

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.family import Family
from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.inference.engine import Answers, Backend, Engine

ROUNDS = 15
WARM_UP = 3
SHORTEST = 1e-9
"""A head's time is the difference of two measurements; noise must not make it free, or less."""


def measure_stages(
    backend: Backend,
    images_BKHW: NDArray[np.float32],
    *,
    name: str,
    threads: int,
    rounds: int = ROUNDS,
    plain_exit: int | None = None,
) -> MeasuredCost:
    """Median seconds of each stage with and without its head, on one batch, one image's share.

    Every round goes through the whole network with heads and then without, stage after stage as any engine does: a
    stage repeated by itself would find its weights in the cache. Whatever else the machine does disturbs all alike.

    Args:
        backend: what computes them.
        images_BKHW: a batch of real, normalised images, as large as batches will be.
        name: what the backend is called in the answer.
        threads: what it was told to use.
        rounds: how often each is measured.
        plain_exit: the exit (from 0) that ends the plain backbone, see `Family.plain_exit`; None: the last.
    """
    inputs = [backend.start(images_BKHW)]
    for k in range(backend.exits - 1):
        inputs.append(backend.run_without_head(k, inputs[-1]))
    calls: dict[str, Callable[[], object]] = {}
    for k, features in enumerate(inputs):
        calls[f"with {k}"] = lambda k=k, features=features: backend.run(k, features)  # type: ignore[misc]
    for k, features in enumerate(inputs[:-1]):
        calls[f"alone {k}"] = lambda k=k, features=features: backend.run_without_head(k, features)  # type: ignore[misc]
    median = {call: statistics.median(taken) for call, taken in taking_turns(calls, rounds=rounds).items()}
    last = backend.exits - 1
    heads = [max(median[f"with {k}"] - median[f"alone {k}"], SHORTEST) for k in range(last)]
    stages = [median[f"alone {k}"] for k in range(last)]
    # The last stage is never run without its head, whose share is small: a pool and a matrix product.
    stages.append(median[f"with {last}"])
    heads.append(SHORTEST)
    per_image = 1.0 / len(images_BKHW)
    plain_exit = last if plain_exit is None else plain_exit
    return MeasuredCost(
        stages=tuple(seconds * per_image for seconds in stages),
        heads=tuple(seconds * per_image for seconds in heads),
        plain=(sum(stages[: plain_exit + 1]) + heads[plain_exit]) * per_image,
        backend=name,
        batch=len(images_BKHW),
        threads=threads,
    )


def taking_turns(
    calls: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warm_up: int = WARM_UP,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each call: every round makes every call once, after rounds that are not counted.

    Each round begins one call further on, so that none always comes right after the same other one, and finds what
    that one left in the cache.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for turn in range(warm_up + rounds):
        for name in order:
            began = clock()
            calls[name]()
            if turn >= warm_up:
                seconds[name].append(clock() - began)
        order = [*order[1:], order[0]]
    return seconds


Images = NDArray[np.float32]


class RecordingBackend:
    """Passes everything on, and keeps what each stage was given, so that the very same work can be timed alone."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.calls: list[Callable[[], object]] = []

    @property
    def exits(self) -> int:
        return self._backend.exits

    def start(self, images_BKHW: Images) -> Any:
        return self._backend.start(images_BKHW)

    def run(self, k: int, features: Any) -> tuple[Any, NDArray[np.float32]]:
        self.calls.append(lambda: self._backend.run(k, features))
        return self._backend.run(k, features)

    def run_without_head(self, k: int, features: Any) -> Any:
        self.calls.append(lambda: self._backend.run_without_head(k, features))
        return self._backend.run_without_head(k, features)

    def keep(self, features: Any, stay: NDArray[np.int64]) -> Any:
        return self._backend.keep(features, stay)


@dataclass(frozen=True)
class PointTimes:
    """One operating point at one batch size; milliseconds a call.

    Attributes:
        point: its name.
        batch: images a call.
        exit_share: of these images, how many of them leave at each exit.
        mean_cost: of these images, in the family's unit.
        p50, p95, p99: of the engine's calls.
        stages: of the engine's stage calls alone, median.
        plain: of the plain network's calls on the same images, median.
        time_ratio: engine to plain; None without a plain network.
        overhead: engine to its stage calls alone.
        first_exit_p50, last_exit_p50, ...: at batch 1, of images that left at the first exit taken, and at the last.

    A ratio is taken within each round, where both are disturbed alike; the median over rounds stands for a batch, and
    batches count by their time.
    """

    point: str
    batch: int
    exit_share: tuple[float, ...]
    mean_cost: float
    p50: float
    p95: float
    p99: float
    stages: float
    plain: float | None
    time_ratio: float | None
    overhead: float
    first_exit_p50: float | None
    first_exit_p99: float | None
    last_exit_p50: float | None
    last_exit_p99: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def time_point(
    backend: Backend,
    family: Family,
    point: str,
    batches: Sequence[Images],
    *,
    plain: Backend | None = None,
    rounds: int = 5,
) -> PointTimes:
    """Run every batch through the engine, its stages alone and the plain network, taking turns.

    Args:
        backend: stages and heads.
        family: operating points.
        point: which one.
        batches: normalised images, all batches of one size.
        plain: the backbone without exits as a network with one exit, computed by the same or another engine.
        rounds: how often each batch is measured.
    """
    recorder = RecordingBackend(backend)
    recording, engine = Engine(recorder, family), Engine(backend, family)
    answers: list[Answers] = []
    measured: list[dict[str, list[float]]] = []
    for images in batches:
        recorder.calls.clear()
        answers.append(recording(images, operating_point=point))
        calls: dict[str, Callable[[], object]] = {
            "engine": lambda images=images: engine(images, operating_point=point),  # type: ignore[misc]
            "stages": lambda: [call() for call in recorder.calls],
        }
        if plain is not None:
            calls["plain"] = lambda images=images: plain.run(0, plain.start(images))  # type: ignore[misc]
        measured.append(taking_turns(calls, rounds=rounds, warm_up=1))
    engine_all = [second for seconds in measured for second in seconds["engine"]]
    deepest = [int(answer.exit_N.max()) for answer in answers for _ in range(rounds)]
    by_exit = _by_exit(engine_all, deepest) if len(batches[0]) == 1 else {}
    first, last = (by_exit[min(by_exit)], by_exit[max(by_exit)]) if len(by_exit) > 1 else (None, None)
    exit_N = np.concatenate([answer.exit_N for answer in answers])
    p50, p95, p99 = _percentiles(engine_all)
    return PointTimes(
        point=point,
        batch=len(batches[0]),
        exit_share=tuple((np.bincount(exit_N, minlength=backend.exits) / len(exit_N)).tolist()),
        mean_cost=float(np.concatenate([answer.cost_N for answer in answers]).mean()),
        p50=p50,
        p95=p95,
        p99=p99,
        stages=_milliseconds(measured, "stages"),
        plain=_milliseconds(measured, "plain") if plain is not None else None,
        time_ratio=_ratio(measured, "engine", "plain") if plain is not None else None,
        overhead=_ratio(measured, "engine", "stages"),
        first_exit_p50=first[0] if first else None,
        first_exit_p99=first[2] if first else None,
        last_exit_p50=last[0] if last else None,
        last_exit_p99=last[2] if last else None,
    )


def batches_of(images_NKHW: Images, size: int, *, most: int, seed: int = 0) -> list[Images]:
    """At most `most` batches of different images, in random order, so that easy and hard ones are mixed."""
    order_N = np.random.default_rng(seed).permutation(len(images_NKHW))
    whole = min(most, len(order_N) // size)
    return [np.ascontiguousarray(images_NKHW[order_N[i * size : (i + 1) * size]]) for i in range(whole)]


def _milliseconds(measured: Sequence[Mapping[str, list[float]]], name: str) -> float:
    """Median of each batch, mean over the batches."""
    return 1e3 * statistics.mean(statistics.median(seconds[name]) for seconds in measured)


def _ratio(measured: Sequence[Mapping[str, list[float]]], name: str, reference: str) -> float:
    """Time of one relative to the other, over all batches."""
    relative = own = 0.0
    for seconds in measured:
        typical = statistics.median(seconds[reference])
        ratios = [a / b for a, b in zip(seconds[name], seconds[reference], strict=True)]
        own += typical * statistics.median(ratios)
        relative += typical
    return own / relative


def _by_exit(seconds: list[float], exit_of_call: list[int]) -> dict[int, tuple[float, float, float]]:
    return {
        taken: _percentiles([second for second, at in zip(seconds, exit_of_call, strict=True) if at == taken])
        for taken in set(exit_of_call)
    }


def _percentiles(seconds: list[float]) -> tuple[float, float, float]:
    """p50, p95 and p99 in milliseconds."""
    p50, p95, p99 = (1e3 * float(value) for value in np.percentile(seconds, [50, 95, 99]))
    return p50, p95, p99
