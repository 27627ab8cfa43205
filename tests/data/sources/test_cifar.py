"""CIFAR from tiny releases in the official formats, in every place and version; damage gets one clear line."""

import hashlib
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.data.sources import cifar as cifar_module
from elfnet.data.sources.cifar import CIFAR10, CIFAR100, OFFICIAL_MD5, Layout, Release, load_cifar
from elfnet.data.types import Source
from elfnet.errors import RequestError, WorkError

ROWS = 6  # images in each file
LAYOUTS = [(release, layout) for release in (CIFAR10, CIFAR100) for layout in release.layouts]
IDS = [layout.directory for _, layout in LAYOUTS]


@pytest.fixture(autouse=True)
def no_other_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither this machine's data nor the network is within reach."""

    def refuse(url: str, destination: Path, *, md5: str) -> Path:
        raise AssertionError(f"would download {url} ({md5}) to {destination}")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ELFNET_DATA", raising=False)
    monkeypatch.setattr(cifar_module, "download", refuse)


def contents(release: Release, layout: Layout) -> dict[str, tuple[NDArray[np.uint8], list[int]]]:
    """Pixels as the files order them (channel, row, column) and labels, of each file; both versions the same."""
    rng = np.random.default_rng(0)
    return {
        file: (
            rng.integers(0, 256, (ROWS, 3072), dtype=np.uint8),
            rng.integers(0, len(release.class_names), ROWS).tolist(),
        )
        for file in layout.files
    }


def encode(release: Release, layout: Layout) -> dict[str, bytes]:
    encoded = {}
    for file, (pixels, labels) in contents(release, layout).items():
        fine = np.array(labels, np.uint8)[:, None]
        if layout.directory.endswith(("py", "python")):
            key = b"fine_labels" if release is CIFAR100 else b"labels"
            encoded[file] = pickle.dumps({b"data": pixels, key: labels, b"coarse_labels": [99] * ROWS}, protocol=2)
        else:
            coarse = [np.full_like(fine, 19)] if release is CIFAR100 else []
            encoded[file] = np.concatenate([*coarse, fine, pixels], axis=1).tobytes()
    return encoded


def unpack(release: Release, layout: Layout, place: Path) -> dict[str, str]:
    """Write the unpacked directory; return its md5 table."""
    (place / layout.directory).mkdir(parents=True)
    table = {}
    for file, content in encode(release, layout).items():
        (place / layout.directory / file).write_bytes(content)
        table[f"{layout.directory}/{file}"] = hashlib.md5(content).hexdigest()
    return table


def pack(release: Release, layout: Layout, place: Path, *, without: str = "") -> dict[str, str]:
    """Write the archive, with members that a careless reader would put elsewhere; return its md5 table."""
    place.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        files = {f"{layout.directory}/{file}": content for file, content in encode(release, layout).items()}
        for name, content in ({"../escaped": b"x", f"{layout.directory}/readme.html": b"y"} | files).items():
            if not without or not name.endswith(without):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    (place / layout.archive).write_bytes(buffer.getvalue())
    return {layout.archive: hashlib.md5(buffer.getvalue()).hexdigest()}


def assert_is_the_release(source: Source, release: Release, layout: Layout) -> None:
    expected = contents(release, layout)
    assert source.class_names == release.class_names
    assert source.horizontal_flip
    assert source.test is not None
    assert source.train.labels_N.tolist() == [label for file in layout.train_files for label in expected[file][1]]
    assert source.test.labels_N.tolist() == expected[layout.test_file][1]
    for index, row, column, channel in [(0, 0, 0, 0), (3, 5, 30, 2), (ROWS - 1, 31, 7, 1)]:
        place = channel * 1024 + row * 32 + column
        for images, file in [(source.train, layout.train_files[0]), (source.test, layout.test_file)]:
            assert images.images_NHWC[index, row, column, channel] == expected[file][0][index, place]
    last = source.train.images_NHWC[-ROWS:].transpose(0, 3, 1, 2).reshape(ROWS, 3072)
    assert np.array_equal(last, expected[layout.train_files[-1]][0])
    assert source.train.images_NHWC.flags.c_contiguous


@pytest.mark.parametrize(("release", "layout"), LAYOUTS, ids=IDS)
def test_unpacked_directories(release: Release, layout: Layout, tmp_path: Path) -> None:
    md5 = unpack(release, layout, tmp_path)
    assert_is_the_release(load_cifar(release, tmp_path, md5=md5), release, layout)
    assert_is_the_release(load_cifar(release, tmp_path / layout.directory, md5=md5), release, layout)


@pytest.mark.parametrize(("release", "layout"), LAYOUTS, ids=IDS)
def test_archives_are_read_without_unpacking(release: Release, layout: Layout, tmp_path: Path) -> None:
    place = tmp_path / "data"
    md5 = pack(release, layout, place)
    assert_is_the_release(load_cifar(release, place, md5=md5), release, layout)
    assert_is_the_release(load_cifar(release, place / layout.archive, md5=md5), release, layout)
    assert [path.name for path in place.iterdir()] == [layout.archive]
    assert not (tmp_path / "escaped").exists()


def test_another_file_is_no_place(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("")
    with pytest.raises(RequestError, match=r"notes.txt is a file other than cifar-10-binary.tar.gz; name that archive"):
        load_cifar(CIFAR10, other)


def test_the_places_are_searched_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = CIFAR10.layouts[0]
    named, cache = tmp_path / "named", tmp_path / "cache" / "elfnet"
    md5 = pack(CIFAR10, layout, cache)
    assert_is_the_release(load_cifar(CIFAR10, tmp_path / "given", md5=md5), CIFAR10, layout)
    monkeypatch.setenv("ELFNET_DATA", str(named))
    md5 |= unpack(CIFAR10, layout, named)
    (cache / layout.archive).write_bytes(b"never looked at, as $ELFNET_DATA comes first")
    assert_is_the_release(load_cifar(CIFAR10, tmp_path / "given", md5=md5), CIFAR10, layout)


@pytest.mark.parametrize("release", [CIFAR10, CIFAR100], ids=lambda release: release.name)
def test_what_is_nowhere_is_downloaded_to_the_first_place(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = release.layouts[0]
    served, given = tmp_path / "served", tmp_path / "given"
    table = pack(release, layout, served)
    asked = []

    def fetch(url: str, destination: Path, *, md5: str) -> Path:
        asked.append((url, destination, md5))
        destination.parent.mkdir()
        return (served / layout.archive).rename(destination)

    monkeypatch.setattr(cifar_module, "download", fetch)
    assert_is_the_release(load_cifar(release, given, md5=table), release, layout)
    assert_is_the_release(load_cifar(release, given, md5=table), release, layout)  # found the second time
    url = f"https://www.cs.toronto.edu/~kriz/{layout.archive}"
    assert asked == [(url, given / layout.archive, table[layout.archive])]


@pytest.mark.parametrize(("release", "layout"), LAYOUTS, ids=IDS)
def test_a_truncated_or_altered_file_is_named_with_both_sums(release: Release, layout: Layout, tmp_path: Path) -> None:
    md5 = unpack(release, layout, tmp_path)
    file = tmp_path / layout.directory / layout.test_file
    whole = file.read_bytes()
    for damaged in (whole[:-1], bytes([whole[0] ^ 1]) + whole[1:], b""):
        file.write_bytes(damaged)
        with pytest.raises(WorkError, match="truncated or altered") as caught:
            load_cifar(release, tmp_path, md5=md5)
        found, expected = hashlib.md5(damaged).hexdigest(), hashlib.md5(whole).hexdigest()
        for part in (str(file), found, expected, layout.archive):
            assert part in str(caught.value)
        assert "\n" not in str(caught.value)
    assert file.exists()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    layout = CIFAR10.layouts[0]
    md5 = unpack(CIFAR10, layout, tmp_path)
    (tmp_path / layout.directory / "data_batch_3.bin").unlink()
    with pytest.raises(WorkError, match=r"data_batch_3\.bin is missing \(expected md5 [0-9a-f]{32}\); delete"):
        load_cifar(CIFAR10, tmp_path, md5=md5)


def test_a_damaged_archive_is_named_and_kept(tmp_path: Path) -> None:
    layout = CIFAR100.layouts[1]
    md5 = pack(CIFAR100, layout, tmp_path)
    archive = tmp_path / layout.archive
    archive.write_bytes(archive.read_bytes()[:-20])
    with pytest.raises(WorkError, match=rf"{layout.archive} is truncated or altered: md5 .*{md5[layout.archive]}"):
        load_cifar(CIFAR100, tmp_path, md5=md5)
    assert archive.exists()


def test_an_archive_that_does_not_hold_what_it_should(tmp_path: Path) -> None:
    layout = CIFAR10.layouts[0]
    md5 = pack(CIFAR10, layout, tmp_path, without="data_batch_2.bin")
    with pytest.raises(WorkError, match=r"has no file cifar-10-batches-bin/data_batch_2\.bin"):
        load_cifar(CIFAR10, tmp_path, md5=md5)
    for content in (b"no archive at all", (tmp_path / layout.archive).read_bytes()[:-2000]):
        (tmp_path / layout.archive).write_bytes(content)
        with pytest.raises(WorkError, match=rf"cannot read .*{layout.archive}"):
            load_cifar(CIFAR10, tmp_path, md5={layout.archive: hashlib.md5(content).hexdigest()})


@pytest.mark.parametrize(("release", "layout"), LAYOUTS, ids=IDS)
def test_a_file_with_the_right_sum_and_the_wrong_content(release: Release, layout: Layout, tmp_path: Path) -> None:
    md5 = unpack(release, layout, tmp_path)
    for content in (b"\0" * 100, pickle.dumps({b"data": 3}), pickle.dumps({b"data": np.zeros((2, 3072), np.uint8)}, 2)):
        (tmp_path / layout.directory / layout.test_file).write_bytes(content)
        key = f"{layout.directory}/{layout.test_file}"
        with pytest.raises(WorkError, match=layout.test_file):
            load_cifar(release, tmp_path, md5=md5 | {key: hashlib.md5(content).hexdigest()})


def test_a_label_out_of_range_is_named(tmp_path: Path) -> None:
    layout = CIFAR10.layouts[0]
    md5 = unpack(CIFAR10, layout, tmp_path)
    file = tmp_path / layout.directory / "data_batch_1.bin"
    content = bytearray(file.read_bytes())
    content[3 * 3073] = 12
    file.write_bytes(content)
    md5[f"{layout.directory}/data_batch_1.bin"] = hashlib.md5(content).hexdigest()
    with pytest.raises(WorkError, match=r"cifar10 train: label 12 out of range 0\.\.9 at position 3"):
        load_cifar(CIFAR10, tmp_path, md5=md5)


def test_every_official_file_has_a_sum() -> None:
    for release, layout in LAYOUTS:
        assert all(f"{layout.directory}/{file}" in OFFICIAL_MD5 for file in layout.files)
        assert layout.archive in OFFICIAL_MD5
        assert len(set(release.class_names)) == len(release.class_names)
    assert len(OFFICIAL_MD5) == 4 + 6 + 6 + 2 + 2
    assert (len(CIFAR10.class_names), len(CIFAR100.class_names)) == (10, 100)
    assert (CIFAR10.class_names[3], CIFAR100.class_names[99]) == ("cat", "worm")
