"""The time of a training step, ResNet-32, batch 128, 32x32x3.

    python benchmarks/bench_training_step.py

- `straightforward`: eager float32, default memory layout, the loop that anyone writes first. In a process of its own,
  because elfnet sets how the whole process keeps freed memory (`elfnet.train.machine`).
- `plain`: the same network as elfnet trains it, with everything on `auto`, as for a long run on this machine.
- `mask`: ELF on top of it, examples that left are masked.
- `drop`: ELF, examples that left are dropped, for several shares leaving at each exit. Who leaves is dictated, so that
  shares are exact; the rule is evaluated all the same.
- `averaging`: taking the weights of a ResNet-32 with exits into their moving average (`train.ema_decay`), by itself.
"""

import subprocess
import sys
from collections.abc import Callable

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from elfnet.exits.training_rule import TrainingRule
from elfnet.losses.cross_entropy import CrossEntropyLoss
from elfnet.losses.elf import ELFLoss
from elfnet.losses.weighting import weighted_batch_mean
from elfnet.models.build import build_network
from elfnet.models.flops import count_cost
from elfnet.run.info import Machine
from elfnet.train.epoch_statistics import EpochStatistics
from elfnet.train.forward import ExitingForward
from elfnet.train.machine import choose_machine, tune_malloc
from elfnet.train.optimizer import WeightAverage, build_optimizer
from timing import interleaved, ratio, write_results

BATCH, CLASSES, ROUNDS = 128, 10, 12
STRAIGHTFORWARD = "--straightforward"

# Share of examples leaving at exits 1..4: nobody early; steps to everybody at the first; and ELF(CE) on CIFAR-10-LT
# before the first drop of the learning rate and at its end (measured over 40 epochs).
SHARES = {
    "nobody leaves": (0.0, 0.0, 0.0, 1.0),
    "10 % at each": (0.1, 0.1, 0.1, 0.7),
    "20 % at each": (0.2, 0.2, 0.2, 0.4),
    "ELF(CE) before the drop": (0.36, 0.15, 0.13, 0.36),
    "ELF(CE) at the end": (0.08, 0.17, 0.27, 0.48),
    "half at the first": (0.5, 0.0, 0.0, 0.5),
}


class DictatedRule(TrainingRule):
    """Evaluates the real rule, then lets a dictated number leave at each exit."""

    def __init__(self) -> None:
        super().__init__(threshold=0.9)
        self._numbers: list[int] = []
        self._exit = 0

    def dictate(self, shares: tuple[float, ...]) -> None:
        self._numbers = [round(share * BATCH) for share in shares[:-1]]
        self._exit = 0

    def leaves(self, logits_BC: Tensor, target_B: Tensor) -> Tensor:
        mine = super().leaves(logits_BC, target_B)
        number = self._numbers[self._exit]
        self._exit = (self._exit + 1) % len(self._numbers)
        return torch.arange(len(mine)) < number


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(BATCH, 3, 32, 32), torch.randint(CLASSES, (BATCH,))


def straightforward() -> Callable[[], object]:
    """In a process of its own, one step per line of its input."""
    child = subprocess.Popen(
        [sys.executable, __file__, STRAIGHTFORWARD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    asked, done = child.stdin, child.stdout
    assert asked is not None
    assert done is not None

    def step() -> None:
        asked.write("\n")
        if not done.readline():
            raise RuntimeError("the process of the straightforward loop ended")

    return step


def run_straightforward() -> None:
    images, target = batch()
    torch.manual_seed(0)
    network = build_network("resnet32", classes=CLASSES, exits=False)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=2e-4)
    for _ in sys.stdin:
        loss = nn.functional.cross_entropy(network(images)[0], target)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        print("done", flush=True)


def ours(
    images: Tensor, target: Tensor, machine: Machine, rule: TrainingRule | None, *, exits: bool, left: str
) -> Callable[[], object]:
    """A step as the trainer takes it, statistics included."""
    torch.manual_seed(0)
    network = build_network("resnet32", classes=CLASSES, exits=exits)
    if machine.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    forward = ExitingForward(network, rule, after_exit="drop" if left == "drop" else "mask")
    optimiser = build_optimizer(network, lr=0.1, momentum=0.9, weight_decay=2e-4)
    if machine.compile:
        forward.compile_for(BATCH)
    fabric = Fabric(
        accelerator="cpu", devices=1, precision="bf16-mixed" if machine.precision == "bfloat16" else "32-true"
    )
    module, optimiser = fabric.setup(forward, optimiser)
    loss, weight_B = ELFLoss(CrossEntropyLoss()), torch.ones(BATCH)
    is_head_C = torch.arange(CLASSES) < CLASSES // 2

    def step() -> None:
        statistics = EpochStatistics(
            steps=1, exits=network.exits, is_head_C=is_head_C, scale=1.0, device=torch.device("cpu")
        )
        optimiser.zero_grad(set_to_none=True)
        logits_EBC, visited_EB = module(images, target)
        loss_EB = loss.at_exits(logits_EBC, target, visited_EB)
        fabric.backward(weighted_batch_mean(loss_EB.sum(dim=0), weight_B))
        statistics.add(logits_EBC.detach(), target, visited_EB, loss_EB.detach(), weight_B)
        optimiser.step()

    return step


def averaging() -> Callable[[], object]:
    """What a moving average of the weights adds to a step."""
    network = build_network("resnet32", classes=CLASSES)
    average = WeightAverage(network, 0.999)
    return lambda: average.update(network)


def flops_share(shares: tuple[float, ...]) -> float:
    """Training multiply-adds of `drop` relative to the plain network, from the shares alone."""
    cost = count_cost(build_network("resnet32", classes=CLASSES), (3, 32, 32))
    return sum(share * relative for share, relative in zip(shares, cost.relative, strict=True))


def main() -> None:
    machine, shrinking = (
        choose_machine(
            device="cpu",
            precision="auto",
            compile="auto",
            channels_last="auto",
            threads=0,
            work=float("inf"),
            batch_shrinks=shrinks,
        )
        for shrinks in (False, True)
    )
    tune_malloc()
    images, target = batch()
    images = images.to(memory_format=torch.channels_last)
    rule = TrainingRule(threshold=1.0)  # nobody leaves: what mask costs does not depend on it
    steps = {
        "straightforward": straightforward(),
        "plain": ours(images, target, machine, None, exits=False, left="mask"),
        "mask": ours(images, target, machine, rule, exits=True, left="mask"),
    }
    steps["averaging"] = averaging()
    dictated = DictatedRule()
    drop = ours(images, target, shrinking, dictated, exits=True, left="drop")

    def drop_with(shares: tuple[float, ...]) -> Callable[[], object]:
        def step() -> object:
            dictated.dictate(shares)
            return drop()

        return step

    steps |= {f"drop, {name}": drop_with(shares) for name, shares in SHARES.items()}
    seconds = interleaved(steps, rounds=ROUNDS, warmup=3)
    write_results(
        "training_step",
        {
            "what": f"one training step, ResNet-32, batch {BATCH}; ratios of times measured in turn, {ROUNDS} rounds",
            "machine": {"plain and mask": machine.to_json(), "drop": shrinking.to_json()},
            "images_per_second": {
                name: round(BATCH / sorted(times)[len(times) // 2]) for name, times in seconds.items()
            },
            "plain against straightforward (aim: at least 2.2)": ratio(seconds, "straightforward", "plain"),
            "mask against plain (aim: at most 1.35)": ratio(seconds, "mask", "plain"),
            "averaging the weights, share of a mask step (aim: at most 0.03)": ratio(seconds, "averaging", "mask"),
            "drop against mask, nobody leaves (aim: at most 1.05)": ratio(seconds, "drop, nobody leaves", "mask"),
            "drop by share leaving at exits 1..4": {
                name: {
                    "shares": shares,
                    "multiply-adds relative to plain": round(flops_share(shares), 3),
                    "time relative to mask": ratio(seconds, f"drop, {name}", "mask"),
                    "time relative to plain": ratio(seconds, f"drop, {name}", "plain"),
                }
                for name, shares in SHARES.items()
            },
        },
    )


if __name__ == "__main__":
    run_straightforward() if sys.argv[1:] == [STRAIGHTFORWARD] else main()
