"""One training step of each method beside a literal loop of its paper's equations, in float64.

The package's side is what a run uses: the recipe's loss, class weights, forward pass, mixing, optimizer and schedule in
the trainer. The oracle's side shares the layers of the network only.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import oracles
import pytest
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn

from elfnet.data.loading.feed import Partners, TrainingBatch
from elfnet.data.long_tail import head_classes
from elfnet.losses import DeferredReweighting, class_weights
from elfnet.methods.mixing import Mixup
from elfnet.methods.refit.build import TRAINED, freeze_what_stays
from elfnet.models.build import network_of
from elfnet.models.staged import StagedNetwork
from elfnet.models.two_branches import TwoBranchHead
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import stages_of
from elfnet.run.log import EpochRecord
from elfnet.train.example_pruning import ExitHistory, Pruning, PruningSettings
from elfnet.train.forward import forward_and_mixing
from elfnet.train.loop import Trainer
from elfnet.train.optimizer import build_optimizer
from elfnet.train.prepare import build_objective

COUNTS = [60, 24, 9, 4]
BATCH, DECAY = 6, 2e-4
WEIGHTED = 165
"""An epoch of 200 with class weights, after the first drop of the learning rate."""


@pytest.fixture(autouse=True)
def _float64_by_default() -> Iterator[None]:
    """Fabric converts the outputs of a network to the default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class OneStep:
    """A feed with a single batch of float64 images."""

    batch_size = BATCH

    def __init__(self, batch: TrainingBatch) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return 1

    def steps(self, epoch: int) -> int:  # noqa: ARG002 (part of the interface)
        return 1

    def epoch(self, epoch: int) -> Iterator[TrainingBatch]:  # noqa: ARG002
        yield self._batch

    def close(self) -> None: ...

    def skipped(self) -> int:
        return 0


def _batch(examples: int = BATCH) -> TrainingBatch:
    generator = torch.Generator().manual_seed(3)
    images = torch.randn(examples, 3, 8, 8, generator=generator, dtype=torch.float64)
    labels_b = torch.randint(len(COUNTS), (examples,), generator=generator)
    return TrainingBatch(0, images, labels_b, torch.arange(examples))


def _recipe(method: str) -> Recipe:
    settings = {"model.backbone": "resnet8", "model.head_filters": 4, "train.precision": "float32"}
    if method.startswith(("crt", "lws")):
        settings["refit.run"] = "a-run"
    return load_recipe(f"cifar10-lt/{method}", settings)


def _network(recipe: Recipe) -> StagedNetwork:
    torch.manual_seed(0)
    network = network_of(recipe.model, classes=len(COUNTS), image_channels=3).double()
    if recipe.refit.method in TRAINED:
        freeze_what_stays(recipe.refit.method, network)
    return network


def _step(
    recipe: Recipe, network: StagedNetwork, batch: TrainingBatch, epoch: int, pruning: Pruning | None = None
) -> EpochRecord:
    """Train one step as a run does; returns its log record."""
    (stage,) = stages_of(recipe)
    objective = build_objective(stage, COUNTS, network)
    forward, mixing = forward_and_mixing(recipe, network, objective.loss.rule, batch.labels_b.numpy())
    train, criterion = recipe.train, recipe.criterion
    # A run has its class weights in float32.
    weights_C = class_weights(COUNTS, criterion.reweight, beta=criterion.effective_beta, dtype=torch.float64)
    trainer = Trainer(
        fabric=Fabric(accelerator="cpu", devices=1, precision="64-true"),
        forward=forward,
        optimiser=build_optimizer(network, lr=train.lr, momentum=train.momentum, weight_decay=train.weight_decay),
        loss=objective.loss,
        reweighting=DeferredReweighting(weights_C, start=objective.schedule.drw_start, name=criterion.reweight),
        schedule=objective.schedule,
        batches=OneStep(batch),
        is_head_C=torch.from_numpy(head_classes(np.array(COUNTS))),
        seed=0,
        mixing=mixing,
        pruning=pruning,
        frozen="train" if recipe.refit.batch_norm == "train" else "eval",
    )
    return trainer.run_epoch(epoch)


def _assert_same(found: nn.Module, expected: nn.Module, before: nn.Module) -> None:
    """Weights and batch-norm statistics agree, and something moved."""
    old = before.state_dict()
    assert any(not torch.equal(tensor, old[name]) for name, tensor in found.state_dict().items())
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], tensor, rtol=1e-9, atol=1e-12, msg=name)


Loss = Callable[[Tensor, list[int]], Tensor]


def _mean(base: oracles.Base, weights: list[float] | None = None) -> Loss:
    """The (weighted) mean over the batch at one exit."""
    used = weights or [1.0] * len(COUNTS)
    return lambda logits_EBC, labels: oracles.elf_step_loss(logits_EBC, labels, base, used, t=1.0)


def _reference_focal(logits_EBC: Tensor, labels: list[int]) -> Tensor:
    weights = oracles.effective_weights(COUNTS)
    values = [oracles.focal_of_ldam_code(z, y, 1.0, weights[y]) for z, y in zip(logits_EBC[0], labels, strict=True)]
    return torch.stack(values).sum() / len(values)


def _elf(base: oracles.Base, t: float) -> Loss:
    weights = oracles.effective_weights(COUNTS)
    return lambda logits_EBC, labels: oracles.elf_step_loss(logits_EBC, labels, base, weights, t)


def _ldam(z: Tensor, y: int) -> Tensor:
    return oracles.ldam(z, y, COUNTS)


METHODS: dict[str, Loss] = {
    "ce": _mean(oracles.cross_entropy),
    "focal": _mean(lambda z, y: oracles.focal(z, y, 0.5)),
    "ce-drw": _mean(oracles.cross_entropy, oracles.effective_weights(COUNTS)),
    "focal-drw": _mean(lambda z, y: oracles.focal(z, y, 0.5), oracles.effective_weights(COUNTS)),
    "focal-drw-reference": _reference_focal,
    "ldam-drw": _mean(_ldam, oracles.effective_weights(COUNTS)),
    "balanced-softmax": _mean(lambda z, y: oracles.balanced_softmax(z, y, COUNTS)),
    "logit-adjusted": _mean(lambda z, y: oracles.logit_adjusted(z, y, COUNTS, 1.0)),
    "elf-ce-drw": _elf(oracles.cross_entropy, 0.9),
    "elf-ldam-drw": _elf(_ldam, 0.5),
    "joint-ce-drw": _elf(oracles.cross_entropy, 1.0),
}


@pytest.mark.parametrize("method", METHODS)
def test_one_loss(method: str) -> None:
    recipe, batch = _recipe(method), _batch()
    before = _network(recipe)
    if method == "elf-ce-drw":
        # The first exit is sure of one class, so that examples of this class leave there, and no others.
        nn.init.constant_(before.get_parameter("heads.0.classifier.bias")[batch.labels_b[0]], 20)
    found, expected = copy.deepcopy(before), copy.deepcopy(before)
    record = _step(recipe, found, batch, WEIGHTED)
    if method == "elf-ce-drw":
        assert 0 < record.exit_share[0] < 1
    logits_EBC = expected.train()(batch.images)
    torch.autograd.backward(METHODS[method](logits_EBC, batch.labels_b.tolist()))
    oracles.first_sgd_step(expected, lr=0.1 * 0.01, weight_decay=DECAY)
    _assert_same(found, expected, before)


class Stands(Pruning):
    """Every example is shown and stands for a given number of examples."""

    numbers = (1, 4, 2, 1, 3, 1)

    def draw(self, epoch: int) -> NDArray[np.float32]:  # noqa: ARG002
        return np.array(self.numbers, dtype=np.float32)


def test_an_example_counts_for_those_left_out_in_loss_and_divisor() -> None:
    recipe, batch = _recipe("elf-ce-drw"), _batch()
    before = _network(recipe)
    found, expected = copy.deepcopy(before), copy.deepcopy(before)
    settings = PruningSettings(share=0.5, patience=1, floor=1, until=0.9)
    history = ExitHistory(BATCH, torch.device("cpu"))
    _step(recipe, found, batch, WEIGHTED, Stands(settings, history, batch.labels_b.numpy(), seed=0, epochs=200))
    logits_EBC, labels = expected.train()(batch.images), batch.labels_b.tolist()
    repeated = [b for b, number in enumerate(Stands.numbers) for _ in range(number)]
    torch.autograd.backward(METHODS["elf-ce-drw"](logits_EBC[:, repeated], [labels[b] for b in repeated]))
    oracles.first_sgd_step(expected, lr=0.1 * 0.01, weight_decay=DECAY)
    _assert_same(found, expected, before)


def test_mixup() -> None:
    """Zhang et al. 2018: one share for the batch; the losses of both labels, by share."""
    recipe, batch = _recipe("mixup"), _batch()
    before = _network(recipe)
    found, expected = copy.deepcopy(before), copy.deepcopy(before)
    partners = torch.tensor([3, 0, 5, 1, 2, 4])

    mixed = batch._replace(partners=Partners(batch.images, batch.labels_b, partners))
    _, mixing = forward_and_mixing(recipe, found, None, batch.labels_b.numpy())
    assert isinstance(mixing, Mixup)
    share = mixing(mixed, 0).labels.share
    assert 0 < share < 1
    _step(recipe, found, mixed, 0)
    images = torch.stack(
        [share * one + (1 - share) * batch.images[j] for one, j in zip(batch.images, partners, strict=True)]
    )
    losses = [
        share * oracles.cross_entropy(z, y) + (1 - share) * oracles.cross_entropy(z, int(batch.labels_b[j]))
        for z, y, j in zip(expected.train()(images)[0], batch.labels_b.tolist(), partners, strict=True)
    ]
    torch.autograd.backward(torch.stack(losses).sum() / len(losses))
    # The first step of an epoch with one step: a fifth of the warm-up of five epochs.
    oracles.first_sgd_step(expected, lr=0.1 / 5, weight_decay=DECAY)
    _assert_same(found, expected, before)


def test_bbn() -> None:
    """Two passes with batch-norm statistics of their own, mixed features, one classifier, drops at 120 and 160."""
    recipe, batch, epoch = _recipe("bbn"), _batch(2 * BATCH), 150
    before = _network(recipe)
    found, expected = copy.deepcopy(before).train(), copy.deepcopy(before).train()
    _step(recipe, found, batch, epoch)
    head, labels, share = expected.heads[0], batch.labels_b.tolist(), oracles.bbn_share(epoch, 200)
    assert share == 1 - 0.75**2
    assert isinstance(head, TwoBranchHead)
    weight, bias = (expected.get_parameter(f"heads.0.classifier.{name}") for name in ("weight", "bias"))
    logits_BC = oracles.bbn_logits(
        expected.stages[0], head.trunk.frequent, head.trunk.rare, weight, bias, batch.images, share
    )
    torch.autograd.backward(oracles.bbn_loss(logits_BC, labels[:BATCH], labels[BATCH:], share))
    oracles.first_sgd_step(expected, lr=0.1 * 0.01, weight_decay=DECAY)
    _assert_same(found, expected, before)


def test_bbn_at_inference_has_equal_shares() -> None:
    network, images = _network(_recipe("bbn")).eval(), _batch().images
    head = network.heads[0]
    assert isinstance(head, TwoBranchHead)
    weight, bias = (network.get_parameter(f"heads.0.classifier.{name}") for name in ("weight", "bias"))
    both = torch.cat([images, images])
    expected_BC = oracles.bbn_logits(network.stages[0], head.trunk.frequent, head.trunk.rare, weight, bias, both, 0.5)
    torch.testing.assert_close(network(images)[0], expected_BC, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", ["crt", "lws"])
def test_classifiers_on_frozen_features(method: str) -> None:
    """Kang et al. 2020: only classifiers (cRT) or their scales (LWS) learn; batch norm stays in training mode."""
    recipe, batch = _recipe(method), _batch()
    before = _network(recipe)
    found, expected = copy.deepcopy(before), copy.deepcopy(before)
    epoch, epochs = 3, {"crt": 10, "lws": 5}[method]
    _step(recipe, found, batch, epoch)
    logits_EBC = expected.train()(batch.images)
    torch.autograd.backward(METHODS["ce"](logits_EBC, batch.labels_b.tolist()))
    oracles.first_sgd_step(expected, lr=oracles.cosine_rate(0.1, epoch, epochs), weight_decay=5e-4)
    _assert_same(found, expected, before)
    moved = {name for name, p in found.named_parameters() if not torch.equal(p, before.get_parameter(name))}
    learns = {"crt": ("weight", "bias"), "lws": ("scale",)}[method]
    assert moved == {f"heads.0.classifier.{name}" for name in learns}
    statistics = [name for name in before.state_dict() if name.endswith("running_mean")]
    assert all(not torch.equal(found.state_dict()[name], before.state_dict()[name]) for name in statistics)


@pytest.mark.parametrize("method", ["crt-fast", "lws-fast"])
def test_the_fast_variants_keep_batch_norm(method: str) -> None:
    recipe = _recipe(method)
    before = _network(recipe)
    found = copy.deepcopy(before)
    _step(recipe, found, _batch(), 3)
    frozen = [name for name in before.state_dict() if name.startswith("stages.")]
    assert all(torch.equal(found.state_dict()[name], before.state_dict()[name]) for name in frozen)


def test_the_rate_of_the_ldam_drw_code() -> None:
    """Warm-up by epoch, lr (epoch + 1) / 5; times 0.01 from epoch 160 and again from 180, counted from 0."""
    recipe = _recipe("ldam-drw")
    (stage,) = stages_of(recipe.model_copy(update={"train": recipe.train.model_copy(update={"lr_update": "epoch"})}))
    schedule = dataclasses.replace(build_objective(stage, COUNTS, _network(recipe)).schedule)
    expected = [0.02, 0.04, 0.06, 0.08, 0.1] + [0.1] * 155 + [0.001] * 20 + [0.00001] * 20
    for epoch, rate in enumerate(expected):
        for step in (0, 40, 96):
            assert schedule.learning_rate(epoch, step, 97) == pytest.approx(rate)
