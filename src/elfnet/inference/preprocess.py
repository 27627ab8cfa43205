"""What happens to an image before the network sees it: mode, size, normalisation.

The same arithmetic in the same order as the evaluation transform of training (`normalise` of
`data.loading.normalise`), so that an image of the training size gives the same numbers, bit for bit.
"""

# Shapes: N images, H height, W width, K channels

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from elfnet.data.images.decode import Limits
from elfnet.data.images.resize import Part
from elfnet.errors import RequestError, WorkError
from elfnet.inference.images import decode_image, part_of_picture, read_image

CHANNELS = {"L": 1, "RGB": 3}
RESIZE_RULE: Final = "centre-bilinear"
"""The middle with the network's proportions, brought to its size; bilinear, antialiased when made smaller."""
LIMITS = Limits()
CONTENT = "the image in memory"

ImageLike = str | Path | bytes | Image.Image | NDArray[Any]
"""A path, the content of an image file, a PIL image, or uint8 (H, W, K)."""


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """From anything that is an image to the network's input.

    Attributes:
        mode: "L" (grey) or "RGB".
        height, width: what the network was trained on.
        mean, std: of each channel, in [0, 1].
        crop_share: how much of the shorter side the middle has; 1 is all of it.
    """

    mode: str
    height: int
    width: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_share: float = 1.0

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, W, K) of one image."""
        return self.height, self.width, CHANNELS[self.mode]

    def __call__(self, images: Sequence[ImageLike], *, resize: bool = True) -> NDArray[np.float32]:
        """Paths, contents of files, pictures or uint8 arrays, mixed as you like: float32 (N, K, H, W)."""
        pixels_NHWK = np.empty((len(images), *self.shape), dtype=np.uint8)
        for position, image in enumerate(images):
            pixels_NHWK[position] = self.pixels(image, resize=resize)
        return self.normalise(pixels_NHWK)

    def pixels(self, image: ImageLike, *, resize: bool = True) -> NDArray[np.uint8]:
        """One image in the network's mode and size, uint8 (H, W, K). With `resize=False` another size is refused."""
        if isinstance(image, np.ndarray):
            return self._from_array(image)
        if isinstance(image, Image.Image):
            choose = partial(self._part, "the picture", resize)
            return part_of_picture(image, mode=self.mode, choose=choose, limits=LIMITS).reshape(self.shape)
        if isinstance(image, bytes):
            choose = partial(self._part, CONTENT, resize)
            return decode_image(image, CONTENT, mode=self.mode, choose=choose, limits=LIMITS).reshape(self.shape)
        if isinstance(image, str | Path):
            choose = partial(self._part, str(image), resize)
            return read_image(image, mode=self.mode, choose=choose, limits=LIMITS).reshape(self.shape)
        raise RequestError(f"{type(image).__name__} is not an image; give a path, bytes, a PIL image or a uint8 array")

    def normalise(self, pixels_NHWK: NDArray[np.uint8]) -> NDArray[np.float32]:
        """(pixel / 255 - mean) / std, float32 (N, K, H, W), contiguous."""
        mean_K, std_K = np.asarray(self.mean, dtype=np.float32), np.asarray(self.std, dtype=np.float32)
        scaled_NHWK = pixels_NHWK.astype(np.float32)
        scaled_NHWK /= np.float32(255)
        scaled_NHWK -= mean_K
        scaled_NHWK /= std_K
        return np.ascontiguousarray(scaled_NHWK.transpose(0, 3, 1, 2))

    def _from_array(self, array: NDArray[Any]) -> NDArray[np.uint8]:
        shape = array.shape if array.ndim == 3 or self.mode != "L" else (*array.shape, 1)
        if array.dtype != np.uint8 or shape != self.shape:
            raise RequestError(
                f"the array is {array.dtype} of shape {array.shape}, the network reads uint8 of shape {self.shape}; "
                "convert it, or give a PIL image, which is resized"
            )
        return array.reshape(self.shape)

    def _part(self, name: str, resize: bool, width: int, height: int) -> Part:
        """The middle that has the network's proportions, straight from the source: a long, thin image is no danger."""
        if not resize and (width, height) != (self.width, self.height):
            raise WorkError(
                f"{name} has {width} x {height} pixels, the network reads {self.width} x {self.height}; "
                "resize it, or allow resizing"
            )
        share = self.crop_share if resize else 1.0
        across = min(width, height * self.width / self.height) * share
        down = min(height, width * self.height / self.width) * share
        left, top = (width - across) / 2, (height - down) / 2
        return Part((left, top, left + across, top + down), (self.width, self.height))
