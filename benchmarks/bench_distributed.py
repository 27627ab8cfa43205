"""Two processes of one thread against one process of two threads: ELF on ResNet-32, 32x32x3, the same total batch.

    python benchmarks/bench_distributed.py

- `one process`: a batch of 128 on two threads.
- `two processes`: 64 each on one thread, gradients exchanged while they are computed, as elfnet trains.
- `two processes, exchange at the end`: the same, gradients flattened and added after the backward pass.

Each round runs every variant once for some steps; the second process waits while the first runs alone.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric

from elfnet.data.loading.feed import TrainingBatch
from elfnet.data.long_tail import head_classes
from elfnet.exits.training_rule import TrainingRule
from elfnet.losses.cross_entropy import CrossEntropyLoss
from elfnet.losses.elf import ELFLoss
from elfnet.losses.weighting import DeferredReweighting
from elfnet.models.build import build_network
from elfnet.train.distributed import DistributedContext
from elfnet.train.forward import ExitingForward
from elfnet.train.launch import Launch, start
from elfnet.train.loop import Trainer
from elfnet.train.optimizer import build_optimizer
from elfnet.train.schedule import Schedule
from timing import interleaved, ratio, write_results

BATCH, CLASSES, STEPS = 128, 10, 4
ROUNDS = int(os.environ.get("ROUNDS", "12"))
COUNTS = [100] * CLASSES


class SameBatch:
    """The same images in every step: loading is measured elsewhere."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        generator = torch.Generator().manual_seed(0)
        self._images = torch.randn(batch_size, 3, 32, 32, generator=generator).to(memory_format=torch.channels_last)
        self._labels_B = torch.randint(CLASSES, (batch_size,), generator=generator)

    def __len__(self) -> int:
        return STEPS

    def steps(self, epoch: int) -> int:  # noqa: ARG002 (every feed takes it)
        return STEPS

    def epoch(self, epoch: int) -> Iterator[TrainingBatch]:  # noqa: ARG002 (every feed takes it)
        for step in range(STEPS):
            yield TrainingBatch(step, self._images, self._labels_B, torch.arange(self.batch_size))

    def close(self) -> None:
        """Nothing was opened."""

    def skipped(self) -> int:
        return 0


def trainer(fabric: Fabric, batch_size: int, *, at_the_end: bool = False) -> Trainer:
    torch.manual_seed(0)
    network = build_network("resnet32", classes=CLASSES).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = build_optimizer(network, lr=0.01, momentum=0.9, weight_decay=2e-4)
    if at_the_end:
        optimiser.register_step_pre_hook(lambda *_: _add_up(list(network.parameters())))
    return Trainer(
        fabric=fabric,
        forward=ExitingForward(network, TrainingRule(threshold=0.9)),
        optimiser=optimiser,
        loss=ELFLoss(CrossEntropyLoss(), exits=network.exits),
        reweighting=DeferredReweighting(torch.ones(CLASSES), start=0, name="none"),
        schedule=Schedule(epochs=1, lr=0.01, warmup=0, lr_steps=(), lr_factor=1, drw_start=0),
        batches=SameBatch(batch_size),
        is_head_C=torch.from_numpy(head_classes(np.array(COUNTS))),
        seed=0,
    )


def _add_up(parameters: list[torch.nn.Parameter]) -> None:
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    torch.distributed.all_reduce(flat)
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):  # type: ignore[no-untyped-call]
        gradient.copy_(part.view_as(gradient)).div_(2)


def main() -> None:
    together = start(Launch(devices=2), device="cpu", precision="32-true")
    processes = DistributedContext(together)
    alone = Fabric(accelerator="cpu", devices=1, precision="32-true")
    single = trainer(alone, BATCH)
    shared = trainer(together, BATCH // 2)
    at_the_end = trainer(alone, BATCH // 2, at_the_end=True)

    def on_threads(threads: int, run: Callable[[], Any]) -> None:
        torch.set_num_threads(threads)
        run()
        together.barrier()

    seconds = interleaved(
        {
            "one process": lambda: on_threads(2, lambda: single.run_epoch(0) if processes.is_rank0 else None),
            "two processes": lambda: on_threads(1, lambda: shared.run_epoch(0)),
            "two processes, exchange at the end": lambda: on_threads(1, lambda: at_the_end.run_epoch(0)),
        },
        rounds=ROUNDS,
        warmup=1,
    )
    if processes.is_rank0:
        write_results(
            "distributed",
            {
                "throughput of two processes": ratio(seconds, "one process", "two processes"),
                "with the exchange at the end": ratio(seconds, "one process", "two processes, exchange at the end"),
                "batch": BATCH,
                "rounds": ROUNDS,
            },
        )


if __name__ == "__main__":
    main()
