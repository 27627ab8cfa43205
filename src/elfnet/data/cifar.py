"""CIFAR-10 and CIFAR-100 from the official releases: found locally, else downloaded; always md5-checked."""

import gzip
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from elfnet.data.checksum import check_md5, md5_of_bytes, md5_of_open_file
from elfnet.data.cifar_releases import CIFAR10, CIFAR100, OFFICIAL_MD5, OFFICIAL_URL, Layout, Release
from elfnet.data.download import download
from elfnet.data.places import data_places
from elfnet.data.source import SOURCES, LabelledImages, Source, SourceRequest
from elfnet.errors import RequestError, WorkError


@SOURCES.register("cifar10")
def cifar10(request: SourceRequest) -> Source[LabelledImages]:
    """50,000 training and 10,000 test images of ten classes, 32 x 32 x 3."""
    request.refuse_group_column("cifar10")
    return load_cifar(CIFAR10, request.directory)


@SOURCES.register("cifar100")
def cifar100(request: SourceRequest) -> Source[LabelledImages]:
    """50,000 training and 10,000 test images of a hundred classes, 32 x 32 x 3, with the fine labels."""
    request.refuse_group_column("cifar100")
    return load_cifar(CIFAR100, request.directory)


def load_cifar(
    release: Release,
    directory: Path | None = None,
    *,
    md5: Mapping[str, str] = OFFICIAL_MD5,
    base_url: str = OFFICIAL_URL,
) -> Source[LabelledImages]:
    """Read a release from the first place that has it: `directory`, `$ELFNET_DATA`, the cache; else download it.

    A place may hold the unpacked directory or the archive, binary or python version, or be either of them.

    Args:
        md5: Expected sums by archive name and by `directory/file`.
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
            f"{places[0]} is a file, and not {layout.archive}; name that archive, or the directory that holds it"
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
        way_out = f"delete {unpacked} and run again to download {layout.archive}, or unpack that archive anew"
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
    """Read the members by name straight into memory: nothing is unpacked to the disk, so no path in it matters."""
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
