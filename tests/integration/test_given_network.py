"""A network that no recipe describes, from training to bundle, by the package's own session."""

import copy
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from elfnet.calibrate.point_family import Family
from elfnet.calibrate.run import calibrate_run, measure_run
from elfnet.data.build import load_splits
from elfnet.errors import RequestError
from elfnet.evaluate.policy_replay import replay
from elfnet.evaluate.run import evaluate_run
from elfnet.export.read_run import model_of_run
from elfnet.export.run import export_run
from elfnet.inference.model import load
from elfnet.models.attach.attach import attach_exits, from_blocks
from elfnet.models.heads import CosineClassifier
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.load import save_recipe
from elfnet.recipe.schema import Recipe
from elfnet.run.checkpoint import load_checkpoint, tensors_sha256
from elfnet.run.directory import RunDirectory
from elfnet.run.results import Results
from elfnet.train.run import train_recipe

EXAMPLE = torch.linspace(-1, 1, 2 * 32 * 32).view(2, 1, 32, 32)
Tiny = Callable[..., Recipe]


def a_model(classes: int = 10, channels: int = 1) -> nn.Module:
    """With dropout, whose random numbers must be the same after a resume."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, stride=4, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, classes),
    )


def a_network(cut: str = "2", model: nn.Module | None = None) -> StagedNetwork:
    return attach_exits(model or a_model(), [cut], example=EXAMPLE, head="mean")


@pytest.fixture(scope="module")
def recipe(tiny: Tiny) -> Recipe:
    return tiny(train__epochs=2, criterion__reweight="none")


class Trained(NamedTuple):
    run: RunDirectory
    model: nn.Module
    family: Family
    results: Results
    bundle: Path


@pytest.fixture(scope="module")
def trained(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Trained, calibrated, measured; each time with the network built anew."""
    model = a_model()
    run = train_recipe(recipe, tmp_path_factory.mktemp("given") / "run", network=a_network(model=model))
    family = calibrate_run(run, network=a_network())
    results = measure_run(run, family, network=a_network())
    # torch's exporter starts a thread that stays, so it runs here.
    network = a_network()
    made = export_run(run, run.root.parent / "it.onnx", network=network, measure_memory=None)
    same = tensors_sha256(network.state_dict()) == tensors_sha256(a_network().state_dict())
    assert same, "a network that is handed in is copied"
    return Trained(run, model, family, results, made.path)


def weights(run: RunDirectory) -> str:
    return load_checkpoint(run.checkpoint("last")).sha256


def test_it_is_trained_in_place_and_measured_as_it_is(trained: Trained, recipe: Recipe) -> None:
    before, after = dict(a_model().named_parameters()), dict(trained.model.named_parameters())
    assert all(not torch.equal(before[name], after[name]) for name in before)
    examples, data = load_splits(recipe.data).test, trained.run.info().data
    images = torch.from_numpy(examples.images_NHWC).permute(0, 3, 1, 2) / 255
    mean, std = (torch.tensor(value).view(1, -1, 1, 1) for value in (data.mean, data.std))
    with torch.no_grad():
        logits_NC = trained.model.eval()((images - mean) / std)
    table = evaluate_run(trained.run, "test", network=a_network(), again=True)
    np.testing.assert_allclose(table.logits_NEC[:, -1], logits_NC.numpy(), rtol=1e-4, atol=1e-5)
    accuracy = float((logits_NC.argmax(dim=1).numpy() == examples.labels_N).mean())
    assert trained.results.points["full"].accuracy == pytest.approx(accuracy)


def test_resumed_equals_uninterrupted(trained: Trained, recipe: Recipe, tmp_path: Path) -> None:
    train_recipe(recipe, tmp_path / "parts", network=a_network(), stop_after=lambda done: done == 1)
    other = a_network()
    with torch.no_grad():
        # Where there is a checkpoint, what the network was given with does not matter.
        for parameter in other.parameters():
            parameter.fill_(7.0)
    parts = train_recipe(recipe, tmp_path / "parts", resume=True, network=other)
    ends = [load_checkpoint(run.checkpoint("last")) for run in (parts, trained.run)]
    assert ends[0].sha256 == ends[1].sha256 == tensors_sha256(other.state_dict())
    assert tensors_sha256(ends[0].optimiser) == tensors_sha256(ends[1].optimiser)


def test_bundle_answers_as_replay_does(trained: Trained, recipe: Recipe) -> None:
    model, table = load(trained.bundle), evaluate_run(trained.run, "test")
    pixels = load_splits(recipe.data).test.images_NHWC
    left_early = 0
    for point in trained.family.points:
        model.set_operating_point(point.name)
        expected = replay(table, point.policy)
        found = [model.predict(image[..., 0])[0] for image in pixels]
        assert [answer.class_index for answer in found] == expected.prediction_N.tolist()
        assert [answer.exit - 1 for answer in found] == expected.exit_N.tolist()
        left_early += sum(answer.exit == 1 for answer in found)
    assert left_early > 0
    with pytest.raises(RequestError, match="holds no torch network; choose backend onnxruntime"):
        load(trained.bundle, backend="torch")


def test_what_needs_the_network_is_refused_without_it(trained: Trained, recipe: Recipe, tmp_path: Path) -> None:
    for needs in (
        lambda: evaluate_run(trained.run, "train"),
        lambda: export_run(trained.run, tmp_path / "x.onnx", measure_memory=None),
        lambda: model_of_run(trained.run),
    ):
        with pytest.raises(RequestError, match=r"trained a network passed as network=.*from Python with network="):
            needs()
    with pytest.raises(RequestError, match=r"resume it from Python: train_recipe\(\.\.\., resume=True, network="):
        train_recipe(recipe, trained.run.root, resume=True)
    # Tables that are there are enough for new operating points.
    assert calibrate_run(trained.run).points == trained.family.points


def test_another_network_is_refused(trained: Trained, recipe: Recipe, tmp_path: Path) -> None:
    for other in (a_network("4"), attach_exits(a_model(), ["2"], example=EXAMPLE, head="conv")):
        for needs in (
            lambda network: evaluate_run(trained.run, "test", network=network),
            lambda network: export_run(trained.run, tmp_path / "x.onnx", network=network),
            lambda network: train_recipe(recipe, trained.run.root, resume=True, network=network),
        ):
            with pytest.raises(RequestError, match=r"another network than the run in .* trained .* same cuts"):
                needs(other)


def test_a_run_of_a_recipe_takes_no_network(recipe: Recipe, tmp_path: Path) -> None:
    run = train_recipe(recipe, tmp_path / "run", stop_after=lambda done: done == 1)
    for needs in (
        lambda: evaluate_run(run, "test", network=a_network()),
        lambda: train_recipe(recipe, run.root, resume=True, network=a_network()),
    ):
        with pytest.raises(RequestError, match="has the network of its recipe; leave network= out"):
            needs()


def test_a_network_that_does_not_suit_data_or_recipe_is_refused(recipe: Recipe, tiny: Tiny, tmp_path: Path) -> None:
    colours = attach_exits(a_model(channels=3), ["2"], example=EXAMPLE.expand(2, 3, 32, 32).contiguous(), head="mean")
    ldam = tiny("elf-ldam-drw")
    plain = tiny("ce")
    published = recipe.model_copy(update={"model": recipe.model.model_copy(update={"weights": "w.safetensors"})})
    for asked, network, complaint in (
        (recipe, a_network(model=a_model(classes=4)), "the network given has 4 classes and the data 10"),
        (recipe, colours, r"does not run on the data's images of 1 x 32 x 32 \(stage 1: .*channels"),
        (
            ldam,
            a_network(),
            "expects cosines, and exit 1 of the network given has a linear classifier",
        ),
        (plain, a_network(), "model.exits=false contradicts the network given, which has 2 exits"),
        (published, a_network(), "model.weights=w.safetensors is for the recipe's own network"),
    ):
        with pytest.raises(RequestError, match=complaint):
            train_recipe(asked, tmp_path / "run", network=network)
    assert not (tmp_path / "run").exists()


def test_cosines_by_hand_train_with_ldam_and_frozen_stages_stay(tiny: Tiny, tmp_path: Path) -> None:
    model = a_model()
    network = from_blocks(
        model[:3],  # type: ignore[index]
        [model[3:6]],  # type: ignore[index]
        nn.Sequential(nn.Flatten(), CosineClassifier(256, 10)),
        [0],
        example=EXAMPLE,
        classifier="cosine",
        exit_head="mean",
    )
    network.stages.requires_grad_(False)
    before = copy.deepcopy(network.state_dict())
    train_recipe(tiny("elf-ldam-drw", train__epochs=1, train__drw_start=0), tmp_path / "run", network=network)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]) == name.startswith("stages."), name


def test_a_run_without_a_checkpoint_goes_on_from_the_same_weights_only(recipe: Recipe, tmp_path: Path) -> None:
    run = train_recipe(recipe, tmp_path / "run", network=a_network(), stop_after=lambda done: done == 1)
    whole = weights(run)
    run.checkpoint("last").unlink()
    other = a_network()
    with torch.no_grad():
        next(other.parameters()).add_(1.0)
    with pytest.raises(RequestError, match="started with other weights than network= has"):
        train_recipe(recipe, run.root, resume=True, network=other)
    train_recipe(recipe, run.root, resume=True, network=a_network(), stop_after=lambda done: done == 1)
    assert weights(run) == whole


@pytest.mark.slow
def test_two_processes_train_it_if_both_build_the_same(recipe: Recipe, tmp_path: Path) -> None:
    """Each process runs the whole script, so that each has the network."""
    save_recipe(recipe, tmp_path / "recipe.toml")
    script = tmp_path / "two.py"
    script.write_text(
        "import os, runpy, sys\n"
        "from pathlib import Path\n"
        "import torch\n"
        "from elfnet import load_recipe, train_recipe\n"
        "from elfnet.errors import RequestError\n"
        "from elfnet.train.launch import Launch\n"
        f"a_network = runpy.run_path({str(Path(__file__))!r})['a_network']\n"
        "here, rank = Path(sys.argv[1]), os.environ.get('LOCAL_RANK', '0')\n"
        "recipe, two = load_recipe(str(here / 'recipe.toml')), Launch(devices=2)\n"
        "other = a_network()\n"
        "with torch.no_grad():\n"
        "    next(other.parameters()).add_(int(rank))\n"
        "try:\n"
        "    train_recipe(recipe, here / 'run', network=other, launch=two)\n"
        "except RequestError as error:\n"
        "    (here / f'refusal-{rank}').write_text(str(error))\n"
        "train_recipe(recipe, here / 'run', network=a_network(), launch=two)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert "not the same in every process of the run; seed torch" in (tmp_path / f"refusal-{rank}").read_text()
    run = RunDirectory(tmp_path / "run")
    assert run.info().devices == 2
    assert len(run.log()) == 2
    table = evaluate_run(run, "calibration", network=a_network())
    prediction_N = table.logits_NEC[:, -1].argmax(axis=1)
    recalls = [(prediction_N[table.labels_N == c] == c).mean() for c in range(10)]
    assert run.log()[-1].calibration_balanced_accuracy == pytest.approx(np.mean(recalls), abs=1e-9)


@pytest.mark.slow
def test_the_script_in_the_documentation_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "attach-exits.md").read_text()
    (snippet,) = (body for body in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if "train_recipe" in body)
    lines = [line for line in snippet.splitlines() if line and not line.startswith(("#", "from"))]
    assert len(lines) <= 10
    script = (
        "import runpy\n"
        "import torch\n"
        f"model = runpy.run_path({str(Path(__file__))!r})['a_model']()\n"
        "example = torch.randn(4, 1, 32, 32)\n"
    )
    (tmp_path / "script.py").write_text(script + snippet)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    examples, accuracy, points = done.stdout.split()
    assert int(examples) > 100
    assert 0 <= float(accuracy) <= 1
    assert int(points) > 1
    assert (tmp_path / "runs" / "mine" / "mine.onnx").is_file()
