"""Timing adaptive inference: against its own stages, against full depth, and by how hard the images are."""

# Shapes: B batch, N images of one call, K channels, H height, W width

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.family import Family
from elfnet.deploy.backend import Backend
from elfnet.deploy.engine import Engine
from elfnet.deploy.stage_times import taking_turns

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
        mean_cost: of these images, in the family's unit.
        p50, p95, p99: of the engine's calls.
        plain: median of the plain network's calls on the same images, in the same rounds.
        time_ratio: engine to plain; None without a plain network.
        overhead: engine to the sum of its stages' own times, each measured alone on the same examples.
        first_exit_p50, last_exit_p50, ...: at batch 1, of images that left at the first exit taken, and at the last.
    """

    point: str
    batch: int
    mean_cost: float
    p50: float
    p95: float
    p99: float
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
    """Run every batch through the engine, the plain network and each stage alone, taking turns.

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
    engine_all: list[float] = []
    exit_of_call: list[int] = []
    engine_sum = stages_sum = plain_sum = cost_sum = 0.0
    for images in batches:
        recorder.calls.clear()
        answers = recording(images, operating_point=point)
        cost_sum += float(answers.cost_N.mean())
        calls: dict[str, Callable[[], object]] = {
            "engine": lambda images=images: engine(images, operating_point=point),  # type: ignore[misc]
            **{f"stage {i}": call for i, call in enumerate(recorder.calls)},
        }
        if plain is not None:
            calls["plain"] = lambda images=images: plain.run(0, plain.start(images))  # type: ignore[misc]
        seconds = taking_turns(calls, rounds=rounds, warm_up=1)
        engine_all += seconds["engine"]
        exit_of_call += [int(answers.exit_N.max())] * rounds
        engine_sum += statistics.median(seconds["engine"])
        stages_sum += sum(statistics.median(taken) for name, taken in seconds.items() if name.startswith("stage"))
        plain_sum += statistics.median(seconds["plain"]) if plain is not None else 0.0
    size = len(batches[0])
    by_exit = _by_exit(engine_all, exit_of_call) if size == 1 else {}
    first, last = (by_exit[min(by_exit)], by_exit[max(by_exit)]) if len(by_exit) > 1 else (None, None)
    p50, p95, p99 = _percentiles(engine_all)
    return PointTimes(
        point=point,
        batch=size,
        mean_cost=cost_sum / len(batches),
        p50=p50,
        p95=p95,
        p99=p99,
        plain=1e3 * plain_sum / len(batches) if plain is not None else None,
        time_ratio=engine_sum / plain_sum if plain is not None else None,
        overhead=engine_sum / stages_sum,
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


def _by_exit(seconds: list[float], exit_of_call: list[int]) -> dict[int, tuple[float, float, float]]:
    return {
        taken: _percentiles([second for second, at in zip(seconds, exit_of_call, strict=True) if at == taken])
        for taken in set(exit_of_call)
    }


def _percentiles(seconds: list[float]) -> tuple[float, float, float]:
    """p50, p95 and p99 in milliseconds."""
    p50, p95, p99 = (1e3 * float(value) for value in np.percentile(seconds, [50, 95, 99]))
    return p50, p95, p99
