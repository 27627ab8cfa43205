"""One ONNX file that stops early, against the plain network as one ONNX file, and against the staged engine.

    python benchmarks/bench_one_file.py RUN

RUN is a calibrated run of ResNet-32 on CIFAR-10-LT; its test images are classified. The plain network has the same
weights without exits. All three take turns; ratios are taken within rounds, and batches are weighted by their time.
All read normalised float32 images, with the same session options.
"""

import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bench_inference import without_exits
from elfnet.calibrate.family import Family
from elfnet.export.assemble import assemble
from elfnet.export.from_run import open_parts, split_images
from elfnet.export.onnx import export_stages
from elfnet.inference.backends.onnxruntime import OnnxBackend, open_session, session_options
from elfnet.inference.engine import Engine
from elfnet.inference.point_inputs import IMAGES, PointInputs
from elfnet.inference.timing import Images, batches_of, taking_turns
from elfnet.run.directory import open_run
from timing import write_results

BATCHES = {1: 60, 8: 12, 32: 6, 128: 4}
COSTS = (0.4, 0.6, 0.8)
ROUNDS = 7
AIMS = {
    "full depth": "at most 1.03 at batch 1, 8, 32 and 128",
    "cost 0.4, 0.6, 0.8": "time at most cost + 0.10 at batch 1, cost + 0.05 above",
}


def points_of(family: Family) -> list[str]:
    """Full depth, and the most accurate point within each cost."""
    return ["full", *(family.for_budget(cost).name for cost in COSTS)]


def weighted_ratio(measured: Sequence[Mapping[str, list[float]]], name: str, reference: str) -> float:
    """The time of one call relative to another: the median within rounds for each batch, weighted by its time."""
    own = total = 0.0
    for seconds in measured:
        typical = statistics.median(seconds[reference])
        own += typical * statistics.median(a / b for a, b in zip(seconds[name], seconds[reference], strict=True))
        total += typical
    return round(own / total, 3)


class Rivals:
    """The same network three times: one file, staged, and without exits."""

    def __init__(self, place: str) -> None:
        parts = open_parts(open_run(place))
        height, width, channels = parts.preprocess.shape
        graphs = export_stages(parts.network, (channels, height, width))
        (plain,) = export_stages(without_exits(parts.network), (channels, height, width))
        self.family = parts.family
        self.signature = parts.signature
        self.inputs = PointInputs.of(parts.family)
        model = assemble(graphs, parts.family, image_input="float32").SerializeToString()
        self.one_file = open_session(model, session_options(None), what="the one file")
        self.plain = OnnxBackend([plain])
        self.staged = Engine(OnnxBackend(graphs), parts.family)

    def measure(self, point: str, batches: Sequence[Images]) -> dict[str, Any]:
        given = self.inputs.values(self.family.point(point).policy)
        measured, costs = [], []
        for images in batches:
            calls = {
                "one file": lambda images=images: self.one_file.run(None, {IMAGES: images, **given}),
                "staged": lambda images=images: self.staged(images, operating_point=point),
                "plain": lambda images=images: self.plain.run(0, self.plain.start(images)),
            }
            measured.append(taking_turns(calls, rounds=ROUNDS, warm_up=1))
            costs.append(self.staged(images, operating_point=point).cost_N)
        return {
            "point": point,
            "mean_cost": round(float(np.concatenate(costs).mean()), 3),
            "one_file_to_plain": weighted_ratio(measured, "one file", "plain"),
            "staged_to_plain": weighted_ratio(measured, "staged", "plain"),
            "one_file_to_staged": weighted_ratio(measured, "one file", "staged"),
        }


def main(place: str) -> None:
    rivals = Rivals(place)
    images = split_images(open_run(place), "test")
    results = {}
    for size, most in BATCHES.items():
        batches = batches_of(images, size, most=most)
        results[f"batch {size}"] = [rivals.measure(point, batches) for point in points_of(rivals.family)]
        for row in results[f"batch {size}"]:
            print(size, row, flush=True)
    what = f"{open_run(place).root.name}: {rivals.signature}"
    write_results("one_file", {"what": what, "rounds": ROUNDS, "results": results, "aims": AIMS})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python benchmarks/bench_one_file.py RUN   (a calibrated run, see results/README.md)")
    main(sys.argv[1])
