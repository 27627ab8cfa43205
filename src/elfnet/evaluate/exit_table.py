"""The exit table: the logits of every exit for every example of one split, and its file format.

All operating points, curves and accuracies are computed from it without running the network again. The table names its
checkpoint and split, so that it is not used for another model or other data.
"""

# Shapes: N examples, E exits, C classes

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from elfnet.atomic import write_with
from elfnet.data.long_tail import FrequencyGroups
from elfnet.errors import RequestError, WorkError
from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.exits.policy import MEASURES, Measure, Policy, cost_to_exit
from elfnet.interrupts import deferred_interrupts
from elfnet.parsing import parse_json

FORMAT = "elfnet-exit-table"
FORMAT_VERSION = "1"

Facts = dict[str, Any]
Tensors = dict[str, NDArray[Any]]


SPLITS = ("train", "calibration", "test")
CROSS_FITTING = "cross-fitting"
"""The split of a table of training examples whose logits are of networks that were trained without them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ExitTable:
    """Logits of all exits for all examples of a split, with labels, costs and class counts.

    Attributes:
        logits_NEC: float32; for cosine heads these are the cosines.
        labels_N: int64.
        cost_E: multiply-adds up to and including exit k, every head on the way included, relative to the plain
            backbone; or another cost, such as measured time, in the same form.
        head_cost_E: cost of the head of exit k alone, in the same unit; None: unknown, and a head that is not run then
            saves nothing in the figures.
        plain_multiply_adds: multiply-adds of the plain backbone per image; a cost of 1 means this number.
        class_counts_C: *training* examples per class; they define the frequency groups.
        class_names: one name per class.
        split: `train`, `calibration` or `test`; `cross-fitting` for training examples, each with the logits of a
            network that was trained without it.
        checkpoint_sha256: of the checkpoint that computed the logits; with cross-fitting, of the final network.
        confidence_scale: default factor of the logits before the softmax at inference; a policy may have another.
        confidence_measure: default quantity that eq. 5 compares with a threshold; a policy may have another.
        many_above: classes with more training examples than this are "many".
        few_below: classes with fewer training examples than this are "few".
        experts: number of last exits that are experts; each predicts with the mean of the experts so far. 1: none.
        adjustment: subtracted from the logits before they are used; a policy may have another. It is chosen after the
            table was computed, so `save` does not write it.
        target_C: share of each class among the images that figures shall refer to; None: that of the examples. It is
            chosen after the table was computed, too.

    Example:
        >>> from elfnet import evaluate_run, open_run
        >>> table = evaluate_run(open_run("runs/first"), "test")
        >>> table.logits_NEC.shape  # 60 examples, 4 exits, 10 classes
        (60, 4, 10)
    """

    logits_NEC: NDArray[np.float32]
    labels_N: NDArray[np.int64]
    cost_E: NDArray[np.float64]
    plain_multiply_adds: int
    class_counts_C: NDArray[np.int64]
    class_names: tuple[str, ...]
    split: str
    checkpoint_sha256: str
    confidence_scale: float
    many_above: int
    few_below: int
    head_cost_E: NDArray[np.float64] | None = None
    confidence_measure: Measure = "probability"
    experts: int = 1
    adjustment: LogitAdjustment | None = None
    target_C: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        for name, dtype, dimensions in (
            ("logits_NEC", np.float32, 3),
            ("labels_N", np.int64, 1),
            ("cost_E", np.float64, 1),
            ("class_counts_C", np.int64, 1),
        ):
            array = getattr(self, name)
            if array.dtype != dtype or array.ndim != dimensions:
                raise RequestError(
                    f"exit table: {name} is {array.dtype} with {array.ndim} dimensions; "
                    f"give {np.dtype(dtype)} with {dimensions}"
                )
        examples, exits, classes = self.logits_NEC.shape
        for name, found, wanted in (
            ("labels_N", len(self.labels_N), examples),
            ("cost_E", len(self.cost_E), exits),
            ("class_counts_C", len(self.class_counts_C), classes),
            ("class_names", len(self.class_names), classes),
        ):
            if found != wanted:
                raise RequestError(
                    f"exit table: {name} has {found} entries; logits of shape {self.logits_NEC.shape} need {wanted}"
                )
        if exits < 1 or classes < 1:
            raise RequestError(
                f"exit table: logits of shape {self.logits_NEC.shape} have no exit or no class; run the model again"
            )
        if examples and not (self.labels_N.min() >= 0 and self.labels_N.max() < classes):
            raise RequestError(
                f"exit table: labels run from {self.labels_N.min()} to {self.labels_N.max()}; "
                f"with {classes} classes they must lie in 0..{classes - 1}"
            )
        if not (np.isfinite(self.cost_E).all() and (self.cost_E > 0).all() and (np.diff(self.cost_E) >= 0).all()):
            raise RequestError(f"exit table: cost_E={self.cost_E.tolist()} must be positive and grow from exit to exit")
        if self.head_cost_E is not None:
            self._check_head_costs(self.head_cost_E)
        if self.split not in (*SPLITS, CROSS_FITTING):
            raise RequestError(f"exit table: split {self.split!r} is unknown; choose from: {', '.join(SPLITS)}")
        if not self.checkpoint_sha256:
            raise RequestError(
                "exit table: checkpoint_sha256 is empty; give the hash of the checkpoint it was computed from"
            )
        if not (np.isfinite(self.confidence_scale) and self.confidence_scale > 0):
            raise RequestError(
                f"exit table: confidence_scale={self.confidence_scale!r} must be a number above 0, such as 1"
            )
        if self.confidence_measure not in MEASURES:
            raise RequestError(
                f"exit table: confidence_measure={self.confidence_measure!r} is unknown; choose from: "
                f"{', '.join(MEASURES)}"
            )
        if not 1 <= self.experts <= exits:
            raise RequestError(f"exit table: experts={self.experts} of {exits} exits; give 1 to {exits}")
        if self.adjustment is not None and (self.adjustment.exits, self.adjustment.classes) != (exits, classes):
            raise RequestError(
                f"exit table: the logit adjustment is for {self.adjustment.exits} exits and {self.adjustment.classes} "
                f"classes, the logits have {exits} and {classes}; calibrate the run again"
            )
        FrequencyGroups(many_above=self.many_above, few_below=self.few_below)  # refuses boundaries that overlap

    def _check_head_costs(self, head_cost_E: NDArray[np.float64]) -> None:
        alone_E = np.diff(self.cost_E, prepend=0.0)  # what each exit adds: its stage and its head
        if head_cost_E.shape != self.cost_E.shape or not ((head_cost_E >= 0) & (head_cost_E <= alone_E + 1e-9)).all():
            raise RequestError(
                f"exit table: head_cost_E={head_cost_E.tolist()} does not fit cost_E={self.cost_E.tolist()}; "
                f"no head costs more than its exit adds"
            )

    def logits_at(self, exit_index: int, rows: slice = slice(None)) -> NDArray[np.floating[Any]]:
        """Logits of one exit: float32, or adjusted and float64 if the table has an adjustment."""
        logits_NC: NDArray[np.floating[Any]] = np.asarray(self.logits_NEC[rows, exit_index])
        return logits_NC if self.adjustment is None else self.adjustment.apply(exit_index, logits_NC)

    def cost_under(self, policy: Policy) -> NDArray[np.float64]:
        """The cost of each exit under a policy, shape (E,). Heads that the policy does not use are not counted."""
        return cost_to_exit(self.cost_E, self.head_cost_E, policy)

    @property
    def examples(self) -> int:
        return int(self.logits_NEC.shape[0])

    @property
    def exits(self) -> int:
        return int(self.logits_NEC.shape[1])

    @property
    def classes(self) -> int:
        return int(self.logits_NEC.shape[2])

    def example_weights(self) -> NDArray[np.float64]:
        """Weight of each example, shape (N,), 1 on average, with which the classes have the shares of `target_C`."""
        if self.target_C is None:
            return np.ones(self.examples)
        size_C = np.bincount(self.labels_N, minlength=self.classes)
        weight_N: NDArray[np.float64] = (self.target_C / np.maximum(size_C, 1))[self.labels_N]
        weight_N *= self.examples / weight_N.sum()
        return weight_N

    @property
    def group_of_class(self) -> NDArray[np.int64]:
        """The frequency group of each class, shape (C,), as an index into `GROUP_NAMES`."""
        groups = FrequencyGroups(many_above=self.many_above, few_below=self.few_below)
        return np.asarray(groups.of_classes(self.class_counts_C), dtype=np.int64)

    def require_checkpoint(self, sha256: str) -> None:
        """Refuse a table of another checkpoint."""
        if self.checkpoint_sha256 != sha256:
            raise WorkError(
                f"the {self.split} exit table is of checkpoint {self.checkpoint_sha256[:12]}, not of {sha256[:12]}; "
                f"evaluate the run again"
            )

    def save(self, path: Path) -> None:
        """Write the table as one .safetensors file; the old file stays until the new one is complete."""
        tensors: Tensors = {
            "logits": self.logits_NEC,
            "labels": self.labels_N,
            "cost": self.cost_E,
            "class_counts": self.class_counts_C,
        }
        if self.head_cost_E is not None:
            tensors["head_cost"] = self.head_cost_E
        facts: Facts = {
            "plain_multiply_adds": self.plain_multiply_adds,
            "class_names": list(self.class_names),
            "split": self.split,
            "checkpoint_sha256": self.checkpoint_sha256,
            "confidence_scale": self.confidence_scale,
            "confidence_measure": self.confidence_measure,
            "many_above": self.many_above,
            "few_below": self.few_below,
            "experts": self.experts,
        }
        _write_file(path, tensors, facts)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a table that `save` wrote. Logits are memory-mapped, and the content is checked against its hash.

        Raises:
            WorkError: the file is missing, damaged, or not an exit table.
        """
        tensors, facts = _read_file(path, mapped="logits")
        try:
            return cls(
                logits_NEC=tensors["logits"],
                labels_N=tensors["labels"],
                cost_E=tensors["cost"],
                head_cost_E=tensors.get("head_cost"),
                class_counts_C=tensors["class_counts"],
                plain_multiply_adds=int(facts["plain_multiply_adds"]),
                class_names=tuple(facts["class_names"]),
                split=facts["split"],
                checkpoint_sha256=facts["checkpoint_sha256"],
                confidence_scale=float(facts["confidence_scale"]),
                # Old tables do not have these fields.
                confidence_measure=facts.get("confidence_measure", "probability"),
                many_above=int(facts["many_above"]),
                few_below=int(facts["few_below"]),
                experts=int(facts.get("experts", 1)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise WorkError(f"{path} is not an exit table: {error}; evaluate the run again") from error


def _write_file(path: Path, tensors: Tensors, facts: Facts) -> None:
    """Write tensors and facts as one .safetensors file with a hash of its content."""
    # safetensors writes the memory of an array without regard to its strides.
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    facts_json = json.dumps(facts, sort_keys=True, allow_nan=False)
    metadata = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "facts": facts_json,
        "content_sha256": _content_sha256(tensors, facts_json),
    }

    def save(temporary: Path) -> None:
        try:
            save_file(tensors, temporary, metadata=metadata)
        except SafetensorError as error:
            raise WorkError(f"cannot write {path}: {error}; the previous file, if any, is intact") from error

    write_with(path, save)


def _read_file(path: Path, *, mapped: str) -> tuple[Tensors, Facts]:
    """Read and verify the tensors and facts of a table; the tensor `mapped` is memory-mapped."""
    if not path.is_file():
        raise WorkError(f"there is no exit table at {path}; evaluate the run first")
    try:
        with deferred_interrupts(), safe_open(path, framework="numpy") as file:
            metadata: dict[str, str] = file.metadata() or {}
            _require_version(path, metadata)
            tensors: Tensors = {name: file.get_tensor(name) for name in file.keys() if name != mapped}  # noqa: SIM118
        tensors[mapped] = _memory_map(path, mapped)
        facts_json = metadata["facts"]
        if metadata["content_sha256"] != _content_sha256(tensors, facts_json):
            raise WorkError(f"{path} has been altered or damaged (its hash does not match); evaluate the run again")
        facts: Facts = parse_json(facts_json)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise WorkError(
            f"{path} is damaged or not an exit table ({_one_line(error)}); evaluate the run again"
        ) from error
    return tensors, facts


def _require_version(path: Path, metadata: dict[str, str]) -> None:
    if metadata.get("format") != FORMAT:
        raise WorkError(f"{path} is a .safetensors file but not an exit table; evaluate the run again")
    version = metadata.get("format_version")
    if version != FORMAT_VERSION:
        raise WorkError(
            f"{path} has exit table format {version!r}, this version of elfnet reads {FORMAT_VERSION!r}; "
            f"evaluate the run again"
        )


def _memory_map(path: Path, name: str) -> NDArray[Any]:
    """Map one float32 tensor. A .safetensors file is: 8 bytes header length, JSON header, tensor bytes."""
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        entry = parse_json(file.read(header_bytes))[name]
    if entry["dtype"] != "F32":
        raise ValueError(f"{name} is {entry['dtype']}, not F32")
    shape = tuple(entry["shape"])
    if 0 in shape:  # an empty file region cannot be mapped
        return np.zeros(shape, dtype=np.float32)
    offset = 8 + header_bytes + entry["data_offsets"][0]
    return np.memmap(path, dtype="<f4", mode="r", offset=offset, shape=shape)


def _content_sha256(tensors: Tensors, facts_json: str) -> str:
    digest = hashlib.sha256(facts_json.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\n{name} {array.dtype.name} {array.shape}\n".encode())
        if array.size:
            digest.update(array.data.cast("B"))
    return digest.hexdigest()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
