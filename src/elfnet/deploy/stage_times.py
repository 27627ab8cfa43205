"""How long each stage and head takes on this machine."""

# Shapes: B batch, K channels, H height, W width

import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.deploy.backend import Backend

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
