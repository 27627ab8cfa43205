"""Batches of examples in memory: images, and feature rows as images of one pixel.

`CropFlipSource` crops and flips whole batches on the device. The padded images and their mirror images are kept as
uint8. A row of a crop is then a contiguous run of bytes, so that a batch is one `index_select` of runs. Rows are stored
(width, channel), as channels_last needs it.

`AugmentedSource` applies any augmentation, image by image on the host. `PlainSource` only normalises, for evaluation.
`FeatureSource` normalises feature rows.
"""

# Shapes: N examples of the split, r examples of a request, H height, W width, K channels, F features

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elfnet.data.images.transforms import Augmentation
from elfnet.data.loading.feed import InMemorySource, Request
from elfnet.data.loading.normalise import Normalisation, erase, holes_tensor, normalise, normalise_bytes
from elfnet.data.loading.sampler import ExampleRng
from elfnet.data.sources.arrays import FeatureRows


class CropFlipSource(InMemorySource):
    """Training images with random crop and flip.

    Args:
        images_NHWK: uint8 images without padding.
        pad: Zero padding on each side before a random crop of the original size; 0 for no crop.
        flip: Mirror half of the images.
    """

    draws_crops_by_batch = True

    def __init__(
        self,
        images_NHWK: NDArray[np.uint8],
        normalisation: Normalisation,
        *,
        pad: int,
        flip: bool,
        device: torch.device,
    ) -> None:
        images, self._height, self._width, self._channels = images_NHWK.shape
        self._pad, self._flip, self._images, self._device = pad, flip, images, device
        mean_K, std_K = torch.tensor(normalisation.mean_K), torch.tensor(normalisation.std_K)
        on_device = torch.from_numpy(images_NHWK).to(device)
        padded = torch.nn.functional.pad(on_device, (0, 0, pad, pad, pad, pad)).contiguous()
        if flip:
            padded = torch.cat([padded, padded.flip(2)])
        self._columns = self._width + 2 * pad
        self._rows = self._height + 2 * pad
        # All runs of bytes with the length of a row, by start: overlapping views of the padded images, without a copy.
        run = self._width * self._channels
        self._runs = padded.view(-1).as_strided((padded.numel() - run + 1, run), (1, 1))
        self._line_H = torch.arange(self._height, device=device) * (self._columns * self._channels)
        # One factor and one offset per byte of a row.
        self._scale = (1 / (255 * std_K)).to(device, torch.float32).repeat(self._width)
        self._shift = (-mean_K / std_K).to(device, torch.float32).repeat(self._width)

    def gather(self, epoch: int, request: Request) -> Tensor:  # noqa: ARG002 (the feed draws the random numbers)
        """The normalised images of a request, float32 (r, K, H, W) in channels_last memory."""
        assert request.crops_3r is not None, "the feed draws the random numbers of this source"
        top_r, left_r, mirrored_r = request.crops_3r.to(self._device, non_blocking=True)
        image_r = torch.from_numpy(request.rows_r).to(self._device, non_blocking=True)
        if self._flip:
            image_r = image_r + self._images * (mirrored_r % 2)
        top_r, left_r = top_r % (2 * self._pad + 1), left_r % (2 * self._pad + 1)
        corner_r = ((image_r * self._rows + top_r) * self._columns + left_r) * self._channels
        start = (corner_r.unsqueeze(1) + self._line_H).flatten()
        pixels = self._runs.index_select(0, start).float().mul_(self._scale).add_(self._shift)
        return pixels.view(len(image_r), self._height, self._width, self._channels).permute(0, 3, 1, 2)


class AugmentedSource(InMemorySource):
    """Training images with any augmentation, which is a function of (seed, epoch, row, repeat).

    Args:
        images_NHWK: uint8 images on the host, where they are augmented.
        seed: Seed of the augmentation.
        device: Device of the batches.
    """

    def __init__(
        self,
        images_NHWK: NDArray[np.uint8],
        augmentation: Augmentation,
        normalisation: Normalisation,
        *,
        seed: int,
        device: torch.device,
    ) -> None:
        self._images_NHWK, self._augmentation, self._seed = images_NHWK, augmentation, seed
        self._mean_K, self._std_K = normalisation.tensors(device)
        self._device = device

    def gather(self, epoch: int, request: Request) -> Tensor:
        """The normalised images of a request, float32 (r, K, H, W) in channels_last memory."""
        _, height, width, channels = self._images_NHWK.shape
        pixels_rHWK = np.empty((len(request.rows_r), height, width, channels), dtype=np.uint8)
        numbers = ExampleRng(self._seed, epoch)
        holes = []
        examples = zip(request.rows_r.tolist(), request.repeat_r.tolist(), strict=True)
        for place, (row, repeat) in enumerate(examples):
            rng = numbers.of(row, repeat)
            pixels_rHWK[place] = self._augmentation.augment_array(self._images_NHWK[row], rng)
            holes.append(self._augmentation.holes(height, width, rng))
        pixels = torch.from_numpy(pixels_rHWK).to(self._device, non_blocking=True)
        images = normalise_bytes(pixels, mean_K=self._mean_K, std_K=self._std_K)
        return erase(images, holes_tensor(holes)) if self._augmentation.erases else images


class PlainSource(InMemorySource):
    """Evaluation images, without augmentation."""

    def __init__(self, images_NHWK: NDArray[np.uint8], normalisation: Normalisation, *, device: torch.device) -> None:
        self._images_NHWK = images_NHWK
        self._mean_K, self._std_K = normalisation.tensors(device)
        self._device = device

    def gather(self, epoch: int, request: Request) -> Tensor:  # noqa: ARG002 (evaluation has no epochs)
        """The normalised images of a request, float32 (r, K, H, W) in channels_last memory."""
        pixels = torch.from_numpy(self._images_NHWK[request.rows_r]).to(self._device, non_blocking=True)
        return normalise(pixels, mean_K=self._mean_K, std_K=self._std_K)


def measured_normalisation(rows: FeatureRows) -> Normalisation:
    """Measure mean and standard deviation per feature; the deviation of a constant feature is 1."""
    mean_F = rows.features_NF.mean(axis=0, dtype=np.float64)
    std_F = rows.features_NF.std(axis=0, dtype=np.float64)
    return Normalisation(tuple(mean_F.tolist()), tuple(np.where(std_F > 0, std_F, 1.0).tolist()))


class FeatureSource(InMemorySource):
    """Normalised feature rows for training and evaluation, without augmentation."""

    def __init__(self, rows: FeatureRows, normalisation: Normalisation, *, device: torch.device) -> None:
        self._features_NF = torch.from_numpy(rows.features_NF).to(device)
        self._mean_F, self._std_F = normalisation.tensors(device)

    def gather(self, epoch: int, request: Request) -> Tensor:  # noqa: ARG002 (a row is the same in every epoch)
        """The normalised rows of a request, float32 (r, F, 1, 1)."""
        rows_r = torch.from_numpy(request.rows_r).to(self._features_NF.device, non_blocking=True)
        return ((self._features_NF[rows_r] - self._mean_F) / self._std_F)[:, :, None, None]
