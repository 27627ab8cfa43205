"""What one process computes and two must: run in the test's own process, and as a script that starts two.

`python distributed_job.py DIRECTORY` starts both processes, writes what each found into DIRECTORY, and trains a recipe.
"""

# Shapes: N examples, F features, E exits, B batch, C classes

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from safetensors.torch import save_file
from torch import Tensor, nn

from elfnet.data.images.augmentation_policies import RandAugment
from elfnet.data.images.transforms import Augmentation
from elfnet.data.loading.feed import BatchSource, SampledFeed, TrainingBatch
from elfnet.data.loading.memory import AugmentedSource, FeatureSource
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.long_tail import head_classes
from elfnet.data.sources.arrays import FeatureRows
from elfnet.data.types import Ints
from elfnet.exits.training_rule import TrainingRule
from elfnet.losses.cross_entropy import CrossEntropyLoss
from elfnet.losses.elf import Distillation, ELFLoss
from elfnet.losses.weighting import DeferredReweighting
from elfnet.methods.mixing import CutMix, MinorityCutMix, MixSchedule, Mixup, PairMixing
from elfnet.models.experts import ExpertNetwork
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.train.distributed import DistributedContext, SharedRequestError
from elfnet.train.example_pruning import ExitHistory, Pruning, PruningSettings
from elfnet.train.forward import ExitingForward
from elfnet.train.launch import Launch, start
from elfnet.train.loop import Trainer
from elfnet.train.optimizer import WeightAverage, build_optimizer
from elfnet.train.run import train_recipe
from elfnet.train.schedule import Schedule

FEATURES, CLASSES, EPOCHS, SWITCH, BATCH = 6, 3, 4, 2, 8
COUNTS = (30, 14, 5)  # 49 examples: the last batch of an epoch has one, and one of two processes gets nothing of it
CASES: dict[str, dict[str, Any]] = {
    "mask": {"left": "mask"},
    "drop": {"left": "drop"},
    "accumulate": {"left": "drop", "accumulate": 2},
    "balanced": {"left": "mask", "sampler": "class-balanced"},
    "distilled": {"left": "mask", "accumulate": 2, "distil": 0.5},
    "experts": {"left": "drop", "accumulate": 2, "experts": True},
    "mixup": {"left": "mask", "accumulate": 2, "mix": "mixup"},
    "cutmix": {"left": "mask", "mix": "cutmix"},
    "cmo": {"left": "drop", "mix": "cmo", "sampler": "square-root"},
    "less work": {"left": "drop", "mix": "cutmix", "prune": True},
}


class InFloat64(SampledFeed):
    def epoch(self, epoch: int) -> Iterator[TrainingBatch]:
        for batch in super().epoch(epoch):
            partners = batch.partners
            if partners is not None:
                partners = partners._replace(images=partners.images.double())
            yield batch._replace(images=batch.images.double(), partners=partners)


def labels() -> Ints:
    return np.repeat(np.arange(CLASSES), COUNTS)


def source(mix: str) -> BatchSource:
    """Feature rows, or images for what pastes patches, augmented at random."""
    rng, labels_N, cpu = np.random.default_rng(3), labels(), torch.device("cpu")
    if mix in ("cutmix", "cmo"):
        centres = rng.integers(60, 200, size=(CLASSES, 4, 4, 1))
        images = (centres[labels_N] + rng.integers(-50, 50, size=(49, 4, 4, 1))).astype(np.uint8)
        augmentation = Augmentation(crop="padded", flip=True, pad=1, policy=RandAugment(), cutout=2)
        return AugmentedSource(images, augmentation, Normalisation((0.5,), (0.3,)), seed=1, device=cpu)
    centres_CF = rng.normal(size=(CLASSES, FEATURES))
    rows = FeatureRows((centres_CF[labels_N] + rng.normal(size=(49, FEATURES))).astype(np.float32), labels_N)
    return FeatureSource(rows, Normalisation((0.0,) * FEATURES, (1.0,) * FEATURES), device=cpu)


def mixing_of(mix: str) -> PairMixing | None:
    schedule = MixSchedule(seed=1, alpha=1.0, epochs=EPOCHS, probability=0.8)
    if mix == "cmo":
        return MinorityCutMix(schedule, labels())
    return {"": None, "mixup": Mixup(schedule), "cutmix": CutMix(schedule)}[mix]


def pruning_of(processes: DistributedContext) -> Pruning:
    """After one epoch at the first exit, half of the easy examples are left out."""
    settings = PruningSettings(share=0.5, patience=1, floor=2, until=0.75)
    history = ExitHistory(len(labels()), torch.device("cpu"), processes.all_reduce)
    return Pruning(settings, history, labels(), seed=1, epochs=EPOCHS)


def network(inputs: int = FEATURES) -> StagedNetwork:
    torch.manual_seed(5)
    first = nn.Sequential(nn.Flatten(), nn.Linear(inputs, 8), nn.GroupNorm(2, 8), nn.Tanh())
    second, third = (nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2))
    heads: list[nn.Module] = [nn.Linear(8, CLASSES) for _ in range(3)]
    return StagedNetwork([first, second, third], heads, classes=CLASSES).double()


def network_with_experts() -> StagedNetwork:
    torch.manual_seed(5)
    first = nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 8), nn.GroupNorm(2, 8), nn.Tanh())
    groups: list[nn.Module] = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2)]
    classifiers: list[nn.Module] = [nn.Linear(8, CLASSES) for _ in range(2)]
    return ExpertNetwork([first], [nn.Linear(8, CLASSES)], groups, classifiers, classes=CLASSES).double()


def trajectory(
    fabric: Fabric,
    *,
    left: Any,
    accumulate: int = 1,
    sampler: str = "shuffle",
    distil: float = 0,
    experts: bool = False,
    mix: str = "",
    prune: bool = False,
) -> tuple[list[Tensor], list[dict[str, Any]], list[bool]]:
    """Weights after every epoch, the log, and whether anyone of this process's share reached the last exit, by step."""
    trained = network_with_experts() if experts else network(16 if mix in ("cutmix", "cmo") else FEATURES)
    mixing = mixing_of(mix)
    processes = DistributedContext(fabric)
    average = WeightAverage(trained, 0.9) if prune else None
    pruning = pruning_of(processes) if prune else None
    forward = ExitingForward(trained, TrainingRule(threshold=0.4), after_exit=left, equilibrium=experts)
    reached: list[bool] = []
    forward.register_forward_hook(lambda _module, _inputs, outputs: reached.append(bool(outputs[1][-1].any())))
    trainer = Trainer(
        fabric=fabric,
        forward=forward,
        optimiser=build_optimizer(trained, lr=0.1, momentum=0.9, weight_decay=1e-3),
        loss=ELFLoss(
            CrossEntropyLoss(),
            exits=trained.exits,
            experts=trained.experts,
            distillation=Distillation(distil) if distil else None,
        ),
        reweighting=DeferredReweighting(
            torch.tensor([0.2, 0.8, 2.0], dtype=torch.float64), start=SWITCH, name="inverse"
        ),
        schedule=Schedule(epochs=EPOCHS, lr=0.1, warmup=1, lr_steps=(3,), lr_factor=0.1, drw_start=SWITCH),
        batches=InFloat64(
            source(mix),
            labels(),
            batch_size=BATCH,
            seed=1,
            device=torch.device("cpu"),
            sampler=sampler,
            shard=processes.shard,
            pairing=mixing,
            selection=pruning,
        ),
        is_head_C=torch.from_numpy(head_classes(np.array(COUNTS))),
        seed=1,
        accumulate=accumulate,
        mixing=mixing,
        average=average,
        pruning=pruning,
    )
    weights, log = [], []
    for epoch in range(EPOCHS):
        log.append(trainer.run_epoch(epoch).to_json())
        evaluated = trained if average is None else average.network
        weights.append(torch.cat([p.detach().flatten() for p in evaluated.parameters()]).clone())
    return weights, log, reached


def recipe(**changes: Any) -> Recipe:
    """Some hundred digits on ResNet-8."""
    settings = {
        "data.largest": 24,
        "data.ratio": 4,
        "data.calibration_per_class": 5,
        "data.test_per_class": 5,
        "model.backbone": "resnet8",
        "model.head_filters": 8,
        "train.epochs": 2,
        "train.batch_size": 42,  # 128 images: the last batch of an epoch has two
        "train.compile": "off",
        "train.precision": "float32",
        "train.threads": 1,
    }
    return load_recipe("digits/elf-ce-drw", settings | changes)


def second_stage(source: Path | None = None) -> Recipe:
    """New classifiers on the features of that run; without one on those of its own."""
    run = {} if source is None else {"refit.run": str(source)}
    return recipe(**run, **{"refit.method": "balanced", "refit.epochs": 2, "refit.head": "cosine"})


def main(directory: Path) -> None:
    """Both processes run this."""
    launch = Launch(devices=2, timeout=120)
    # First the whole path: starting the processes is a part of it.
    run = train_recipe(recipe(), directory / "two", launch=launch)
    train_recipe(recipe(), directory / "stopped", launch=launch, stop_after=lambda done: done == 1)
    train_recipe(second_stage(run.root), directory / "second", launch=launch)
    train_recipe(second_stage(), directory / "both", launch=launch)
    # What the first refuses, all refuse.
    refusal = ""
    try:
        train_recipe(recipe(), run.root, launch=launch)
    except SharedRequestError as error:
        refusal = str(error)
    fabric = start(launch, device="cpu", precision="64-true")
    found: dict[str, Any] = {"refusal": refusal, "first": fabric.global_rank == 0}
    for name, case in CASES.items():
        weights, log, reached = trajectory(fabric, **case)
        save_file({"weights": torch.stack(weights)}, directory / f"{name}-{fabric.global_rank}.safetensors")
        found[name] = {"log": log, "reached": reached}
    (directory / f"found-{fabric.global_rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
