"""What exits cost a ResNet-50 in training: 8 images of 224 x 224 on the CPU, and the criterion for 8,142 classes.

    python benchmarks/bench_resnet50_step.py

- `elf` against `plain`: a training step of both, everything on `auto` as for a long run on this machine.
- multiply-adds of the four exit heads relative to the plain network: counted, not timed.
- criterion and metrics (rule, loss, its gradient down to the logits, epoch statistics) for 256 examples, 5 exits and
  8,142 classes, relative to a plain step of 256 images. That step is extrapolated from steps of 4 and of 8 images
  measured in the same rounds: the part that does not depend on the batch (the optimiser) is counted once.
"""

import statistics
from collections.abc import Callable
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from elfnet.exits.training_rule import TrainingRule
from elfnet.losses.cross_entropy import CrossEntropyLoss
from elfnet.losses.elf import ELFLoss
from elfnet.losses.weighting import weighted_batch_mean
from elfnet.models.build import build_network
from elfnet.models.flops import count_cost
from elfnet.run.info import Machine
from elfnet.train.epoch_statistics import EpochStatistics
from elfnet.train.forward import ExitingForward
from elfnet.train.machine import choose_machine
from elfnet.train.optimizer import build_optimizer
from timing import interleaved, ratio, write_results

SIDE, IMAGENET, INATURALIST = 224, 1000, 8142
SMALLER, BATCH, LARGE_BATCH = 4, 8, 256
ROUNDS = 12


def training_step(machine: Machine, *, exits: bool, classes: int, batch: int) -> Callable[[], object]:
    """A step as the trainer takes it, statistics included; nobody leaves, which is where exits cost most."""
    torch.manual_seed(0)
    images = torch.randn(batch, 3, SIDE, SIDE).to(memory_format=torch.channels_last)
    target_B, weight_B = torch.randint(classes, (batch,)), torch.ones(batch)
    network = build_network("resnet50", classes=classes, exits=exits)
    if machine.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    forward = ExitingForward(network, TrainingRule(threshold=1.0) if exits else None)
    optimiser = build_optimizer(network, lr=0.01, momentum=0.9, weight_decay=2e-4)
    if machine.compile:
        forward.compile_for(batch)
    fabric = Fabric(
        accelerator="cpu", devices=1, precision="bf16-mixed" if machine.precision == "bfloat16" else "32-true"
    )
    module, optimiser = fabric.setup(forward, optimiser)
    metrics = epoch_statistics(network.exits, classes)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        logits_EBC, visited_EB = module(images, target_B)
        loss_EB = ELFLoss(CrossEntropyLoss()).at_exits(logits_EBC, target_B, visited_EB)
        fabric.backward(weighted_batch_mean(loss_EB.sum(dim=0), weight_B))
        metrics().add(logits_EBC.detach(), target_B, visited_EB, loss_EB.detach(), weight_B)
        optimiser.step()

    return step


def criterion_and_metrics(*, exits: int, classes: int, batch: int) -> Callable[[], object]:
    """What a step does beside running the network."""
    generator = torch.Generator().manual_seed(0)
    logits_EBC = torch.randn(exits, batch, classes, generator=generator).requires_grad_()
    target_B = torch.randint(classes, (batch,), generator=generator)
    weight_B = torch.rand(batch, generator=generator)
    rule, metrics = TrainingRule(threshold=0.9), epoch_statistics(exits, classes)

    def step() -> None:
        logits_EBC.grad = None
        visited_EB = rule.visited(logits_EBC.detach(), target_B)
        loss_EB = ELFLoss(CrossEntropyLoss()).at_exits(logits_EBC, target_B, visited_EB)
        torch.autograd.backward(weighted_batch_mean(loss_EB.sum(dim=0), weight_B))
        metrics().add(logits_EBC.detach(), target_B, visited_EB, loss_EB.detach(), weight_B)

    return step


def epoch_statistics(exits: int, classes: int) -> Callable[[], EpochStatistics]:
    is_head_C: Tensor = torch.arange(classes) < classes // 2
    return lambda: EpochStatistics(steps=1, exits=exits, is_head_C=is_head_C, scale=1.0, device=torch.device("cpu"))


def share_of_large_step(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Criterion and metrics relative to a step of `LARGE_BATCH` images, round by round: median and quartiles."""
    shares = []
    for part, small, large in zip(seconds["criterion"], seconds["smaller"], seconds["larger"], strict=True):
        an_image = (large - small) / (BATCH - SMALLER)
        shares.append(part / (large + (LARGE_BATCH - BATCH) * an_image))
    low, middle, high = statistics.quantiles(shares, n=4)
    return {"median": round(middle, 4), "quartile_low": round(low, 4), "quartile_high": round(high, 4)}


def share_of_heads() -> dict[str, Any]:
    cost = count_cost(build_network("resnet50", classes=IMAGENET), (3, SIDE, SIDE))
    early = cost.heads[:-1]
    return {"plain": cost.plain, "exit heads": list(early), "share": round(sum(early) / cost.plain, 4)}


def main() -> None:
    machine = choose_machine(
        device="cpu", precision="auto", compile="auto", channels_last="auto", threads=0, work=float("inf")
    )
    steps = {
        "plain": training_step(machine, exits=False, classes=IMAGENET, batch=BATCH),
        "elf": training_step(machine, exits=True, classes=IMAGENET, batch=BATCH),
    }
    seconds = interleaved(steps, rounds=ROUNDS, warmup=3)
    large = {
        "smaller": training_step(machine, exits=False, classes=INATURALIST, batch=SMALLER),
        "larger": training_step(machine, exits=False, classes=INATURALIST, batch=BATCH),
        "criterion": criterion_and_metrics(exits=5, classes=INATURALIST, batch=LARGE_BATCH),
    }
    with_classes = interleaved(large, rounds=ROUNDS, warmup=3)
    write_results(
        "resnet50_step",
        {
            "what": f"ResNet-50 in training, {SIDE} x {SIDE}; ratios of times measured in turn, {ROUNDS} rounds",
            "machine": machine.to_json(),
            "images_per_second": {name: round(BATCH / statistics.median(times), 2) for name, times in seconds.items()},
            f"ELF against plain, {BATCH} images (aim: at most 1.3)": ratio(seconds, "elf", "plain"),
            "multiply-adds of the exit heads relative to plain (aim: at most 0.08)": share_of_heads(),
            f"criterion and metrics, {INATURALIST} classes, 5 exits, batch {LARGE_BATCH}": {
                "milliseconds": round(1000 * statistics.median(with_classes["criterion"]), 1),
                f"share of a plain step of {LARGE_BATCH} images, extrapolated from {SMALLER} and {BATCH} "
                "(aim: at most 0.05)": share_of_large_step(with_classes),
            },
        },
    )


if __name__ == "__main__":
    main()
