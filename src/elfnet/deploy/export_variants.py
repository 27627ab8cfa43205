"""A bundle's network in other precisions, each with operating points of its own, fitted on what it really computes."""

# Shapes: N images, E exits, C classes

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elfnet.calibrate.family import Family
from elfnet.calibrate.family_request import request_of
from elfnet.calibrate.fit_family import fit_family
from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.data.loading.build import evaluation_batches
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.deploy.backend import Backend
from elfnet.deploy.backends import open_backend
from elfnet.deploy.bundle.measured import AgainstFloat32
from elfnet.deploy.bundle.parity import logits_of_backend
from elfnet.deploy.quantise import quantise_stages
from elfnet.deploy.stage_times import taking_turns
from elfnet.errors import RequestError
from elfnet.evaluate.run_table import evaluate_run

PRECISIONS = ("int8", "bfloat16")
MOST_POINTS_LOST = 0.5
SOME_IMAGES = 512
"""For the ranges of activations, and to be timed."""
TIMED_BATCHES = (1, 32)
BATCH = 128
# ONNX Runtime computes bfloat16 on no CPU, OpenVINO on those that have it.
BACKEND = {"int8": "onnxruntime", "bfloat16": "openvino"}


@dataclass(frozen=True, eq=False)
class MadeVariant:
    """Graphs (None: those of float32), operating points, and how it compares with float32."""

    precision: str
    graphs: list[bytes] | None
    family: Family
    against_float32: AgainstFloat32


def make_variant(
    run: RunDirectory, precision: str, graphs: Sequence[bytes], splits: Splits, normalisation: Normalisation
) -> MadeVariant:
    """The run in another precision, compared with float32 on the whole calibration split.

    int8 is refused where it is slower than float32 here, or loses half a point of accuracy or more: it would be worth
    nothing. bfloat16 is refused where the processor has none: it would be float32 under another name. Where it has,
    the loss is measured and written down.
    """
    if precision not in PRECISIONS:
        raise RequestError(f"there is no precision {precision!r} to export; choose from: {', '.join(PRECISIONS)}")
    engine = BACKEND[precision]
    plain = _open(engine, graphs, "float32")
    batches = partial(
        evaluation_batches, run.recipe().data, normalisation=normalisation, batch_size=BATCH, device=torch.device("cpu")
    )
    some = splits.calibration.take(_spread(len(splits.calibration), SOME_IMAGES))
    images_NKHW = np.concatenate([_as_array(batch) for batch in batches(some)])
    own = quantise_stages(graphs, images_NKHW) if precision == "int8" else None
    computes = _open(engine, graphs, "bfloat16") if own is None else _open(engine, own, "float32")
    # The same examples and costs; the logits are what this precision gives.
    float32 = evaluate_run(run, "calibration")
    logits_NEC = np.concatenate(
        [logits_of_backend(computes, _as_array(batch)) for batch in batches(splits.calibration)]
    )
    table = replace(float32, logits_NEC=logits_NEC)
    against = AgainstFloat32(
        images=table.examples,
        accuracy=_full_depth_accuracy(logits_NEC, table.labels_N),
        accuracy_float32=_full_depth_accuracy(float32.logits_NEC, table.labels_N),
        time_ratio={str(size): time_ratio(computes, plain, images_NKHW[:size]) for size in TIMED_BATCHES},
        backend=engine,
    )
    if precision == "int8":
        require_worth_it(against)
    family = fit_family(table, request_of(run.recipe()))
    return MadeVariant(precision, own, family, against)


def _as_array(batch: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(batch.numpy())


def _open(engine: str, graphs: Sequence[bytes], precision: str) -> Backend:
    def no_network() -> None:
        raise AssertionError("these engines run graphs")

    return open_backend(engine, graphs=lambda: graphs, network=no_network, precision=precision)  # type: ignore[arg-type]


def _spread(images: int, most: int) -> NDArray[np.int64]:
    """Positions of some of them, from everywhere: a split may be sorted by class."""
    return np.unique(np.linspace(0, images - 1, num=min(most, images)).round().astype(np.int64))


def _full_depth_accuracy(logits_NEC: NDArray[np.float32], labels_N: NDArray[np.int64]) -> float:
    return float((np.argmax(logits_NEC[:, -1], axis=1) == labels_N).mean())


def time_ratio(computes: Backend, plain: Backend, images_BKHW: NDArray[np.float32], *, rounds: int = 15) -> float:
    """Processor time of all stages at full depth against the other's: taking turns, median over the rounds.

    Not the time that passes: whether a variant is written must not depend on what else the machine does. With two
    threads and other work on the machine, that ratio had quartiles of 0.1 and 4.9 at batch 1, this one of 0.7 and 1.0.
    """

    def full_depth(backend: Backend) -> None:
        features = backend.start(images_BKHW)
        for k in range(backend.exits - 1):
            features = backend.run_without_head(k, features)
        backend.run(backend.exits - 1, features)

    calls = {"own": lambda: full_depth(computes), "plain": lambda: full_depth(plain)}
    seconds = taking_turns(calls, rounds=rounds, clock=time.process_time)
    return statistics.median(own / other for own, other in zip(seconds["own"], seconds["plain"], strict=True))


def require_worth_it(against: AgainstFloat32) -> None:
    """Refuse int8 that is slower at any of the batch sizes, or that loses too much."""
    way_out = "export without --int8"
    if against.points_lost >= MOST_POINTS_LOST:
        raise RequestError(
            f"int8 loses {against.points_lost:.2f} points of accuracy on {against.images} calibration images, "
            f"{MOST_POINTS_LOST} are too many; {way_out}"
        )
    slow = {size: ratio for size, ratio in against.time_ratio.items() if ratio > 1.0}
    if slow:
        size, ratio = max(slow.items(), key=lambda item: item[1])
        raise RequestError(f"int8 takes {ratio:.2f} times the processor time of float32 at batch {size}; {way_out}")
