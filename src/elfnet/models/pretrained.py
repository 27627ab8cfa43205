"""Published weights into a backbone: strictly, but for the classifier, and saying what was loaded."""

import hashlib
import pickle
import re
import warnings
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from elfnet.errors import RequestError, WorkError
from elfnet.models.staged import StagedNetwork

# Where scripts put the state dict inside what they save.
WRAPPERS = ("state_dict", "model_state_dict", "model", "network", "net", "weights")


def read_weights_file(file: str | Path) -> dict[str, Tensor]:
    """Every tensor of the file on the CPU, by the name it has there."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise RequestError(f"model.weights: there is no file {path}; name a .safetensors, .pt or .pth file")
    try:
        tensors = _read_safetensors(path) if _is_safetensors(path) else _read_torch(path)
    except OSError as error:
        raise WorkError(f"model.weights: cannot read {path}: {error.strerror or error}") from error
    if not tensors:
        raise WorkError(f"model.weights: {path} holds no tensors by name; save a network's state dict in it")
    return tensors


def _is_safetensors(path: Path) -> bool:
    """By content, since names lie: eight bytes of length, then JSON."""
    with path.open("rb") as opened:
        return opened.read(9)[8:] == b"{"


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt", device="cpu") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise WorkError(f"model.weights: {path} is truncated or damaged ({error}); get it again") from error


def _read_torch(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            # About unusual pickles; they are read or refused, and either way no business of the user's.
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # Torch's text goes on for many lines and advises to load it anyway, which would execute what is in it.
        raise WorkError(
            f"model.weights: {path} is not a weights file, or holds more than tensors, which is not loaded since it "
            "could execute; save its state dict alone, best as safetensors"
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise WorkError(f"model.weights: {path} is truncated or damaged ({reason}); get it again") from error
    return _unwrapped(content)


def _unwrapped(content: Any) -> dict[str, Tensor]:
    """The tensors of a state dict, which may lie inside other things that were saved with it."""
    if not isinstance(content, dict):
        return {}
    for wrapper in WRAPPERS:
        if isinstance(content.get(wrapper), dict):
            return _unwrapped(content[wrapper])
    return {str(name): value for name, value in content.items() if isinstance(value, Tensor)}


_HEAD = re.compile(r"heads\.(\d+)\.")
SEVERAL_LAST_GROUPS = (
    "a network with experts has its last group several times, and published weights have it once; "
    "use a network with model.experts=1"
)
_CIFAR_STEM = {"0": "conv1", "1": "bn1"}


def published_names(ours: Collection[str]) -> dict[str, str]:
    """From the names of a network's state dict to published ones, for every tensor of the backbone.

    The last classifier belongs to the backbone; the early exits do not.

    Example:
        >>> published_names(["stages.1.features.denseblock1.denselayer1.norm1.bias", "heads.4.classifier.bias"])
        {'stages.1.features.denseblock1.denselayer1.norm1.bias': 'features.denseblock1.denselayer1.norm1.bias',
         'heads.4.classifier.bias': 'classifier.bias'}
    """
    exits = 1 + max((int(match[1]) for match in map(_HEAD.match, ours) if match), default=0)
    stages = {name: _of_stage(name, plain=exits == 1) for name in ours if name.startswith("stages.")}
    last, classifier = f"heads.{exits - 1}.classifier.", classifier_name(list(stages.values()))
    found = stages | {name: f"{classifier}.{name.removeprefix(last)}" for name in ours if name.startswith(last)}
    if len(set(found.values())) < len(found):
        raise RequestError(SEVERAL_LAST_GROUPS)
    return found


def classifier_name(published: Collection[str]) -> str:
    """What files with these names call the last classifier; CIFAR ResNets are those without a fourth group."""
    if any(name.startswith("features.") for name in published):
        return "classifier"
    return "fc" if any(name.startswith("layer4.") for name in published) else "linear"


def export_backbone(network: StagedNetwork) -> dict[str, Tensor]:
    """The backbone's tensors under their published names, ready for other libraries."""
    if network.experts > 1:
        raise RequestError(SEVERAL_LAST_GROUPS)
    state = network.state_dict()
    return {published: state[ours] for ours, published in published_names(state).items()}


def _of_stage(name: str, *, plain: bool) -> str:
    """A plain network is one stage that holds the others: its names are `stages.0.K.rest`."""
    prefix = "stages.0." if plain else "stages."
    stage, _, rest = name.removeprefix(prefix).partition(".")
    part, _, tensor = rest.partition(".")
    if not part.isdigit():
        return rest
    # The CIFAR ResNets number the parts of their stages.
    return f"layer{stage}.{rest}" if stage != "0" else f"{_CIFAR_STEM.get(part, part)}.{tensor}"


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
