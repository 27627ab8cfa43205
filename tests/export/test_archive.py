"""The older bundle, a zip or a directory, still loads, and torch rebuilds its network from it."""

import json
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch

import elfnet
from elfnet.calibrate.line_search import fixed_points
from elfnet.data.build import load_splits
from elfnet.errors import WorkError
from elfnet.evaluate.run import evaluate_run
from elfnet.export import run as module
from elfnet.export.archive import ExportedArchive, export_archive
from elfnet.export.from_run import model_of_run
from elfnet.export.onnx import export_stages
from elfnet.inference.backends.torch import network_of_bundle
from elfnet.inference.bundle.manifest import MANIFEST, PeakMemory, identity_of
from elfnet.inference.bundle.read import open_bundle
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.load import load_recipe
from elfnet.run.checkpoint import load_checkpoint, tensors_sha256
from elfnet.run.directory import RunDirectory
from elfnet.train.run import train_recipe

# The zip of earlier versions; the one file is tested by the fast tests.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tiny_settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Trained, with operating points; do not write into it."""
    recipe = load_recipe("digits/elf-ce-drw", {**tiny_settings, "train.epochs": 3})
    trained = train_recipe(recipe, tmp_path_factory.mktemp("runs") / "tiny")
    fixed_points(evaluate_run(trained, "calibration"), [0.3, 0.5, 0.8]).save(trained.policy_file)
    return trained


GRAPHS: dict[str, list[bytes]] = {}


@pytest.fixture(scope="module", autouse=True)
def _graphs_are_made_once() -> Iterator[None]:
    """Tracing takes seconds; here the graphs of one network are made once, and again where a test forgets them."""

    def remembered(network: StagedNetwork, shape: tuple[int, int, int]) -> list[bytes]:
        key = tensors_sha256(network.state_dict())
        if key not in GRAPHS:
            GRAPHS[key] = export_stages(network, shape)
        return GRAPHS[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "export_stages", remembered)
        yield


@pytest.fixture(scope="module")
def exported(run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> ExportedArchive:
    return export_archive(run, tmp_path_factory.mktemp("bundles") / "tiny.elfnet")


def test_the_bundle_holds_what_it_says(run: RunDirectory, exported: ExportedArchive) -> None:
    with zipfile.ZipFile(exported.path) as archive:
        names = archive.namelist()
        manifest = json.loads(archive.read(MANIFEST))
    assert names == [MANIFEST, *(f"stages/{k}.onnx" for k in (1, 2, 3, 4)), "weights.safetensors"]
    info = run.info()
    assert tuple(manifest["class_names"]) == info.data.class_names
    assert manifest["preprocessing"]["mode"] == "L"
    assert tuple(manifest["preprocessing"]["mean"]) == info.data.mean
    assert manifest["multiply_adds"] == info.multiply_adds.to_json()
    assert manifest["provenance"]["data_fingerprint"] == info.data.fingerprint
    assert manifest["provenance"]["recipe"]["train"]["epochs"] == 3
    assert manifest["size_bytes"] == sum(file["bytes"] for file in manifest["files"].values())
    assert exported.bytes_on_disk == exported.path.stat().st_size > manifest["size_bytes"]


def test_the_weights_are_the_checkpoints(run: RunDirectory, exported: ExportedArchive) -> None:
    saved = load_checkpoint(run.checkpoint("last"))
    with zipfile.ZipFile(exported.path) as archive:
        weights = safetensors.torch.load(archive.read("weights.safetensors"))
    assert tensors_sha256(weights) == saved.sha256 == exported.manifest.provenance.checkpoint_sha256


@pytest.mark.parametrize("traced_again", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_same_run_gives_the_same_bytes(
    run: RunDirectory, exported: ExportedArchive, tmp_path: Path, traced_again: bool
) -> None:
    def fixed(_bundle: Path) -> PeakMemory:
        return PeakMemory(batch=32, bytes=1, before_loading=1)

    shutil.copytree(run.root, tmp_path / "elsewhere")
    first = export_archive(run, tmp_path / "a.elfnet", measure_memory=fixed)
    if traced_again:
        GRAPHS.clear()
    second = export_archive(RunDirectory(tmp_path / "elsewhere"), tmp_path / "b.elfnet", measure_memory=fixed)
    assert first.path.read_bytes() == second.path.read_bytes()
    assert identity_of(first.manifest) == identity_of(exported.manifest)
    assert first.manifest.files == exported.manifest.files


def test_the_loaded_model_answers_as_the_run(run: RunDirectory, exported: ExportedArchive) -> None:
    images = load_splits(run.recipe().data).test.images_NHWC
    bundled, direct = elfnet.load(exported.path, threads=1), model_of_run(run)
    assert list(bundled.operating_points) == list(direct.operating_points)
    assert bundled.class_names == direct.class_names
    for point in bundled.operating_points:
        ours = bundled.predict(images, operating_point=point)
        theirs = direct.predict(images, operating_point=point)
        same = [(a.label, a.exit, a.cost) == (b.label, b.exit, b.cost) for a, b in zip(ours, theirs, strict=True)]
        assert np.mean(same) >= 0.98  # the odd one may lie on the edge
        assert [a.confidence for a, s in zip(ours, same, strict=True) if s] == pytest.approx(
            [b.confidence for b, s in zip(theirs, same, strict=True) if s], abs=1e-4
        )


def test_the_network_comes_out_again(run: RunDirectory, exported: ExportedArchive) -> None:
    """With torch the weights of the bundle are a network to go on with."""
    images = load_splits(run.recipe().data).test.images_NHWC[:20]
    again, direct = elfnet.load(exported.path, backend="torch"), model_of_run(run)
    assert again.predict(images, operating_point="s=0.5") == direct.predict(images, operating_point="s=0.5")


def test_weights_that_do_not_fit_the_recipe(exported: ExportedArchive) -> None:
    bundle = open_bundle(exported.path)
    recipe = {**bundle.manifest.provenance.recipe, "model": {"backbone": "resnet14"}}
    other = bundle.manifest.provenance.model_copy(update={"recipe": recipe})
    with pytest.raises(WorkError, match="weights and recipe do not match"):
        network_of_bundle(replace(bundle, manifest=bundle.manifest.model_copy(update={"provenance": other})))
    other = bundle.manifest.provenance.model_copy(update={"checkpoint_sha256": "0" * 64})
    with pytest.raises(WorkError, match="not those of its checkpoint"):
        network_of_bundle(replace(bundle, manifest=bundle.manifest.model_copy(update={"provenance": other})))


def test_as_a_directory(run: RunDirectory, exported: ExportedArchive, tmp_path: Path) -> None:
    found = export_archive(run, tmp_path / "it", as_directory=True, measure_memory=None)
    assert sorted(path.name for path in found.path.iterdir()) == [MANIFEST, "stages", "weights.safetensors"]
    assert open_bundle(found.path).graphs == open_bundle(exported.path).graphs
    assert list(tmp_path.iterdir()) == [found.path]
