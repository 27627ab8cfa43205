"""Published weights into a backbone: strictly, but for the classifier, and saying what was loaded."""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from elfnet.errors import RequestError, WorkError
from elfnet.models.published_names import SEVERAL_LAST_GROUPS, classifier_name, published_names
from elfnet.models.staged import StagedNetwork
from elfnet.models.weights_file import read_weights_file

# torchvision's DenseNet files are older than its DenseNet: they say denselayer1.norm.1 for denselayer1.norm1.
_OLD_DENSE_LAYER = re.compile(r"(.*\bdenselayer\d+\.(?:norm|conv))\.([12]\..+)")
# How many batches a batch norm saw: absent from older files, and used by nothing here.
_COUNTER = "num_batches_tracked"
MISMATCHES_SHOWN = 3


@dataclass(frozen=True)
class LoadedWeights:
    """What `load_backbone_weights` did.

    Attributes:
        file: where the weights came from.
        sha256: of the file.
        loaded: tensors that were loaded.
        expected: tensors that the backbone has, its classifier included.
        classifier: empty if the classifier was loaded too; else why it starts anew.
        ignored: tensors of the file that belong to no part of this backbone.
    """

    file: str
    sha256: str
    loaded: int
    expected: int
    classifier: str = ""
    ignored: int = 0

    def record(self) -> dict[str, str]:
        """For the run's own record."""
        return {"file": self.file, "sha256": self.sha256, "summary": str(self)}

    def __str__(self) -> str:
        parts = [f"loaded {self.loaded} of {self.expected} tensors from {self.file}"]
        if self.classifier:
            parts.append(f"classifier new ({self.classifier})")
        if self.ignored:
            parts.append(f"{self.ignored} other tensors of the file ignored")
        return "; ".join(parts)


@torch.no_grad()
def load_backbone_weights(network: StagedNetwork, file: str | Path) -> LoadedWeights:
    """Load a file of published names, or a checkpoint of a run, into the stages and the last classifier.

    Every tensor of the backbone must be there in its shape. The classifier is left as it is when it is missing or of
    another number of classes. Nothing is changed when the file does not fit.
    """
    if network.experts > 1:
        raise RequestError(SEVERAL_LAST_GROUPS)
    state = network.state_dict()
    ours = {published: name for name, published in published_names(state).items()}
    classifier = classifier_name(ours) + "."
    backbone = {name for name in ours if not name.startswith(classifier)}
    given = read_weights_file(file)
    tensors = _of_backbone(_as_published(given), backbone)

    skipped = {name for name in tensors if name.startswith(classifier)}
    reason = _classifier_misfit({n: state[ours[n]] for n in ours.keys() - backbone}, {n: tensors[n] for n in skipped})
    asked = [name for name in ours if name in backbone or not reason]
    extra = [name for name in tensors if name not in ours and name not in skipped]
    problems = _misfits({name: state[ours[name]] for name in asked}, tensors, extra=extra)
    if problems:
        raise WorkError(
            f"model.weights: {file} does not fit the network: {'; '.join(problems)}; "
            "name weights of the same model.backbone and number of image channels"
        )
    loaded = [name for name in asked if name in tensors]
    for name in loaded:
        state[ours[name]].copy_(tensors[name])
    return LoadedWeights(str(file), _sha256(file), len(loaded), len(ours), reason, len(given) - len(tensors))


def _sha256(file: str | Path) -> str:
    with Path(file).expanduser().open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _as_published(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Old names of published files, and our own names in a run's checkpoint, as published names."""
    own = {n.removeprefix("weights."): value for n, value in tensors.items() if not n.startswith("optimiser.")}
    if any(name.startswith("stages.") for name in own) and any(name.startswith("heads.") for name in own):
        return {published: own[name] for name, published in published_names(own).items()}
    renamed = {}
    for name, value in tensors.items():
        old = _OLD_DENSE_LAYER.fullmatch(name)
        renamed[old[1] + old[2] if old else name] = value
    return renamed


def _of_backbone(tensors: Mapping[str, Tensor], names: Collection[str]) -> dict[str, Tensor]:
    """The tensors that share the prefix of the backbone (`module.`, `backbone.`), without it."""
    prefixes = Counter(given.removesuffix(tail) for given in tensors for tail in _tails(given) if tail in names)
    # Names of another network may end as some of ours do; a prefix is one that most of ours are found behind.
    prefix, found = max(prefixes.items(), key=lambda item: (item[1], -len(item[0])), default=("", 0))
    if found < len(names) / 2:
        prefix = ""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _tails(name: str) -> list[str]:
    """`a.b.c`, `b.c`, `c`."""
    parts = name.split(".")
    return [".".join(parts[i:]) for i in range(len(parts))]


def _classifier_misfit(ours: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str:
    """Why the classifier of the file cannot be used; empty if it can."""
    if not given:
        return "the file has none"
    if {name: value.shape for name, value in ours.items()} == {name: value.shape for name, value in given.items()}:
        return ""
    here, there = (_classes(weights) for weights in (ours, given))
    if here != there and there:
        return f"{there:,} classes in the file, {here:,} here"
    return "of another kind in the file"


def _classes(classifier: Mapping[str, Tensor]) -> int:
    rows = [value.shape[0] for name, value in classifier.items() if name.endswith(".weight") and value.dim() == 2]
    return rows[0] if len(rows) == 1 else 0


def _misfits(ours: Mapping[str, Tensor], given: Mapping[str, Tensor], *, extra: list[str]) -> list[str]:
    """In words, the first of each kind: absent, unknown, of another shape or type, not finite."""
    common = [name for name in ours if name in given]
    absent = [name for name in ours if name not in given and not name.endswith(_COUNTER)]
    shapes = [
        f"{name} {_shape(given[name])} instead of {_shape(ours[name])}"
        for name in common
        if given[name].shape != ours[name].shape
    ]
    types = [name for name in common if given[name].is_floating_point() != ours[name].is_floating_point()]
    broken = [name for name in common if not given[name].isfinite().all()]
    kinds = (
        ("missing", absent),
        ("unknown", extra),
        ("of another shape", shapes),
        ("of another type", types),
        ("not finite", broken),
    )
    return [f"{len(found)} {kind} ({_first(found)})" for kind, found in kinds if found]


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _first(names: list[str]) -> str:
    return ", ".join(names[:MISMATCHES_SHOWN]) + (", ..." if len(names) > MISMATCHES_SHOWN else "")
