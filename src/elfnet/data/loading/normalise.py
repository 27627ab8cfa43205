"""Operations on whole batches on their device: normalisation, colour jitter, erasing.

Brightness, contrast, saturation and normalisation are linear in the pixels. Together they are one 3 x 3 matrix and one
offset per image. Values are clipped to 0..255 once, at the end.
"""

# Shapes: B batch, H height, W width, K channels (3 where colours are changed), V = 256 values,
#     R rectangles per image

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from elfnet.data.images.operations import Hole
from elfnet.data.types import Ints, LabelledImages

GREY_K = (0.299, 0.587, 0.114)  # luma of ITU-R BT.601
IMAGES_IN_CPU_CACHE = 4  # images of 224 x 224 pixels as float32: 2.4 MB


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation per channel, for pixels in [0, 1]."""

    mean_K: tuple[float, ...]
    std_K: tuple[float, ...]

    @classmethod
    def of(cls, images: LabelledImages) -> "Normalisation":
        """Measure images in memory, from counts of the pixel values, which needs no float copy."""
        pixels = images.images_NHWC.reshape(-1, images.images_NHWC.shape[-1])
        return cls.of_histogram(np.stack([np.bincount(channel, minlength=256) for channel in pixels.T]))

    @classmethod
    def of_histogram(cls, histogram_KV: Ints) -> "Normalisation":
        """Compute from the counts of the 256 pixel values in each channel."""
        values = np.arange(256, dtype=np.float64) / 255
        means, stds = [], []
        for count_V in histogram_KV:
            share = count_V / count_V.sum()
            mean = float((share * values).sum())
            means.append(mean)
            # The deviation of a constant channel is 0; use 1 to avoid a division by zero.
            stds.append(float(np.sqrt((share * (values - mean) ** 2).sum())) or 1.0)
        return cls(tuple(means), tuple(stds))

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation as float32 tensors of shape (K,) on a device."""
        return torch.tensor(self.mean_K, device=device), torch.tensor(self.std_K, device=device)


def normalise(images_BHWK: Tensor, *, mean_K: Tensor, std_K: Tensor) -> Tensor:
    """Normalise for evaluation: uint8 (B, H, W, K) to float32 (B, K, H, W) in channels_last memory."""
    scaled = (images_BHWK.float() / 255 - mean_K.float()) / std_K.float()
    return scaled.permute(0, 3, 1, 2)


def normalise_bytes(images_BHWK: Tensor, *, mean_K: Tensor, std_K: Tensor) -> Tensor:
    """Normalise for training: uint8 (B, H, W, K) to float32 (B, K, H, W) in channels_last memory.

    Faster than `normalise`; the results differ by rounding.
    """
    # One factor and one offset per byte of a row: long rows are faster than the short channel axis.
    width = images_BHWK.shape[2]
    scale, shift = (1 / (255 * std_K)).repeat(width), (-mean_K / std_K).repeat(width)
    rows = images_BHWK.flatten(2).float().mul_(scale).add_(shift)
    return rows.view(images_BHWK.shape).permute(0, 3, 1, 2)


def jitter_and_normalise(images_BHWK: Tensor, factors_B3: Tensor, *, mean_K: Tensor, std_K: Tensor) -> Tensor:
    """Change brightness, contrast and saturation, and normalise as `normalise_bytes` does.

    Args:
        factors_B3: Factors of brightness, contrast (about the mean grey of the image) and saturation; 1 for no change.
    """
    batch, height, width, colours = images_BHWK.shape
    device = images_BHWK.device
    grey_K = torch.tensor(GREY_K, device=device)
    brightness_B, contrast_B, saturation_B = factors_B3.unbind(1)
    saturation = saturation_B.view(-1, 1, 1)
    # [b, i, o]: weight of input colour i in output colour o.
    mixed_BKK = saturation * torch.eye(3, device=device) + (1 - saturation) * grey_K.view(1, 3, 1)
    matrix_BKK = mixed_BKK * (brightness_B * contrast_B / 255).view(-1, 1, 1) / std_K
    # Matrices with three rows are slow to multiply; multiply several neighbouring pixels at once.
    together = next(count for count in (8, 4, 2, 1) if height * width % count == 0)
    block = torch.einsum("pq,bio->bpiqo", torch.eye(together, device=device), matrix_BKK)
    block = block.reshape(batch, together * colours, together * colours)
    darkest, brightest = (-mean_K / std_K).repeat(width), ((1 - mean_K) / std_K).repeat(width)
    changed = torch.empty(images_BHWK.shape, device=device)
    # On a CPU a few images at a time, so that they stay in the cache.
    chunk = IMAGES_IN_CPU_CACHE if device.type == "cpu" else max(batch, 1)
    memory = torch.empty(min(chunk, batch), height, width, colours, device=device)
    for first in range(0, batch, chunk):
        part = slice(first, first + chunk)
        images = images_BHWK[part]
        pixels = memory[: len(images)].copy_(images)
        sum_BK = pixels.view(-1, height, width * colours).sum(1).view(-1, width, colours).sum(1)
        offset_B = (1 - contrast_B[part]) * brightness_B[part] * (sum_BK / (255 * height * width) @ grey_K)
        shift_BK = (offset_B.view(-1, 1) - mean_K) / std_K
        beside = (len(images), -1, together * colours)
        torch.baddbmm(
            shift_BK.repeat(1, together).unsqueeze(1), pixels.view(beside), block[part], out=changed[part].view(beside)
        )
        changed[part].view(-1, height, width * colours).clamp_(darkest, brightest)
    return changed.permute(0, 3, 1, 2)


def holes_tensor(holes: Sequence[Sequence[Hole]]) -> Tensor:
    """The rectangles of each image of a batch as a tensor, int32 (B, R, 4); every image has the same number."""
    rectangles = len(holes[0]) if holes else 0
    return torch.tensor(holes, dtype=torch.int32).view(len(holes), rectangles, 4)


def erase(images_BKHW: Tensor, holes_BR4: Tensor) -> Tensor:
    """Set the rectangles of each image to 0, in place; 0 is the mean of normalised images."""
    height, width = images_BKHW.shape[2:]
    holes_BR4 = holes_BR4.to(images_BKHW.device, non_blocking=True)
    top_BR1, left_BR1, bottom_BR1, right_BR1 = holes_BR4.unsqueeze(3).unbind(2)
    y_H, x_W = (torch.arange(length, device=images_BKHW.device) for length in (height, width))
    rows_BRH = (y_H >= top_BR1) & (y_H < bottom_BR1)
    columns_BRW = (x_W >= left_BR1) & (x_W < right_BR1)
    erased_BHW = (rows_BRH.unsqueeze(3) & columns_BRW.unsqueeze(2)).any(dim=1)
    return images_BKHW.masked_fill_(erased_BHW.unsqueeze(1), 0.0)
