"""Crop, flip and normalise a whole batch at once, on whatever device the images are.

Images stay uint8 and padded in memory, each beside its mirror image. A row of a crop is then a run of bytes that starts
somewhere, so a batch is one selection of rows. Rows lie (width, channel), which is also what channels_last wants.
"""

# Shapes: N images, B batch, H height, W width, K channels

import torch
from torch import Tensor

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


def normalise(images_BHWK: Tensor, *, mean_K: Tensor, std_K: Tensor) -> Tensor:
    """The evaluation transform: uint8 (B, H, W, K) to float32 (B, K, H, W) in channels_last memory."""
    scaled = (images_BHWK.float() / 255 - mean_K.float()) / std_K.float()
    return scaled.permute(0, 3, 1, 2)
