"""One network with exits against smaller plain networks: accuracy, multiply-adds and time, side by side.

    python benchmarks/bench_smaller_networks.py ELF_RUN PLAIN_RUN [PLAIN_RUN ...]

All runs are calibrated and trained on the same data. Everything takes turns on the same test images, on ONNX Runtime,
each plain network as one graph, the network with exits through the engine at several operating points. Accuracy is that
of the whole test split; percentiles are over all calls of all rounds.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from elfnet.export.onnx import export_stages
from elfnet.export.read_run import RunParts, open_parts, split_images
from elfnet.inference.backends.build import open_backend
from elfnet.inference.engine import Backend, Engine
from elfnet.inference.timing import Images, batches_of
from elfnet.run.directory import RunDirectory, open_run
from timing import interleaved, write_results

BATCHES = {1: 100, 32: 8, 128: 4}
POINTS = ("budget=0.3", "budget=0.4", "budget=0.5", "budget=0.6", "budget=0.7", "budget=0.8", "full")
ROUNDS = 5
Call = Callable[[Images], object]


def backend_of(parts: RunParts) -> Backend:
    height, width, channels = parts.preprocess.shape
    graphs = export_stages(parts.network, (channels, height, width))
    return open_backend("onnxruntime", graphs=lambda: graphs, network=lambda: parts.network)


def measured_on_test(run: RunDirectory, point: str) -> dict[str, Any]:
    """What `elfnet calibrate` measured; multiply-adds in millions."""
    results = run.results()
    found = results.points[point]
    return {
        "accuracy": round(found.accuracy, 4),
        "accuracy_by_group": found.accuracy_by_group,
        "million_multiply_adds": round(found.mean_cost * results.plain_multiply_adds / 1e6, 2),
    }


def plain_call(backend: Backend, images: Images) -> object:
    return backend.run(0, backend.start(images))


def calls_of(elf: RunDirectory, plain: list[RunDirectory]) -> tuple[dict[str, Call], dict[str, dict[str, Any]]]:
    """What is timed, and what it is worth, by name."""
    calls: dict[str, Call] = {}
    worth: dict[str, dict[str, Any]] = {}
    parts = open_parts(elf)
    engine = Engine(backend_of(parts), parts.family)
    for point in POINTS:
        name = f"{elf.root.name} {point}"
        calls[name] = partial(engine, operating_point=point)
        worth[name] = measured_on_test(elf, point)
    for run in plain:
        name = f"{run.root.name} ({run.recipe().model.backbone})"
        calls[name] = partial(plain_call, backend_of(open_parts(run)))
        worth[name] = measured_on_test(run, "full")
    return calls, worth


def times(calls: dict[str, Call], batches: list[Images]) -> dict[str, dict[str, float]]:
    """Milliseconds a call of each, all taking turns on every batch."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for images in batches:
        turn = {name: partial(call, images) for name, call in calls.items()}
        for name, taken in interleaved(turn, rounds=ROUNDS, warmup=1).items():
            seconds[name] += taken
    return {
        name: {f"p{q}": round(1e3 * float(np.percentile(taken, q)), 3) for q in (50, 95, 99)}
        for name, taken in seconds.items()
    }


def main(elf: str, *plain: str) -> None:
    runs = [open_run(place) for place in plain]
    calls, worth = calls_of(open_run(elf), runs)
    images = split_images(open_run(elf), "test")
    by_batch = {size: times(calls, batches_of(images, size, most=most)) for size, most in BATCHES.items()}
    rows = {
        name: {**found, "milliseconds": {f"batch {size}": taken[name] for size, taken in by_batch.items()}}
        for name, found in worth.items()
    }
    write_results("smaller_networks", {"engine": "onnxruntime", "rounds": ROUNDS, "batches": BATCHES, "networks": rows})


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python benchmarks/bench_smaller_networks.py ELF_RUN PLAIN_RUN [PLAIN_RUN ...]")
    main(*sys.argv[1:])
