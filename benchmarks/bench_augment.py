"""Augmenting images in memory against the training step that consumes them: ResNet-32, batch 128, 32x32x3.

    python benchmarks/bench_augment.py

The feed augments in the training process, on one core; the step has both. Every variant makes or consumes one batch, so
the ratio of their times is the ratio of images per second. `crop-flip` is the quick source that runs without a policy.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from PIL import Image

from bench_training_step import BATCH, batch, ours
from elfnet.data.images.augmentation_policies import AutoAugment, Policy, RandAugment, TrivialAugment
from elfnet.data.images.operations import OPERATIONS
from elfnet.data.images.transforms import Augmentation
from elfnet.data.loading.feed import BatchSource, SampledFeed, TrainingBatch
from elfnet.data.loading.memory import AugmentedSource, CropFlipSource
from elfnet.data.loading.normalise import Normalisation
from elfnet.exits.training_rule import TrainingRule
from elfnet.train.machine import choose_machine, tune_malloc
from timing import interleaved, ratio, write_results

IMAGES, SIDE, PAD, CUTOUT, ROUNDS, CALLS = 5_000, 32, 4, 16, 30, 200
STATISTICS = Normalisation((0.49, 0.48, 0.45), (0.2, 0.2, 0.2))
CPU = torch.device("cpu")
AMOUNTS = {"rotate": 20, "solarize": 128, "posterize": 6, "translate_x": 5, "translate_y": 5}
POLICIES: dict[str, Policy | None] = {
    "cutout alone": None,
    "autoaugment": AutoAugment(),
    "randaugment": RandAugment(),
    "trivialaugment": TrivialAugment(),
}


def made_up_images() -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Smooth noise: histograms and edges somewhat like those of photographs."""
    coarse = np.random.default_rng(0).integers(0, 256, (IMAGES, 8, 8, 3), dtype=np.uint8)
    size = (SIDE, SIDE)
    return np.stack([np.asarray(Image.fromarray(one).resize(size, Image.Resampling.BICUBIC)) for one in coarse])


def batches(source: BatchSource) -> Iterator[TrainingBatch]:
    """Batch after batch, epoch after epoch."""
    feed = SampledFeed(source, np.arange(IMAGES), batch_size=BATCH, seed=0, device=CPU)
    epoch = 0
    while True:
        yield from feed.epoch(epoch)
        epoch += 1


def microseconds_per_operation(image: Image.Image) -> dict[str, float]:
    """Median over rounds of the mean time of a call."""

    def repeated(name: str) -> Callable[[], None]:
        operation, amount = OPERATIONS[name], AMOUNTS.get(name, 0.3)

        def calls() -> None:
            for _ in range(CALLS):
                operation(image, amount)

        return calls

    seconds = interleaved({name: repeated(name) for name in OPERATIONS}, rounds=ROUNDS)
    return {name: round(sorted(times)[len(times) // 2] / CALLS * 1e6, 1) for name, times in seconds.items()}


def main() -> None:
    machine = choose_machine(
        device="cpu",
        precision="auto",
        compile="auto",
        channels_last="auto",
        threads=0,
        work=float("inf"),
        batch_shrinks=False,
    )
    tune_malloc()
    images_NHWK = made_up_images()
    sources: dict[str, BatchSource] = {
        "crop-flip": CropFlipSource(images_NHWK, STATISTICS, pad=PAD, flip=True, device=CPU)
    }
    for name, policy in POLICIES.items():
        augmentation = Augmentation(crop="padded", flip=True, pad=PAD, policy=policy, cutout=CUTOUT)
        sources[name] = AugmentedSource(images_NHWK, augmentation, STATISTICS, seed=0, device=CPU)
    inputs, target = batch()
    step = ours(
        inputs.to(memory_format=torch.channels_last),
        target,
        machine,
        TrainingRule(threshold=1.0),
        exits=True,
        left="mask",
    )
    variants: dict[str, Callable[[], object]] = {"step": step}
    for name, source in sources.items():
        running = batches(source)
        variants[name] = lambda running=running: next(running)  # type: ignore[misc]
    seconds = interleaved(variants, rounds=ROUNDS, warmup=3)
    write_results(
        "augment",
        {
            "what": f"crop, flip, policy, Cutout and normalising of {BATCH} images in memory ({SIDE}x{SIDE}x3) on one "
            f"core, against an ELF step of ResNet-32 on {torch.get_num_threads()} threads; {ROUNDS} rounds",
            "machine": machine.to_json(),
            "images_per_second": {
                name: round(BATCH / sorted(times)[len(times) // 2]) for name, times in seconds.items()
            },
            "images per second against the step (aim: at least 5)": {
                name: ratio(seconds, "step", name) for name in sources
            },
            "microseconds per operation": microseconds_per_operation(Image.fromarray(images_NHWK[0])),
        },
    )


if __name__ == "__main__":
    main()
