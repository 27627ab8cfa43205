"""CIFAR-10 and CIFAR-100 from the official files, binary or python version, which are found locally or downloaded.

Every file is checked against its official md5 before it is read.
"""

# Shapes: N examples, H height, W width, C channels; the files store C, H, W in that order

import gzip
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elfnet.data.sources.cifar_pickle import read_pickled_dict
from elfnet.data.sources.download import check_md5, data_places, download, md5_of_bytes, md5_of_open_file
from elfnet.data.types import SOURCES, LabelledImages, Source, SourceRequest
from elfnet.errors import RequestError, WorkError

SIDE, CHANNELS = 32, 3
_PIXELS = CHANNELS * SIDE * SIDE


def read_binary(content: bytes, where: str, *, label_bytes: int) -> LabelledImages:
    """Read a file of the binary version: rows of labels and 3,072 pixels.

    Args:
        where: Name of the file, for messages.
        label_bytes: Labels per row; the last one is used (CIFAR-100 has a coarse and a fine label).
    """
    row = label_bytes + _PIXELS
    if not content or len(content) % row:
        raise WorkError(
            f"{where} has {len(content)} bytes, not a multiple of {row}; it is truncated: download it again"
        )
    rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, row)
    return LabelledImages(_to_nhwc(rows[:, label_bytes:]), rows[:, label_bytes - 1].astype(np.int64))


def read_python(content: bytes, where: str, *, label_key: str) -> LabelledImages:
    """Read a file of the python version: a pickled dictionary with `data` (N, 3072) and a list of labels.

    No code in the pickle is executed.

    Args:
        where: Name of the file, for messages.
        label_key: Key of the list of labels.
    """
    entries = read_pickled_dict(content, where=where)
    pixels, labels = entries.get("data"), entries.get(label_key)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise WorkError(f"{where} has no entry 'data' of shape (N, {_PIXELS}); use the official file")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels) or len(labels) != len(pixels):
        raise WorkError(f"{where} has no list {label_key!r} of {len(pixels)} integers; use the official file")
    return LabelledImages(_to_nhwc(pixels), np.asarray(labels, dtype=np.int64))


def _to_nhwc(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(pixels.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1))


cifar10_binary = partial(read_binary, label_bytes=1)
cifar100_binary = partial(read_binary, label_bytes=2)
cifar10_python = partial(read_python, label_key="labels")
cifar100_python = partial(read_python, label_key="fine_labels")

OFFICIAL_URL = "https://www.cs.toronto.edu/~kriz"


@dataclass(frozen=True)
class Layout:
    """One version (binary or python) of a release: an archive, its directory and the files in it."""

    archive: str
    directory: str
    train_files: tuple[str, ...]
    test_file: str
    read: Callable[[bytes, str], LabelledImages]

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all files."""
        return (*self.train_files, self.test_file)


@dataclass(frozen=True)
class Release:
    """A data set and its versions, in the order of the search; the first one is downloaded."""

    name: str
    class_names: tuple[str, ...]
    layouts: tuple[Layout, ...]


_CIFAR100_NAMES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
    man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
    pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

CIFAR10 = Release(
    name="cifar10",
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    layouts=(
        Layout(
            archive="cifar-10-binary.tar.gz",
            directory="cifar-10-batches-bin",
            train_files=tuple(f"{batch}.bin" for batch in _BATCHES),
            test_file="test_batch.bin",
            read=cifar10_binary,
        ),
        Layout(
            archive="cifar-10-python.tar.gz",
            directory="cifar-10-batches-py",
            train_files=_BATCHES,
            test_file="test_batch",
            read=cifar10_python,
        ),
    ),
)

CIFAR100 = Release(
    name="cifar100",
    class_names=tuple(_CIFAR100_NAMES.split()),
    layouts=(
        Layout(
            archive="cifar-100-binary.tar.gz",
            directory="cifar-100-binary",
            train_files=("train.bin",),
            test_file="test.bin",
            read=cifar100_binary,
        ),
        Layout(
            archive="cifar-100-python.tar.gz",
            directory="cifar-100-python",
            train_files=("train",),
            test_file="test",
            read=cifar100_python,
        ),
    ),
)

OFFICIAL_MD5 = {
    "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
    "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
    "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
    "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
    "cifar-10-batches-bin/data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "cifar-10-batches-bin/data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "cifar-10-batches-bin/data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "cifar-10-batches-bin/data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "cifar-10-batches-bin/data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "cifar-10-batches-bin/test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
    "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
    "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
    "cifar-100-binary/train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
    "cifar-100-binary/test.bin": "4499cfba6c016c1be1438163640a0898",
    "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
    "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
}


@SOURCES.register("cifar10")
def cifar10(request: SourceRequest) -> Source[LabelledImages]:
    """50,000 training and 10,000 test images of 10 classes, 32 x 32 x 3."""
    request.refuse_group_column("cifar10")
    return load_cifar(CIFAR10, request.directory)


@SOURCES.register("cifar100")
def cifar100(request: SourceRequest) -> Source[LabelledImages]:
    """50,000 training and 10,000 test images of 100 classes (fine labels), 32 x 32 x 3."""
    request.refuse_group_column("cifar100")
    return load_cifar(CIFAR100, request.directory)


def load_cifar(
    release: Release,
    directory: Path | None = None,
    *,
    md5: Mapping[str, str] = OFFICIAL_MD5,
    base_url: str = OFFICIAL_URL,
) -> Source[LabelledImages]:
    """Read a CIFAR release from `directory`, `$ELFNET_DATA` or the cache, or download it.

    Each of these may contain the unpacked directory or the archive of the binary or python version, or be one of them.

    Args:
        directory: Searched first; a download is stored there, too.
        md5: Expected checksums by archive name and by `directory/file`.
        base_url: Where archives are downloaded from.

    Raises:
        WorkError: If a file is missing, damaged or cannot be downloaded.
    """
    places = data_places(directory)
    for place in places:
        for layout in release.layouts:
            for unpacked in (place / layout.directory, place):
                if unpacked.name == layout.directory and unpacked.is_dir():
                    return _source(release, layout, _read_directory(unpacked, layout, md5))
            archive = place if place.name == layout.archive else place / layout.archive
            if archive.is_file():
                return _source(release, layout, _read_archive(archive, layout, md5))
    layout = release.layouts[0]
    if places[0].is_file():
        raise RequestError(
            f"{places[0]} is a file other than {layout.archive}; name that archive, or the directory that contains it"
        )
    archive = download(f"{base_url}/{layout.archive}", places[0] / layout.archive, md5=md5[layout.archive])
    return _source(release, layout, _read_archive(archive, layout, md5))


def _source(release: Release, layout: Layout, parts: Mapping[str, LabelledImages]) -> Source[LabelledImages]:
    train = [parts[file] for file in layout.train_files]
    return Source(
        name=release.name,
        class_names=release.class_names,
        train=LabelledImages(
            np.concatenate([part.images_NHWC for part in train]), np.concatenate([part.labels_N for part in train])
        ),
        test=parts[layout.test_file],
        horizontal_flip=True,
    )


def _read_directory(unpacked: Path, layout: Layout, md5: Mapping[str, str]) -> dict[str, LabelledImages]:
    parts = {}
    for file in layout.files:
        path = unpacked / file
        way_out = f"delete {unpacked} and run again to download {layout.archive}, or unpack that archive again"
        expected = md5[f"{layout.directory}/{file}"]
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise WorkError(f"{path} is missing (expected md5 {expected}); {way_out}") from None
        except OSError as error:
            raise WorkError(f"cannot read {path}: {error.strerror or error}; {way_out}") from error
        check_md5(path, found=md5_of_bytes(content), expected=expected, way_out=way_out)
        parts[file] = layout.read(content, str(path))
    return parts


def _read_archive(archive: Path, layout: Layout, md5: Mapping[str, str]) -> dict[str, LabelledImages]:
    """Read the files of an archive into memory; nothing is written to disk, so paths in the archive are harmless."""
    way_out = f"delete it and run again to download it, or put the official {layout.archive} in its place"
    wanted = {f"{layout.directory}/{file}": file for file in layout.files}
    parts = {}
    try:
        with archive.open("rb") as file:
            check_md5(archive, found=md5_of_open_file(file), expected=md5[layout.archive], way_out=way_out)
            file.seek(0)
            with tarfile.open(fileobj=file, mode="r|gz") as members:
                for member in members:
                    name = wanted.get(member.name)
                    stream = members.extractfile(member) if name is not None and member.isfile() else None
                    if name is not None and stream is not None:
                        parts[name] = layout.read(stream.read(), f"{archive}:{member.name}")
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, OSError) as error:
        raise WorkError(f"cannot read {archive}: {error}; {way_out}") from error
    for path, name in wanted.items():
        if name not in parts:
            raise WorkError(f"{archive} has no file {path}; {way_out}")
    return parts
