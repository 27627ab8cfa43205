"""One batch of encoded images, read and augmented: what a worker process does.

The random numbers of an example are a function of (seed, epoch, position, repeat): see `images.example_rng`.
"""

# Shapes: B batch, S side, K colours, R rectangles per image

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from elfnet.data.colour import holes_tensor
from elfnet.data.examples import Ints
from elfnet.data.image_reader import ImageReader
from elfnet.data.images.erasing import Hole
from elfnet.data.images.example_rng import ExampleRng
from elfnet.data.preparation import Augmentation, Evaluation
from elfnet.data.resize import Pixels
from elfnet.data.unreadable import UnreadableImageError

Request = tuple[int, Ints, Ints]
"""(epoch, positions, how often each was read in it before): what a worker is asked for. Epoch -1 is evaluation."""


class ReadBatch(NamedTuple):
    """What a worker hands back; failures travel as values, since torch would wrap an exception in its traceback.

    Attributes:
        factors_B3: of brightness, contrast and saturation, which are changed on the device; None leaves them.
        holes_BR4: rectangles that are erased on the device, after normalising; None: no image has any.
    """

    pixels_BSSK: Tensor
    rows_B: Tensor
    factors_B3: Tensor | None
    holes_BR4: Tensor | None
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
        numbers = ExampleRng(self._seed, max(epoch, 0))
        jitters = self._augmentation if self._augmentation is not None and self._augmentation.jitter else None
        erases = self._augmentation if self._augmentation is not None and self._augmentation.erases else None
        kept: list[int] = []
        factors: list[tuple[float, float, float]] = []
        holes: list[list[Hole]] = []
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
            if erases is not None:
                holes.append(erases.holes(side, side, rng))
            kept.append(row)
        return ReadBatch(
            torch.from_numpy(pixels[: len(kept)]),
            torch.tensor(kept, dtype=torch.int64),
            None if jitters is None else torch.tensor(factors).view(-1, 3),
            None if erases is None else holes_tensor(holes),
            tuple(failures),
        )

    def _prepared(self, row: int, rng: np.random.Generator) -> Pixels:
        read = partial(self._reader.part, row)
        if self._augmentation is None:
            return self._evaluation(read)
        return self._augmentation.of_file(read, self._evaluation, rng)
