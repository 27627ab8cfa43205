"""Whatever was done to a bundle, opening it says so in one line, and nothing of it is used."""

import io
import json
import os
import stat
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from older_bundles import manifest_text, write_bundle

from elfnet.errors import ElfnetError, RequestError, WorkError
from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.inference.bundle import read as members
from elfnet.inference.bundle.manifest import MANIFEST, Manifest
from elfnet.inference.bundle.read import open_bundle

Files = dict[str, bytes]
BundleOf = Callable[[Files], Path]


def refused(path: Path, kind: type[ElfnetError] = WorkError) -> str:
    with pytest.raises(kind) as caught:
        open_bundle(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def manifest_of(fields: dict[str, Any]) -> bytes:
    return manifest_text(Manifest.model_validate_json(json.dumps(fields)))


def test_a_whole_bundle_is_read(bundle_of: BundleOf, files: Files, family: Any) -> None:
    bundle = open_bundle(bundle_of(files))
    assert list(bundle.graphs) == [files[f"stages/{k}.onnx"] for k in (1, 2, 3)]
    assert bundle.family == family


@pytest.mark.parametrize("name", ["weights.safetensors", "stages/1.onnx", "stages/3.onnx"])
def test_one_altered_bit(bundle_of: BundleOf, files: Files, name: str) -> None:
    content = bytearray(files[name])
    content[len(content) // 2] ^= 1
    files[name] = bytes(content)
    assert f"{name} is damaged or was altered" in refused(bundle_of(files))


def test_a_shorter_and_a_longer_file(bundle_of: BundleOf, files: Files) -> None:
    files["stages/2.onnx"] += b"x"
    assert "stages/2.onnx has 1,002 bytes, not 1,001" in refused(bundle_of(files))


def test_a_missing_file(bundle_of: BundleOf, files: Files) -> None:
    del files["stages/2.onnx"]
    assert "stages/2.onnx is missing" in refused(bundle_of(files))


def test_a_file_too_many(bundle_of: BundleOf, files: Files) -> None:
    files["stages/4.onnx"] = b"surprise"
    assert "'stages/4.onnx' is not listed" in refused(bundle_of(files))


def test_operating_points_of_another_checkpoint(bundle_of: BundleOf, files: Files, manifest_fields: Any) -> None:
    manifest_fields["provenance"]["checkpoint_sha256"] = "e" * 64
    files[MANIFEST] = manifest_of(manifest_fields)
    assert "of checkpoint cccccccccccc, not of eeeeeeeeeeee" in refused(bundle_of(files))


def test_operating_points_for_other_exits(bundle_of: BundleOf, files: Files, manifest_fields: Any, table: Any) -> None:
    from dataclasses import replace

    from elfnet.calibrate.line_search import fixed_points

    shorter = replace(
        table, logits_NEC=table.logits_NEC[:, :2], cost_E=table.cost_E[:2], head_cost_E=table.head_cost_E[:2]
    )
    manifest_fields["variants"]["float32"]["family"] = fixed_points(shorter, [0.5]).to_dict()
    files[MANIFEST] = manifest_of(manifest_fields)
    assert "3 stages, but operating points for 2 exits" in refused(bundle_of(files))


def test_operating_points_that_adjust_other_classes(
    bundle_of: BundleOf, files: Files, manifest_fields: Any, table: Any
) -> None:
    from dataclasses import replace

    from elfnet.calibrate.line_search import fixed_points

    adjusted = replace(table, adjustment=LogitAdjustment((0.5,) * 3, (-1.0, -1.5, -2.0, -2.5)))
    content = fixed_points(adjusted, [0.5]).to_dict()
    manifest_fields["variants"]["float32"]["family"] = content
    files[MANIFEST] = manifest_of(manifest_fields)
    family = open_bundle(bundle_of(files)).family
    assert family.adjustment == family.points[1].policy.adjustment == adjusted.adjustment
    content["log_prior"].append(-3.0)
    files[MANIFEST] = manifest_of(manifest_fields)
    assert "has 4 classes, but its operating points adjust the logits of 5" in refused(bundle_of(files))


def test_damaged_operating_points(bundle_of: BundleOf, files: Files, manifest_fields: Any) -> None:
    manifest_fields["variants"]["float32"]["family"]["points"][0]["policy"]["thresholds"] = "low"
    files[MANIFEST] = manifest_of(manifest_fields)
    assert "operating points" in refused(bundle_of(files))


def test_an_unknown_variant(bundle_of: BundleOf, files: Files) -> None:
    with pytest.raises(RequestError, match="'int8'"):
        open_bundle(bundle_of(files), variant="int8")


def test_what_is_no_bundle(tmp_path: Path) -> None:
    assert "no bundle" in refused(tmp_path / "nowhere", RequestError)
    assert f"no {MANIFEST}" in refused(tmp_path, RequestError)
    (tmp_path / "text").write_text("hello")
    assert "not a bundle" in refused(tmp_path / "text")
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    assert f"no {MANIFEST}" in refused(tmp_path / "empty.zip")


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_zip(tmp_path: Path, files: Files, kept: float) -> None:
    path = tmp_path / "it.elfnet"
    write_bundle(path, files, as_directory=False)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    assert "truncated or damaged" in refused(path)


def test_any_damaged_byte_is_found_or_harmless(tmp_path: Path, files: Files) -> None:
    """Every 37th byte of the zip, one at a time: refused, or read as it was meant."""
    path = tmp_path / "it.elfnet"
    write_bundle(path, files, as_directory=False)
    whole = path.read_bytes()
    wanted = open_bundle(path)
    unharmed = 0
    for position in range(0, len(whole), 37):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x5A]) + whole[position + 1 :])
        with suppress(ElfnetError):
            bundle = open_bundle(path)
            unharmed += 1
            assert (bundle.manifest, bundle.graphs) == (wanted.manifest, wanted.graphs)
    # Fields of a zip that nobody reads: dates, versions, attributes.
    assert unharmed < 0.02 * len(whole) / 37 + 15


def zip_of(path: Path, entries: list[tuple[zipfile.ZipInfo | str, bytes]], **options: Any) -> Path:
    import warnings

    with zipfile.ZipFile(path, "w", **options) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of duplicate names, which are the point
        for name, content in entries:
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    "name", ["../evil", "stages/../../evil", "/etc/passwd", "C:/evil", "..\\evil", "stages//1.onnx", "./x", "a\x1bb"]
)
def test_names_that_climb_out(tmp_path: Path, files: Files, name: str) -> None:
    path = zip_of(tmp_path / "it.elfnet", [*files.items(), (name, b"evil")])
    assert "points outside the bundle" in refused(path)
    assert sorted(tmp_path.rglob("*")) == [path]


def test_a_link_in_a_zip(tmp_path: Path, files: Files) -> None:
    link = zipfile.ZipInfo("stages/1.onnx")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    del files["stages/1.onnx"]
    path = zip_of(tmp_path / "it.elfnet", [*files.items(), (link, b"/etc/passwd")])
    assert "is a link or special file" in refused(path)


def test_a_link_in_a_directory(tmp_path: Path, files: Files) -> None:
    path = tmp_path / "it.elfnet"
    write_bundle(path, files, as_directory=True)
    (path / "stages" / "1.onnx").rename(tmp_path / "elsewhere")
    (path / "stages" / "1.onnx").symlink_to(tmp_path / "elsewhere")
    assert "is a link or special file" in refused(path)


def test_a_pipe_in_a_directory_is_not_waited_for(tmp_path: Path, files: Files) -> None:
    path = tmp_path / "it.elfnet"
    write_bundle(path, files, as_directory=True)
    os.mkfifo(path / "stages" / "4.onnx")
    assert "is a link or special file" in refused(path)


def test_a_name_that_is_there_twice(tmp_path: Path, files: Files) -> None:
    path = zip_of(tmp_path / "it.elfnet", [*files.items(), ("stages/1.onnx", b"second")])
    assert "holds 'stages/1.onnx' twice" in refused(path)


def test_repacking_with_compression_and_folders_is_fine(tmp_path: Path, files: Files) -> None:
    path = zip_of(tmp_path / "it.elfnet", [("stages/", b""), *files.items()], compression=zipfile.ZIP_DEFLATED)
    assert open_bundle(path).graphs[0] == files["stages/1.onnx"]


def test_another_way_of_packing_is_refused(tmp_path: Path, files: Files) -> None:
    path = zip_of(tmp_path / "it.elfnet", list(files.items()), compression=zipfile.ZIP_LZMA)
    assert "uses an unknown compression" in refused(path)


def test_a_bomb_that_declares_its_size(tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = ("bomb", bytes(50_000_000))
    path = zip_of(tmp_path / "it.elfnet", [*files.items(), bomb], compression=zipfile.ZIP_DEFLATED)
    monkeypatch.setattr(members.ZipMembers, "open", lambda *_: pytest.fail("was unpacked"))
    assert "times its own size" in refused(path)


def test_a_bomb_that_lies_about_its_size(tmp_path: Path, files: Files) -> None:
    """Declared as the 1,000 bytes of a graph, really ten million zeros: no more than the declared are ever made."""
    real = zip_of(tmp_path / "it.elfnet", [*files.items()], compression=zipfile.ZIP_DEFLATED)
    del files["stages/1.onnx"]
    zip_of(real, [*files.items(), ("stages/1.onnx", bytes(10_000_000))], compression=zipfile.ZIP_DEFLATED)
    content = real.read_bytes()
    real.write_bytes(content.replace(struct.pack("<I", 10_000_000), struct.pack("<I", 1_000)))
    refused(real)


def test_too_many_files(tmp_path: Path, files: Files) -> None:
    path = zip_of(tmp_path / "it.elfnet", [*files.items(), *((f"f{i}", b"") for i in range(1000))])
    assert "at most 1000" in refused(path)


def test_an_encrypted_member(tmp_path: Path, files: Files) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    altered = bytearray(buffer.getvalue())
    # The flags of the first entry of the central directory: bit 0 says encrypted.
    altered[altered.index(b"PK\x01\x02") + 8] |= 1
    path = tmp_path / "it.elfnet"
    path.write_bytes(altered)
    assert "is encrypted" in refused(path)


def test_a_name_that_is_not_the_utf8_it_claims_to_be(tmp_path: Path) -> None:
    """In the header before the content, which zipfile decodes only when the file is opened."""
    path = tmp_path / "bundle.elfnet"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MANIFEST, "{}")
    content = bytearray(path.read_bytes())
    content[6:8] = (0x800).to_bytes(2, "little")
    content[30] = 0x80
    path.write_bytes(content)
    assert "is not a bundle, or is truncated or damaged" in refused(path)
