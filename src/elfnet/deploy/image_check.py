"""Images as every backend takes them."""

# Shapes: B examples, K channels, H height, W width

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import RequestError


def checked_images(images_BKHW: NDArray[np.float32], image_shape: tuple[int, ...] | None = None) -> NDArray[np.float32]:
    """The same numbers in one piece of memory; `image_shape` is (K, H, W) where the network takes no other."""
    if images_BKHW.ndim != 4 or (image_shape is not None and images_BKHW.shape[1:] != image_shape):
        wanted = "channels, height, width" if image_shape is None else ", ".join(map(str, image_shape))
        raise RequestError(f"images of shape {images_BKHW.shape} do not fit; the network takes (examples, {wanted})")
    if images_BKHW.dtype != np.float32:
        raise RequestError(f"images of type {images_BKHW.dtype} do not fit; give normalised float32")
    return np.ascontiguousarray(images_BKHW)
