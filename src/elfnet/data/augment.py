"""Crop, flip and normalise a whole batch at once, on whatever device the images are.

Images stay uint8 and padded in memory; a batch is cut out row by row in one gather, so an image costs a few
microseconds. Rows of an image lie contiguous (height, width, channel), which is also what channels_last wants.
"""

# Shapes: N images, B batch, H height, W width, K channels

import torch
from torch import Tensor


class CropFlipNormalise:
    """Turns chosen images of a set into a normalised training batch.

    Args:
        images_NHWK: uint8, unpadded.
        mean_K, std_K: of the training images, in [0, 1].
        pad: zeros added on each side before a random crop of the original size; 0 does not crop.
        flip: mirror half of the images.
    """

    def __init__(self, images_NHWK: Tensor, *, mean_K: Tensor, std_K: Tensor, pad: int, flip: bool) -> None:
        self.height, self.width, self.channels = images_NHWK.shape[1:]
        self.pad, self.flip = pad, flip
        padded = torch.nn.functional.pad(images_NHWK, (0, 0, pad, pad, pad, pad))
        images, rows, columns, channels = padded.shape
        # A view in which [row, x] is the run of pixels that starts at column x: overlapping windows, no copy.
        self._windows = padded.view(images * rows, columns * channels).as_strided(
            (images * rows, 2 * pad + 1, self.width * channels), (columns * channels, channels, 1)
        )
        self._rows = rows
        self._line_H = torch.arange(self.height, device=images_NHWK.device)
        self._scale_K = (1 / (255 * std_K)).to(images_NHWK.device, torch.float32)
        self._shift_K = (-mean_K / std_K).to(images_NHWK.device, torch.float32)

    def __call__(self, chosen_B: Tensor, generator: torch.Generator) -> Tensor:
        """Float32 batch (B, K, H, W) in channels_last memory; random numbers come from `generator` (on the CPU)."""
        batch, device = len(chosen_B), chosen_B.device
        # One draw for all random numbers, made on the CPU so that every device sees the same ones.
        random_3B = torch.randint(2**30, (3, batch), generator=generator).to(device, non_blocking=True)
        top_B, left_B = random_3B[0] % (2 * self.pad + 1), random_3B[1] % (2 * self.pad + 1)
        row_BH = (chosen_B * self._rows + top_B).unsqueeze(1) + self._line_H
        crop = self._windows[row_BH, left_B.unsqueeze(1)].view(batch, self.height, self.width, self.channels)
        if self.flip:
            mirrored_B = (random_3B[2] % 2).bool().view(batch, 1, 1, 1)
            crop = torch.where(mirrored_B, crop.flip(2), crop)
        return torch.addcmul(self._shift_K, crop.float(), self._scale_K).permute(0, 3, 1, 2)


def normalise(images_BHWK: Tensor, *, mean_K: Tensor, std_K: Tensor) -> Tensor:
    """The evaluation transform: uint8 (B, H, W, K) to float32 (B, K, H, W) in channels_last memory."""
    scaled = (images_BHWK.float() / 255 - mean_K.float()) / std_K.float()
    return scaled.permute(0, 3, 1, 2)
