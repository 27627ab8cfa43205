"""Convert images, or feature rows, to the input of a network: mode, crop, size and normalisation.

The arithmetic is that of evaluation during training (`elfnet.data.loading.normalise`), in the same order. An image of
the training size gives bit-identical input.
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

from elfnet.data.images.decode import Limits, OpenImage, open_image, open_picture, read_bytes
from elfnet.data.images.resize import Part, centre_crop_box
from elfnet.errors import RequestError, WorkError

CHANNELS = {"L": 1, "RGB": 3}
FEATURE_ROWS: Final = "features"
"""The mode of a network that reads rows of numbers instead of images: images of one pixel, a feature per channel."""
LIMITS = Limits()
CONTENT = "the image in memory"
"""How messages call an image that has no path."""

ImageLike = str | Path | bytes | Image.Image | NDArray[Any]
"""A path, the content of an image file, a PIL image, or a uint8 array (H, W, K)."""


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """Converts images of any kind to the input of a network.

    Attributes:
        mode: "L" (grey), "RGB", or "features".
        height: Height of the network's input.
        width: Width of the network's input.
        mean: Mean per channel, of pixels scaled to [0, 1]; or per feature.
        std: Standard deviation per channel, of pixels scaled to [0, 1]; or per feature.
        crop_share: Sides of the part of an image that is used, relative to the largest possible part.
        squash: The largest possible part is the whole image, whose aspect ratio then changes; otherwise the largest
            centre crop with the network's aspect ratio.
    """

    mode: str
    height: int
    width: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_share: float = 1.0
    squash: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, W, K) of one image."""
        return self.height, self.width, len(self.mean) if self.reads_rows else CHANNELS[self.mode]

    @property
    def reads_rows(self) -> bool:
        """Whether the network reads feature rows."""
        return self.mode == FEATURE_ROWS

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(H, W, K) of one image, or (K,) of one feature row, before normalisation."""
        return self.shape[2:] if self.reads_rows else self.shape

    @property
    def input_type(self) -> type[np.uint8] | type[np.float32]:
        """The type of one image or feature row before normalisation."""
        return np.float32 if self.reads_rows else np.uint8

    def require_images(self, what: str) -> None:
        """Refuse a network that reads feature rows, where `what` takes images.

        Raises:
            RequestError: The network reads feature rows.
        """
        if self.reads_rows:
            raise RequestError(
                f"the network reads rows of {len(self.mean)} features, and {what} takes images; "
                "classify rows in Python, with elfnet.load(FILE).predict(rows)"
            )

    def __call__(self, images: Sequence[ImageLike], *, resize: bool = True) -> NDArray[np.float32]:
        """Convert images, of one kind or mixed, to float32 (N, K, H, W)."""
        return self.normalise(self.stack(images, resize=resize))

    def stack(self, images: Sequence[ImageLike], *, resize: bool = True) -> NDArray[Any]:
        """Convert images, of one kind or mixed, to the network's mode and size, uint8 (N, H, W, K).

        Feature rows become float32 (N, K).
        """
        pixels_NHWK = np.empty((len(images), *self.input_shape), dtype=self.input_type)
        for position, image in enumerate(images):
            pixels_NHWK[position] = self.pixels(image, resize=resize)
        return pixels_NHWK

    def pixels(self, image: ImageLike | OpenImage, *, resize: bool = True) -> NDArray[Any]:
        """Convert one image to the network's mode and size, uint8 (H, W, K); or check one feature row.

        Args:
            image: The image. An array must have the network's size. An open image is closed.
            resize: Resize files and PIL images; if False, refuse other sizes.

        Raises:
            RequestError: The argument is not an image, or an array of another shape or type.
            WorkError: The image cannot be read, or has another size and `resize` is False.
        """
        if self.reads_rows:
            return self._from_row(image)
        if isinstance(image, np.ndarray):
            return self._from_array(image)
        if isinstance(image, Image.Image):
            # The image belongs to the caller and stays open.
            return self._crop(open_picture(image, "the picture", LIMITS), resize)
        if isinstance(image, bytes):
            image = open_image(image, CONTENT, LIMITS)
        elif isinstance(image, str | Path):
            image = open_image(read_bytes(Path(image), LIMITS), str(image), LIMITS)
        if not isinstance(image, OpenImage):
            raise RequestError(
                f"{type(image).__name__} is not an image; give a path, bytes, a PIL image or a uint8 array"
            )
        with image:
            return self._crop(image, resize)

    def _crop(self, image: OpenImage, resize: bool) -> NDArray[np.uint8]:
        choose = partial(self._part, image.name, resize)
        return image.crop(choose, mode=self.mode).reshape(self.shape)

    def normalise(self, pixels_NHWK: NDArray[Any]) -> NDArray[np.float32]:
        """Return (pixels / 255 - mean) / std as contiguous float32 (N, K, H, W); feature rows are not divided."""
        mean_K, std_K = np.asarray(self.mean, dtype=np.float32), np.asarray(self.std, dtype=np.float32)
        scaled_NHWK = pixels_NHWK.astype(np.float32).reshape(-1, *self.shape)
        if not self.reads_rows:
            scaled_NHWK /= np.float32(255)
        scaled_NHWK -= mean_K
        scaled_NHWK /= std_K
        return np.ascontiguousarray(scaled_NHWK.transpose(0, 3, 1, 2))

    def _from_row(self, row: object) -> NDArray[np.float32]:
        features_K = np.asarray(row) if isinstance(row, np.ndarray | Sequence) and not isinstance(row, str) else None
        if features_K is None or features_K.dtype.kind not in "fiub" or features_K.shape != self.input_shape:
            found = type(row).__name__ if features_K is None else f"{features_K.dtype} of shape {features_K.shape}"
            raise RequestError(f"{found} is not a row of {len(self.mean)} features; give numbers in an array")
        if not np.isfinite(features_K).all():
            raise RequestError("a feature is not finite; replace it")
        return features_K.astype(np.float32)

    def _from_array(self, array: NDArray[Any]) -> NDArray[np.uint8]:
        shape = array.shape if array.ndim == 3 or self.mode != "L" else (*array.shape, 1)
        if array.dtype != np.uint8 or shape != self.shape:
            raise RequestError(
                f"the array is {array.dtype} of shape {array.shape}, the network reads uint8 of shape {self.shape}; "
                "convert it, or give a PIL image, which is resized"
            )
        return array.reshape(self.shape)

    def _part(self, name: str, resize: bool, width: int, height: int) -> Part:
        """Return the part of an image that is used, and its size after resizing.

        Crop and resize are one step, so that a long, thin image needs no large intermediate image.
        """
        if not resize and (width, height) != (self.width, self.height):
            raise WorkError(
                f"{name} has {width} x {height} pixels, the network reads {self.width} x {self.height}; "
                "resize it, or allow resizing"
            )
        share = self.crop_share if resize else 1.0
        size = (self.width, self.height)
        return Part(centre_crop_box(width, height, size, share=share, squash=self.squash), size)
