"""From bytes to what the network sees, for a whole batch and on its device: colour jitter and normalising.

Brightness, contrast and saturation are linear in the pixels, and so is normalising: all four are one 3 x 3 matrix and
an offset for each image. Values are cut to 0..255 once, at the end, not after each of the three.
"""

# Shapes: B batch, H height, W width, K = 3 colours, P pixels that are multiplied at once

import torch
from torch import Tensor

GREY_K = (0.299, 0.587, 0.114)  # luma of ITU-R BT.601


def normalise_bytes(images_BHWK: Tensor, *, mean_K: Tensor, std_K: Tensor) -> Tensor:
    """uint8 (B, H, W, K) to normalised float32 (B, K, H, W) in channels_last memory."""
    # One factor and one offset for each byte of a row: rows are long, colours are only three.
    width = images_BHWK.shape[2]
    scale, shift = (1 / (255 * std_K)).repeat(width), (-mean_K / std_K).repeat(width)
    rows = images_BHWK.flatten(2).float().mul_(scale).add_(shift)
    return rows.view(images_BHWK.shape).permute(0, 3, 1, 2)


def jitter_and_normalise(images_BHWK: Tensor, factors_B3: Tensor, *, mean_K: Tensor, std_K: Tensor) -> Tensor:
    """The same, colours changed first.

    Args:
        factors_B3: of brightness, of contrast about the image's mean grey, and of saturation, in this order; 1 changes
            nothing.
    """
    batch, height, width, colours = images_BHWK.shape
    pixels = images_BHWK.float()
    grey_K = torch.tensor(GREY_K, device=pixels.device)
    mean_BK = pixels.view(batch, height, -1).sum(1).view(batch, width, colours).sum(1) / (255 * height * width)
    brightness_B, contrast_B, saturation_B = factors_B3.unbind(1)
    offset_B = (1 - contrast_B) * brightness_B * (mean_BK @ grey_K)
    saturation = saturation_B.view(-1, 1, 1)
    # [b, i, o]: what colour i gives to colour o.
    mixed_BKK = saturation * torch.eye(3, device=pixels.device) + (1 - saturation) * grey_K.view(1, 3, 1)
    matrix_BKK = mixed_BKK * (brightness_B * contrast_B / 255).view(-1, 1, 1) / std_K
    shift_BK = (offset_B.view(-1, 1) - mean_K) / std_K
    # Matrices of three rows are too small to be multiplied quickly; several pixels side by side are not.
    together = next(count for count in (4, 2, 1) if height * width % count == 0)
    block = torch.einsum("pq,bio->bpiqo", torch.eye(together, device=pixels.device), matrix_BKK)
    block = block.reshape(batch, together * colours, together * colours)
    changed = torch.baddbmm(
        shift_BK.repeat(1, together).unsqueeze(1), pixels.view(batch, -1, together * colours), block
    )
    darkest, brightest = (-mean_K / std_K).repeat(width), ((1 - mean_K) / std_K).repeat(width)
    rows = changed.view(batch, height, width * colours).clamp_(darkest, brightest)
    return rows.view(images_BHWK.shape).permute(0, 3, 1, 2)
