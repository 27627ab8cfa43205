"""8-bit integers against float32 on ONNX Runtime: accuracy on real test images, processor time and wall-clock time.

    python benchmarks/bench_int8.py RUN

RUN is a calibrated run; see results/README.md. Ranges and operating points of the 8-bit network come from its
calibration split, as in `elfnet export --int8`. Both networks take turns; ratios are taken within rounds.
"""

# Shapes: N images

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.point_family import Family
from elfnet.data.build import load_splits
from elfnet.data.loading.normalise import Normalisation
from elfnet.errors import RequestError
from elfnet.export.onnx import export_stages
from elfnet.export.read_run import RunParts, open_parts, split_images
from elfnet.export.variants import make_variant
from elfnet.inference.backends.onnxruntime import OnnxBackend
from elfnet.inference.engine import Answers, Engine, join_answers
from elfnet.inference.timing import Images, batches_of
from elfnet.run.directory import RunDirectory, open_run
from timing import ratio, write_results

BATCHES = (1, 8, 32, 128)
POINTS = ("full", "budget=0.6", "budget=0.8")
ROUNDS = 15


def both_times(calls: Mapping[str, Callable[[], object]]) -> dict[str, dict[str, float]]:
    """int8 to float32, taking turns: seconds of the processor (all threads), and seconds that pass."""
    processor: dict[str, list[float]] = {name: [] for name in calls}
    passed: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(ROUNDS + 2):
        for name, call in calls.items():
            began, began_processor = time.perf_counter(), time.process_time()
            call()
            if turn >= 2:
                processor[name].append(time.process_time() - began_processor)
                passed[name].append(time.perf_counter() - began)
    return {
        "processor_time_ratio": ratio(processor, "int8", "float32"),
        "time_ratio": ratio(passed, "int8", "float32"),
    }


def classified(engine: Engine, images: Images, point: str) -> Answers:
    parts = [images[start : start + max(BATCHES)] for start in range(0, len(images), max(BATCHES))]
    return join_answers([engine(part, operating_point=point) for part in parts])


def accuracy(engines: Mapping[str, Engine], images: Images, labels_N: NDArray[np.int64], point: str) -> dict[str, Any]:
    """Of both on the same images; the error is that of the paired difference."""
    answers = {name: classified(engine, images, point) for name, engine in engines.items()}
    right = {name: found.prediction_N == labels_N for name, found in answers.items()}
    difference_N = right["float32"].astype(float) - right["int8"]
    return {
        "point": point,
        **{f"accuracy_{name}": round(100 * float(right_N.mean()), 2) for name, right_N in right.items()},
        "points_lost": round(100 * float(difference_N.mean()), 2),
        "standard_error": round(100 * float(difference_N.std() / np.sqrt(len(difference_N))), 2),
        **{f"mean_cost_{name}": round(float(found.cost_N.mean()), 4) for name, found in answers.items()},
    }


def compared(run: RunDirectory, parts: RunParts) -> dict[str, Any]:
    height, width, channels = parts.preprocess.shape
    graphs = export_stages(parts.network, (channels, height, width))
    splits = load_splits(run.recipe().data)
    normalisation = Normalisation(parts.preprocess.mean, parts.preprocess.std)
    try:
        made = make_variant(run, "int8", graphs, splits, normalisation)
    except RequestError as error:
        return {"refused": str(error)}
    assert made.graphs is not None
    families: dict[str, tuple[list[bytes], Family]] = {
        "float32": (graphs, parts.family),
        "int8": (made.graphs, made.family),
    }
    engines = {name: Engine(OnnxBackend(own), family) for name, (own, family) in families.items()}
    images = split_images(run, "test", most=len(splits.test))
    times = {}
    for size in BATCHES:
        (batch,) = batches_of(images, size, most=1)
        calls = {name: partial(engine, batch, operating_point="full") for name, engine in engines.items()}
        times[f"batch {size}"] = both_times(calls)
    return {
        "calibration": made.against_float32.model_dump(mode="json"),
        "test_images": len(images),
        "accuracy": [accuracy(engines, images, splits.test.labels_N, point) for point in POINTS],
        "full_depth_times": times,
        "bytes": {name: sum(map(len, own)) for name, (own, _) in families.items()},
    }


def main(place: str) -> None:
    run = open_run(place)
    parts = open_parts(run)
    write_results(
        "int8",
        {
            "what": f"{run.root.name}: {parts.signature}",
            "rounds": ROUNDS,
            "results": compared(run, parts),
            "aims": {"points_lost": "under 0.5", "processor_time_ratio": "at most 1"},
        },
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python benchmarks/bench_int8.py RUN   (a calibrated run, see results/README.md)")
    main(sys.argv[1])
