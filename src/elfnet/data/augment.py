"""Images in memory become training batches.

`CropFlipNormalise` treats a whole batch at once, on whatever device the images are. Images stay uint8 and padded in
memory, each beside its mirror image. A row of a crop is then a run of bytes that starts somewhere, so a batch is one
selection of rows. Rows lie (width, channel), which is also what channels_last wants.

`PerExample` treats one image after the other on the host, as image files are treated: what a policy does differs from
image to image.
"""

# Shapes: N images, B batch, H height, W width, K channels

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elfnet.data.colour import erase, holes_tensor, normalise_bytes
from elfnet.data.examples import Ints
from elfnet.data.images.example_rng import ExampleRng
from elfnet.data.preparation import Augmentation
from elfnet.data.share import WHOLE, Share


class CropFlipNormalise:
    """Turns chosen images of a set into a normalised training batch.

    Args:
        images_NHWK: uint8, unpadded.
        mean_K, std_K: of the training images, in [0, 1].
        pad: zeros added on each side before a random crop of the original size; 0 does not crop.
        flip: mirror half of the images.
    """

    def __init__(self, images_NHWK: Tensor, *, mean_K: Tensor, std_K: Tensor, pad: int, flip: bool) -> None:
        images, self.height, self.width, self.channels = images_NHWK.shape
        device = images_NHWK.device
        self._pad, self._flip, self._images = pad, flip, images
        padded = torch.nn.functional.pad(images_NHWK, (0, 0, pad, pad, pad, pad)).contiguous()
        if flip:
            padded = torch.cat([padded, padded.flip(2)])
        self._columns = self.width + 2 * pad
        self._rows = self.height + 2 * pad
        # Every run of bytes as long as a row, by where it starts: overlapping views of the padded images, no copy.
        run = self.width * self.channels
        self._runs = padded.view(-1).as_strided((padded.numel() - run + 1, run), (1, 1))
        self._line_H = torch.arange(self.height, device=device) * (self._columns * self.channels)
        # One factor and one offset for each byte of a row.
        self._scale = (1 / (255 * std_K)).to(device, torch.float32).repeat(self.width)
        self._shift = (-mean_K / std_K).to(device, torch.float32).repeat(self.width)

    def __call__(self, chosen_B: Tensor, generator: torch.Generator, share: Share = WHOLE) -> Tensor:
        """Float32 batch (B, K, H, W) in channels_last memory; random numbers come from `generator` (on the CPU).

        With a `share`, only that part of the batch; the numbers are those that the whole batch would get.
        """
        first, end = share.bounds(len(chosen_B))
        # One draw for all random numbers, made on the CPU so that every device sees the same ones.
        random_3B = torch.randint(2**30, (3, len(chosen_B)), generator=generator)[:, first:end]
        random_3B = random_3B.to(chosen_B.device, non_blocking=True)
        chosen_B = chosen_B[first:end]
        top_B, left_B = random_3B[0] % (2 * self._pad + 1), random_3B[1] % (2 * self._pad + 1)
        image_B = chosen_B + self._images * (random_3B[2] % 2) if self._flip else chosen_B
        corner_B = ((image_B * self._rows + top_B) * self._columns + left_B) * self.channels
        start = (corner_B.unsqueeze(1) + self._line_H).flatten()
        pixels = self._runs.index_select(0, start).float().mul_(self._scale).add_(self._shift)
        return pixels.view(end - first, self.height, self.width, self.channels).permute(0, 3, 1, 2)


class PerExample:
    """Turns chosen images of a set into a normalised training batch by any augmentation.

    Args:
        images_NHWK: on the host, where they are changed; the batch is made where `mean_K` is.
        mean_K, std_K: of the training images, in [0, 1].
        seed: of the random numbers of the examples.
    """

    def __init__(
        self,
        images_NHWK: NDArray[np.uint8],
        augmentation: Augmentation,
        *,
        mean_K: Tensor,
        std_K: Tensor,
        seed: int,
    ) -> None:
        self._images_NHWK, self._augmentation = images_NHWK, augmentation
        self._mean_K, self._std_K, self._seed = mean_K, std_K, seed

    def __call__(self, rows_B: Ints, repeat_B: Ints, epoch: int) -> Tensor:
        """Float32 batch (B, K, H, W) in channels_last memory.

        Args:
            repeat_B: how often each was shown before in the epoch.
        """
        _, height, width, channels = self._images_NHWK.shape
        pixels_BHWK = np.empty((len(rows_B), height, width, channels), dtype=np.uint8)
        numbers = ExampleRng(self._seed, epoch)
        holes = []
        for place, (row, repeat) in enumerate(zip(rows_B.tolist(), repeat_B.tolist(), strict=True)):
            rng = numbers.of(row, repeat)
            pixels_BHWK[place] = self._augmentation.of_array(self._images_NHWK[row], rng)
            holes.append(self._augmentation.holes(height, width, rng))
        pixels = torch.from_numpy(pixels_BHWK).to(self._mean_K.device)
        images = normalise_bytes(pixels, mean_K=self._mean_K, std_K=self._std_K)
        return erase(images, holes_tensor(holes)) if self._augmentation.erases else images


def normalise(images_BHWK: Tensor, *, mean_K: Tensor, std_K: Tensor) -> Tensor:
    """The evaluation transform: uint8 (B, H, W, K) to float32 (B, K, H, W) in channels_last memory."""
    scaled = (images_BHWK.float() / 255 - mean_K.float()) / std_K.float()
    return scaled.permute(0, 3, 1, 2)
