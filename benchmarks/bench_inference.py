"""Adaptive inference in wall-clock time: engine against its stages, against the plain network, on every backend.

    python benchmarks/bench_inference.py RUN

RUN is a calibrated run of ResNet-32 on CIFAR-10-LT; its test images are classified. The plain network has the same
weights without exits, as one graph. All that is compared with each other takes turns in one run; ratios are taken
within rounds. `overhead` is the engine's time to that of its own stage calls, the same calls on the same inputs, one
after the other with nothing in between. Stages are not repeated by themselves: a stage whose weights are still in the
cache is faster than it can be in any network that runs stage after stage.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from torch import nn

from elfnet.calibrate.point_family import Family
from elfnet.export.onnx import export_stages
from elfnet.export.read_run import open_parts, split_images
from elfnet.inference.backends.build import open_backend
from elfnet.inference.engine import Backend, Engine
from elfnet.inference.timing import Images, batches_of, time_point
from elfnet.models.staged import StagedNetwork
from elfnet.run.directory import open_run
from timing import interleaved, write_results

BACKENDS = ("onnxruntime", "openvino", "torch", "torch-compiled")
BATCHES = {1: 60, 8: 12, 32: 6, 128: 4}
POINTS = ("full", "budget=0.5", "budget=0.6", "budget=0.7", "budget=0.8", "budget=0.9", "budget=1")
ROUNDS = 5


def backends_of(network: StagedNetwork, shape: tuple[int, int, int]) -> dict[str, Backend]:
    graphs = export_stages(network, shape)
    return {name: open_backend(name, graphs=lambda: graphs, network=lambda: network) for name in BACKENDS}


def without_exits(network: StagedNetwork) -> StagedNetwork:
    """The same weights as one stage with the last head."""
    return StagedNetwork([nn.Sequential(*network.stages)], [network.heads[-1]], classes=network.classes).eval()


def fastest_plain(plain: dict[str, Backend], images: Images) -> dict[str, Any]:
    """Median milliseconds of the plain network on each backend, taking turns."""
    calls = {name: lambda b=backend: b.run(0, b.start(images)) for name, backend in plain.items()}
    seconds = interleaved(calls, rounds=9)
    return {name: round(1e3 * float(np.median(taken)), 3) for name, taken in seconds.items()}


def changing_the_point(backend: Backend, family: Family, images: Images) -> dict[str, Any]:
    """Time of set_operating_point while four callers keep the engine busy, and whether all were answered."""
    engine = Engine(backend, family)
    names = family.names()
    with ThreadPoolExecutor(4) as callers:
        calls = [callers.submit(engine, images) for _ in range(40)]
        seconds: list[float] = []
        while not all(call.done() for call in calls):
            began = time.perf_counter()
            engine.set_operating_point(names[len(seconds) % len(names)])
            seconds.append(time.perf_counter() - began)
            if len(seconds) > 10_000:
                break
        answered = sum(len(call.result().prediction_N) == len(images) for call in calls)
    milliseconds = 1e3 * np.array(seconds)
    return {
        "milliseconds_p50": round(float(np.median(milliseconds)), 4),
        "milliseconds_p99": round(float(np.percentile(milliseconds, 99)), 4),
        "changes": len(seconds),
        "calls": len(calls),
        "calls_answered": answered,
    }


def main(place: str) -> None:
    run = open_run(place)
    parts = open_parts(run)
    height, width, channels = parts.preprocess.shape
    images = split_images(run, "test")
    staged = backends_of(parts.network, (channels, height, width))
    plain = backends_of(without_exits(parts.network), (channels, height, width))
    results: dict[str, Any] = {}
    for size, most in BATCHES.items():
        batches = batches_of(images, size, most=most)
        plain_times = fastest_plain(plain, batches[0])
        quickest = min(plain_times, key=lambda name: plain_times[name])
        rows: dict[str, Any] = {}
        for name, backend in staged.items():
            rows[name] = []
            for point in POINTS:
                times = time_point(backend, parts.family, point, batches, plain=plain[name], rounds=ROUNDS)
                entry = {key: _rounded(value) for key, value in times.to_dict().items()}
                assert times.plain is not None
                entry["to_fastest_plain"] = round(times.p50 / plain_times[quickest], 3)
                rows[name].append(entry)
                print(size, name, entry, flush=True)
        results[f"batch {size}"] = {"plain_milliseconds": plain_times, "fastest_plain": quickest, "backends": rows}
    write_results(
        "inference",
        {
            "what": f"{run.root.name}: {parts.signature}",
            "rounds": ROUNDS,
            "batches_of_each_size": BATCHES,
            "overhead_is": "time of the engine to that of the same stage calls alone, stage after stage, within rounds",
            "changing_the_operating_point": changing_the_point(staged["onnxruntime"], parts.family, images[:32]),
            "results": results,
            "aims": {
                "overhead": "at most 1.20 at batch 1, 1.08 above",
                "time_ratio": "at most 0.75 at 0.6 of the FLOPs, batch 128",
                "changing_the_operating_point": "under 1 ms, no dropped request",
            },
        },
    )


def _rounded(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_rounded(entry) for entry in value]
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python benchmarks/bench_inference.py RUN   (a calibrated run, see results/README.md)")
    main(sys.argv[1])
