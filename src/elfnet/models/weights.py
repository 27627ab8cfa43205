"""Pretrained weights: read weights files, translate published tensor names, and load them into a backbone.

Loading is strict, except for the classifier, and reports what was loaded. Files are read without executing their
content.
"""

import hashlib
import pickle
import re
import struct
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
from elfnet.interrupts import deferred_interrupts
from elfnet.models.staged import StagedNetwork

WRAPPERS = ("state_dict", "model_state_dict", "model", "network", "net", "weights")
"""Keys under which training scripts save the state dict."""
FOLDER_FILES = ("model.safetensors", "pytorch_model.bin")
"""Names under which transformers and timm save weights in a folder; the first that exists is read."""
WEIGHTS_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
MISMATCHES_SHOWN = 3
SEVERAL_LAST_GROUPS = (
    "a network with experts has several copies of its last block group, and published weights have one; "
    "use a network with model.experts=1"
)
_LFS_POINTER = b"version https://git-lfs"
_HEAD = re.compile(r"heads\.(\d+)\.")
_CIFAR_STEM = {"0": "conv1", "1": "bn1"}
# torchvision's DenseNet files are older than its DenseNet: they have denselayer1.norm.1 instead of denselayer1.norm1.
_OLD_DENSE_LAYER = re.compile(r"(.*\bdenselayer\d+\.(?:norm|conv))\.([12]\..+)")
# transformers names the parts of a ResNet by what they do, published files by their place.
_TRANSFORMERS_STEM = re.compile(r"(?:resnet\.)?embedder\.embedder\.(convolution|normalization)\.(.+)")
_TRANSFORMERS_BLOCK = re.compile(
    r"(?:resnet\.)?encoder\.stages\.(\d+)\.layers\.(\d+)\.(?:shortcut|layer\.(\d+))\.(convolution|normalization)\.(.+)"
)
# The number of batches that a batch norm has seen. Older files do not have it, and it is not used here.
_COUNTER = "num_batches_tracked"

# What torch raises for bytes that are none of its files.
_DAMAGED = (
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
)


def read_weights_file(file: str | Path) -> dict[str, Tensor]:
    """Read all tensors of a weights file to the CPU, by name.

    Args:
        file: a safetensors file, a file of `torch.save` that holds tensors only, or a folder (see `weights_file`).

    Raises:
        RequestError: there is no such file, or a folder has none or several.
        WorkError: the file cannot be read, is damaged, or holds more than tensors.
    """
    path = weights_file(file)
    try:
        _refuse_pointer(path)
        tensors = _read_safetensors(path) if _is_safetensors(path) else _read_torch(path)
    except OSError as error:
        raise WorkError(f"model.weights: cannot read {path}: {error.strerror or error}") from error
    if not tensors:
        raise WorkError(f"model.weights: {path} holds no tensors by name; save the state dict of a network")
    return tensors


def weights_file(path: str | Path) -> Path:
    """Return the weights file of a path: itself, or the file in a folder that transformers or timm saved.

    Raises:
        RequestError: there is no such file, or a folder has none, several, or one in parts.
    """
    path = Path(path).expanduser()
    if path.is_file():
        return path
    if not path.is_dir():
        raise RequestError(f"model.weights: there is no file {path}; name a .safetensors or .pth file, or a folder")
    for name in FOLDER_FILES:
        if (path / name).is_file():
            return path / name
    if any(path.glob("*.index.json")):
        raise RequestError(f"model.weights: the weights in {path} are in parts; save them as one file")
    found = sorted(one for one in path.iterdir() if one.suffix in WEIGHTS_SUFFIXES and one.is_file())
    if len(found) != 1:
        raise RequestError(
            f"model.weights: {path} has {len(found)} weights files; name one, or a folder with {FOLDER_FILES[0]}"
        )
    return found[0]


def _refuse_pointer(path: Path) -> None:
    """Refuse what stands for a file in a clone without git-lfs, and an empty file."""
    with path.open("rb") as opened:
        start = opened.read(len(_LFS_POINTER))
    if not start:
        raise WorkError(f"model.weights: {path} is empty; download it again")
    if start == _LFS_POINTER:
        raise WorkError(f"model.weights: {path} is a git-lfs pointer, not the file itself; run 'git lfs pull'")


def _is_safetensors(path: Path) -> bool:
    """Decide by content, not by file name: the format starts with eight bytes of length, then JSON."""
    with path.open("rb") as opened:
        return opened.read(9)[8:] == b"{"


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with deferred_interrupts(), safe_open(path, framework="pt", device="cpu") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise WorkError(f"model.weights: {path} is truncated or damaged ({error}); download it again") from error


def _read_torch(path: Path) -> dict[str, Tensor]:
    try:
        # An opened file: of a path, torch takes the suffix .safetensors for its format.
        with deferred_interrupts(), path.open("rb") as opened, warnings.catch_warnings():
            # Warnings about unusual pickles. A user cannot act on them: the file is either read or refused.
            warnings.simplefilter("ignore")
            content = torch.load(opened, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # torch's message has many lines and suggests loading the file anyway, which could execute its content.
        raise WorkError(
            f"model.weights: {path} is not a weights file, or holds more than tensors, which could execute code and is "
            "not loaded; save the state dict alone, best as safetensors"
        ) from error
    except _DAMAGED as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise WorkError(
            f"model.weights: {path} is truncated or damaged ({reason}), or no weights file; download it again, or name "
            "a .safetensors or .pth file"
        ) from error
    return _state_dict_in(content)


def _state_dict_in(content: Any) -> dict[str, Tensor]:
    """Find the state dict in the content of a file, and return its tensors."""
    if not isinstance(content, dict):
        return {}
    for wrapper in WRAPPERS:
        if isinstance(content.get(wrapper), dict):
            return _state_dict_in(content[wrapper])
    return {str(name): value for name, value in content.items() if isinstance(value, Tensor)}


def published_names(ours: Collection[str]) -> dict[str, str]:
    """Map the names of a network's state dict to published names, for every tensor of the backbone.

    The last classifier is part of the backbone; early exits are not.

    Raises:
        RequestError: the network has experts.

    Example:
        >>> published_names(["stages.1.features.denseblock1.denselayer1.norm1.bias", "heads.4.classifier.bias"])
        {'stages.1.features.denseblock1.denselayer1.norm1.bias': 'features.denseblock1.denselayer1.norm1.bias',
         'heads.4.classifier.bias': 'classifier.bias'}
    """
    exits = 1 + max((int(match[1]) for match in map(_HEAD.match, ours) if match), default=0)
    stages = {name: _published_stage_name(name, plain=exits == 1) for name in ours if name.startswith("stages.")}
    last, classifier = f"heads.{exits - 1}.classifier.", classifier_name(list(stages.values()))
    found = stages | {name: f"{classifier}.{name.removeprefix(last)}" for name in ours if name.startswith(last)}
    if len(set(found.values())) < len(found):
        raise RequestError(SEVERAL_LAST_GROUPS)
    return found


def classifier_name(published: Collection[str]) -> str:
    """The name of the last classifier in files with these names; CIFAR ResNets have no fourth group."""
    if any(name.startswith("features.") for name in published):
        return "classifier"
    return "fc" if any(name.startswith("layer4.") for name in published) else "linear"


def export_backbone(network: StagedNetwork) -> dict[str, Tensor]:
    """Return the tensors of the backbone under their published names, for use in other libraries.

    Raises:
        RequestError: the network has experts.
    """
    if network.experts > 1:
        raise RequestError(SEVERAL_LAST_GROUPS)
    state = network.state_dict()
    return {published: state[ours] for ours, published in published_names(state).items()}


def _published_stage_name(name: str, *, plain: bool) -> str:
    """The published name of a tensor of a stage.

    A plain network is one stage that contains the others, so its names are `stages.0.K.rest`.
    """
    prefix = "stages.0." if plain else "stages."
    stage, _, rest = name.removeprefix(prefix).partition(".")
    part, _, tensor = rest.partition(".")
    if not part.isdigit():
        return rest
    # In CIFAR ResNets the modules of a stage have numbers instead of names.
    return f"layer{stage}.{rest}" if stage != "0" else f"{_CIFAR_STEM.get(part, part)}.{tensor}"


@dataclass(frozen=True)
class LoadedWeights:
    """The report of `load_backbone_weights`.

    Attributes:
        file: the weights file.
        sha256: the hash of the file.
        loaded: the number of tensors that were loaded.
        expected: the number of tensors of the backbone, including its classifier.
        classifier: empty if the classifier was loaded, else the reason why it was not.
        ignored: the number of tensors of the file that do not belong to the backbone.
    """

    file: str
    sha256: str
    loaded: int
    expected: int
    classifier: str = ""
    ignored: int = 0

    def __str__(self) -> str:
        parts = [f"loaded {self.loaded} of {self.expected} tensors from {self.file}"]
        if self.classifier:
            parts.append(f"classifier new ({self.classifier})")
        if self.ignored:
            parts.append(f"{self.ignored} other tensors of the file ignored")
        return "; ".join(parts)


@torch.no_grad()
def load_backbone_weights(network: StagedNetwork, file: str | Path) -> LoadedWeights:
    """Load a file with published names, or a checkpoint of a run, into the stages and the last classifier.

    The file must have every tensor of the backbone in the right shape. The classifier keeps its weights if the file has
    none, or one for another number of classes. If the file does not fit, nothing is changed.

    Raises:
        RequestError: there is no such file, or the network has experts.
        WorkError: the file cannot be read or does not fit the network.
    """
    if network.experts > 1:
        raise RequestError(SEVERAL_LAST_GROUPS)
    state = network.state_dict()
    ours = {published: name for name, published in published_names(state).items()}
    classifier = classifier_name(ours) + "."
    backbone = {name for name in ours if not name.startswith(classifier)}
    given = read_weights_file(file)
    tensors = _without_prefix(_with_published_names(given), backbone)

    skipped = {name for name in tensors if name.startswith(classifier)}
    reason = _classifier_misfit({n: state[ours[n]] for n in ours.keys() - backbone}, {n: tensors[n] for n in skipped})
    required = [name for name in ours if name in backbone or not reason]
    extra = [name for name in tensors if name not in ours and name not in skipped]
    problems = _misfits({name: state[ours[name]] for name in required}, tensors, extra=extra)
    if problems:
        raise WorkError(
            f"model.weights: {file} does not fit the network: {'; '.join(problems)}; "
            "name weights of the same model.backbone and number of image channels"
        )
    loaded = [name for name in required if name in tensors]
    for name in loaded:
        state[ours[name]].copy_(tensors[name])
    return LoadedWeights(str(file), _sha256(file), len(loaded), len(ours), reason, len(given) - len(tensors))


def fits_backbone(network: StagedNetwork, given: Mapping[str, Tensor]) -> bool:
    """Whether tensors of a file are those of the backbone of a network, by their names and shapes; values do not count.

    The classifier may be missing, or one of another number of classes.
    """
    state = network.state_dict()
    ours = {published: state[name].shape for name, published in published_names(state).items()}
    classifier = classifier_name(ours) + "."
    backbone = {name: shape for name, shape in ours.items() if not name.startswith(classifier)}
    tensors = _without_prefix(_with_published_names(given), backbone)
    found = {name: value.shape for name, value in tensors.items() if not name.startswith(classifier)}
    return {n: s for n, s in found.items() if not n.endswith(_COUNTER)} == {
        n: s for n, s in backbone.items() if not n.endswith(_COUNTER)
    }


def _sha256(file: str | Path) -> str:
    with weights_file(file).open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _with_published_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Translate the old names of published files, and the names of a run's checkpoint, to published names."""
    own = {n.removeprefix("weights."): value for n, value in tensors.items() if not n.startswith("optimiser.")}
    if any(name.startswith("stages.") for name in own) and any(name.startswith("heads.") for name in own):
        return {published: own[name] for name, published in published_names(own).items()}
    if any(_TRANSFORMERS_STEM.fullmatch(name) for name in tensors):
        return {_from_transformers(name): value for name, value in tensors.items()}
    renamed = {}
    for name, value in tensors.items():
        old = _OLD_DENSE_LAYER.fullmatch(name)
        renamed[old[1] + old[2] if old else name] = value
    return renamed


def _from_transformers(name: str) -> str:
    """The published name of a tensor of a ResNet of transformers.

    Example:
        >>> _from_transformers("resnet.encoder.stages.1.layers.0.layer.2.convolution.weight")
        'layer2.0.conv3.weight'
    """
    if (stem := _TRANSFORMERS_STEM.fullmatch(name)) is not None:
        return f"{'conv1' if stem[1] == 'convolution' else 'bn1'}.{stem[2]}"
    if (block := _TRANSFORMERS_BLOCK.fullmatch(name)) is not None:
        stage, layer, number, kind, rest = block.groups()
        if number is None:
            part = f"downsample.{0 if kind == 'convolution' else 1}"
        else:
            part = f"{'conv' if kind == 'convolution' else 'bn'}{int(number) + 1}"
        return f"layer{int(stage) + 1}.{layer}.{part}.{rest}"
    return name.replace("classifier.1.", "fc.")


def _without_prefix(tensors: Mapping[str, Tensor], names: Collection[str]) -> dict[str, Tensor]:
    """The tensors whose names start with the prefix of the backbone (`module.`, `backbone.`), without the prefix."""
    prefixes = Counter(given.removesuffix(tail) for given in tensors for tail in _suffixes(given) if tail in names)
    # Some names of another network may end like ours. The prefix must be that of at least half of our names.
    prefix, found = max(prefixes.items(), key=lambda item: (item[1], -len(item[0])), default=("", 0))
    if found < len(names) / 2:
        prefix = ""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _suffixes(name: str) -> list[str]:
    """The suffixes of a dotted name: `a.b.c`, `b.c`, `c`."""
    parts = name.split(".")
    return [".".join(parts[i:]) for i in range(len(parts))]


def _classifier_misfit(ours: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str:
    """The reason why the classifier of the file cannot be used; empty if it can."""
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
    """Describe the mismatches by kind, with the first names of each: missing, unknown, shape, dtype, not finite."""
    common = [name for name in ours if name in given]
    absent = [name for name in ours if name not in given and not name.endswith(_COUNTER)]
    shapes = [
        f"{name} {_format_shape(given[name])} instead of {_format_shape(ours[name])}"
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
    return [f"{len(found)} {kind} ({_first_names(found)})" for kind, found in kinds if found]


def _format_shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _first_names(names: list[str]) -> str:
    return ", ".join(names[:MISMATCHES_SHOWN]) + (", ..." if len(names) > MISMATCHES_SHOWN else "")
