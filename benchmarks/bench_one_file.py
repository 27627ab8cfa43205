"""One ONNX file that stops early, against the plain network as one ONNX file, and against the staged engine.

    ELFNET_DATA=DIR python benchmarks/bench_one_file.py [FILE] [--cpu-time]

FILE is an exported file; without it, the network for CIFAR-100-LT in models/. Test images of its data are classified.
The plain network has the same weights without exits. All three take turns, one thread each; ratios are taken within
rounds, and batches are weighted by their time. All read normalised float32 images, with the same session options. Every
rival is opened several times, because where its memory lies changes the time of a session by some percent.

`--cpu-time` counts the processor time of the calling thread, for a machine with other work on it; the result says so.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper

from elfnet.calibrate.point_family import Family
from elfnet.data.build import load_splits
from elfnet.data.loading.build import evaluation_batches
from elfnet.data.loading.normalise import Normalisation
from elfnet.export.onnx_graph import cut_again, is_entrance_pool, pools_at_the_entrance
from elfnet.export.stage_nodes import in_a_row, read_stage
from elfnet.inference.backends.onnxruntime import OnnxBackend, open_session, session_options
from elfnet.inference.bundle.one_file import OneFile, open_one_file
from elfnet.inference.bundle.stage_graph import in_stage
from elfnet.inference.engine import Engine
from elfnet.inference.graph_inputs import PointInputs
from elfnet.inference.timing import Images, batches_of, taking_turns
from elfnet.pretrained.names import find_model
from elfnet.recipe.schema import Recipe
from timing import write_results

BATCHES = {1: 60, 8: 12, 32: 4, 128: 2}
COSTS = (0.4, 0.6, 0.8)
ROUNDS, OPENED = 5, 3
THREADS = 1
IMAGES = 2048
AIMS = {
    "full depth": "at most 1.03 at batch 1, 8, 32 and 128",
    "cost 0.4, 0.6, 0.8": "time at most cost + 0.10 at batch 1, cost + 0.05 above",
    "file": "at most 1.05 times the float32 weights + 256 kB",
}


def points_of(family: Family) -> list[str]:
    """Full depth, and the most accurate point within each cost."""
    return ["full", *(family.for_budget(cost).name for cost in COSTS)]


def test_images(bundle: OneFile) -> Images:
    """Random test images of the data that the network was trained on, normalised."""
    recipe = Recipe.model_validate(bundle.manifest.provenance.recipe)
    images = load_splits(recipe.data).test
    chosen = np.sort(np.random.default_rng(0).permutation(len(images))[:IMAGES])
    preprocess = bundle.manifest.preprocessing.preprocess()
    batches = evaluation_batches(
        recipe.data,
        images.take(chosen),
        Normalisation(preprocess.mean, preprocess.std),
        batch_size=128,
        device=torch.device("cpu"),
    )
    return np.concatenate([np.ascontiguousarray(batch.numpy()) for batch in batches])


def exported_stages(bundle: OneFile) -> list[bytes]:
    """The graphs of the stages as `export_stages` returns them: without the names that they have in the file."""
    graphs = []
    for k, content in enumerate(bundle.stage_graphs()):
        model, prefix = onnx.ModelProto.FromString(content), in_stage(k, "")
        graph = model.graph
        for value in (*graph.input, *graph.output, *graph.initializer):
            value.name = value.name.removeprefix(prefix)
        for node in graph.node:
            node.input[:] = [name.removeprefix(prefix) for name in node.input]
            node.output[:] = [name.removeprefix(prefix) for name in node.output]
        if not any(is_entrance_pool(node) for node in graph.node):
            maps = [value.name for value in graph.input if len(value.type.tensor_type.shape.dim) == 4]
            for pool in reversed(pools_at_the_entrance(graph.node, maps)):
                graph.node.insert(0, pool)
        del model.metadata_props[:]
        graphs.append(cut_again(model))
    return graphs


def plain_model(bundle: OneFile) -> bytes:
    """The stages in a row with the last head, as one ONNX model that returns logits."""
    stages = [read_stage(k, graph) for k, graph in enumerate(exported_stages(bundle))]
    chain, logits = in_a_row(stages)
    shared = [tensor for stage in stages for tensor in stage.shared_weights]
    last = stages[-1].logits
    last.name = logits
    last.type.tensor_type.shape.dim[0].dim_param = "batch"
    graph = helper.make_graph(chain.nodes, "plain", stages[0].features, [last], initializer=[*chain.weights, *shared])
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()
    )


def weighted_ratio(measured: Sequence[Mapping[str, list[float]]], name: str, reference: str) -> float:
    """The time of one call relative to another: the median within rounds for each batch, weighted by its time."""
    own = total = 0.0
    for seconds in measured:
        typical = statistics.median(seconds[reference])
        own += typical * statistics.median(a / b for a, b in zip(seconds[name], seconds[reference], strict=True))
        total += typical
    return own / total


class Rivals:
    """The same network three times: one file, staged, and without exits."""

    def __init__(self, bundle: OneFile, clock: Callable[[], float]) -> None:
        self.family, self.clock = bundle.family, clock
        self.inputs = PointInputs.of(bundle.family)
        model, self.input_name = bundle.with_normalised_input()
        self.one_file = open_session(model, session_options(THREADS), what="the one file")
        self.plain = open_session(plain_model(bundle), session_options(THREADS), what="the plain network")
        self.plain_input = self.plain.get_inputs()[0].name
        self.staged = Engine(OnnxBackend(exported_stages(bundle), threads=THREADS), bundle.family)

    def measure(self, point: str, batches: Sequence[Images]) -> dict[str, float]:
        given = self.inputs.values(self.family.point(point).policy)
        measured, costs = [], []
        for images in batches:
            calls = {
                "one file": lambda images=images: self.one_file.run(None, {self.input_name: images, **given}),
                "staged": lambda images=images: self.staged(images, operating_point=point),
                "plain": lambda images=images: self.plain.run(None, {self.plain_input: images}),
            }
            measured.append(taking_turns(calls, rounds=ROUNDS, warm_up=1, clock=self.clock))
            costs.append(self.staged(images, operating_point=point).cost_N)
        return {
            "mean_cost": float(np.concatenate(costs).mean()),
            "one_file_to_plain": weighted_ratio(measured, "one file", "plain"),
            "staged_to_plain": weighted_ratio(measured, "staged", "plain"),
            "plain_milliseconds": 1e3 * statistics.mean(statistics.median(each["plain"]) for each in measured),
        }


def summary(point: str, rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Medians over the times that the rivals were opened."""
    median = {name: round(statistics.median(row[name] for row in rows), 3) for name in rows[0]}
    all_ratios = sorted(round(row["one_file_to_plain"], 3) for row in rows)
    above = round(median["one_file_to_plain"] - median["mean_cost"], 3)
    return {"point": point, **median, "one_file_above_cost": above, "one_file_to_plain_each_time": all_ratios}


def size_of(bundle: OneFile) -> dict[str, float]:
    stages = [read_stage(k, graph) for k, graph in enumerate(bundle.stage_graphs())]
    parts = [tensors for stage in stages for tensors in (stage.stage.weights, stage.head.weights)]
    weights = sum(tensor.ByteSize() for tensors in parts for tensor in tensors)
    return {"bytes": len(bundle.content), "weights": weights, "to_weights": round(len(bundle.content) / weights, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default="cifar100-lt")
    parser.add_argument("--cpu-time", action="store_true")
    args = parser.parse_args()
    bundle = open_one_file(Path(find_model(args.file)))
    images = test_images(bundle)
    found: dict[tuple[int, str], list[dict[str, float]]] = {}
    for _ in range(OPENED):
        rivals = Rivals(bundle, time.thread_time if args.cpu_time else time.perf_counter)
        for size, most in BATCHES.items():
            for point in points_of(bundle.family):
                row = rivals.measure(point, batches_of(images, size, most=most))
                found.setdefault((size, point), []).append(row)
                print(size, point, {name: round(value, 3) for name, value in row.items()}, flush=True)
    results: dict[str, list[dict[str, Any]]] = {}
    for (size, point), rows in found.items():
        results.setdefault(f"batch {size}", []).append(summary(point, rows))
    load = "processor time of the calling thread, other work on the machine" if args.cpu_time else "time"
    about = {"what": f"{bundle.path.name}: {bundle.manifest.provenance.network}", "threads": THREADS, "clock": load}
    counts = {"rounds": ROUNDS, "opened": OPENED, "load_average": [round(each, 2) for each in os.getloadavg()]}
    write_results("one_file", {**about, **counts, "size": size_of(bundle), "results": results, "aims": AIMS})


if __name__ == "__main__":
    main()
