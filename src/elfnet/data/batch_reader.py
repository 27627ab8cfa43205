"""One batch of encoded images, read and augmented: what a worker process does.

Random numbers are a function of (seed, epoch, position, repeat), so neither the number of workers nor the batch size
changes what an example looks like, and an epoch can be run again after a resume.
"""

# Shapes: B batch, S side, K colours

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from elfnet.data.examples import Ints
from elfnet.data.image_reader import ImageReader
from elfnet.data.preparation import Augmentation, Evaluation
from elfnet.data.resize import Pixels
from elfnet.data.unreadable import UnreadableImageError

Request = tuple[int, Ints, Ints]
"""(epoch, positions, how often each was read in it before): what a worker is asked for. Epoch -1 is evaluation."""


class ReadBatch(NamedTuple):
    """What a worker hands back; failures travel as values, since torch would wrap an exception in its traceback.

    Attributes:
        factors_B3: of brightness, contrast and saturation, which are changed on the device; None leaves them.
    """

    pixels_BSSK: Tensor
    rows_B: Tensor
    factors_B3: Tensor | None
    failures: tuple[tuple[str, str], ...]


class BatchReader(Dataset[ReadBatch]):
    """What runs in a worker.

    Args:
        augmentation: None reads for evaluation.
    """

    def __init__(
        self,
        reader: ImageReader,
        evaluation: Evaluation,
        augmentation: Augmentation | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self._reader, self._evaluation, self._augmentation = reader, evaluation, augmentation
        self._seed = seed

    def __getitem__(self, request: Request) -> ReadBatch:
        epoch, rows_B, repeat_B = request
        side = self._evaluation.image_size
        pixels = np.empty((len(rows_B), side, side, 3), dtype=np.uint8)
        numbers = _Numbers(self._seed, max(epoch, 0))
        jitters = self._augmentation if self._augmentation is not None and self._augmentation.jitter else None
        kept: list[int] = []
        factors: list[tuple[float, float, float]] = []
        failures: list[tuple[str, str]] = []
        for row, repeat in zip(rows_B.tolist(), repeat_B.tolist(), strict=True):
            place = len(kept)
            rng = numbers.of(row, repeat)
            try:
                pixels[place] = self._prepared(row, rng)
            except UnreadableImageError as error:
                failures.append((self._reader.name(row), str(error)))
                continue
            if jitters is not None:
                factors.append(jitters.colour_factors(rng))
            kept.append(row)
        return ReadBatch(
            torch.from_numpy(pixels[: len(kept)]),
            torch.tensor(kept, dtype=torch.int64),
            None if jitters is None else torch.tensor(factors).view(-1, 3),
            tuple(failures),
        )

    def _prepared(self, row: int, rng: np.random.Generator) -> Pixels:
        read = partial(self._reader.part, row)
        return self._evaluation(read) if self._augmentation is None else self._augmentation(read, rng)


class _Numbers:
    """Random numbers by position, from a generator that is a function of a key and a counter.

    One generator is set to where an example's numbers begin: making a new one takes many times as long.
    """

    def __init__(self, seed: int, epoch: int) -> None:
        key = np.random.SeedSequence([seed, epoch]).generate_state(2, np.uint64)
        self._bits = np.random.Philox(key=key)
        self._state = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def of(self, row: int, repeat: int = 0) -> np.random.Generator:
        """Valid until the next call."""
        self._state["state"]["counter"] = np.array([0, 0, row, repeat], dtype=np.uint64)
        self._bits.state = self._state
        return self._generator
