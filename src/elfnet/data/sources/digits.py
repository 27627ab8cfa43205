"""The handwritten digits of scikit-learn, enlarged to 32 x 32 pixels: a data set that needs no download."""

# Shapes: N examples, H height, W width; S = 8 and L = 32 are the small and the large side

import numpy as np
from numpy.typing import NDArray

from elfnet.data.types import SOURCES, LabelledImages, Source, SourceRequest
from elfnet.errors import WorkError
from elfnet.extras import missing_package

SIDE = 32
_LARGEST_VALUE = 16  # values are numbers of inked pixels in 4 x 4 blocks


@SOURCES.register("digits")
def digits(request: SourceRequest | None = None) -> Source[LabelledImages]:
    """1,797 images of ten digits, 32 x 32 x 1, without a test set."""
    if request is not None:
        request.refuse_group_column("digits")
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise WorkError(missing_package("data.source=digits", "sklearn")) from error
    bunch = load_digits()
    small_NSS = np.asarray(bunch.images, dtype=np.float64)
    images_NHW = enlarge(small_NSS * (255 / _LARGEST_VALUE), side=SIDE)
    return Source(
        name="digits",
        class_names=tuple(str(digit) for digit in range(10)),
        train=LabelledImages(images_NHW[..., None], np.asarray(bunch.target, dtype=np.int64)),
        test=None,
        horizontal_flip=False,
    )


def enlarge(small_NSS: NDArray[np.float64], *, side: int) -> NDArray[np.uint8]:
    """Enlarge images to `side` x `side` by bilinear interpolation, rounded to uint8.

    With repeated pixels instead, a 3 x 3 convolution would see only flat areas and edges on a fixed grid.
    """
    weights_LS = _bilinear_weights(small_NSS.shape[1], side)
    large_NLL = weights_LS @ small_NSS @ weights_LS.T
    large_NHW: NDArray[np.uint8] = np.rint(large_NLL.clip(0, 255)).astype(np.uint8)
    return large_NHW


def _bilinear_weights(small: int, large: int) -> NDArray[np.float64]:
    """Interpolation weights, shape (L, S): rows sum to 1, and border pixels are repeated outside."""
    centres_L = ((np.arange(large) + 0.5) * small / large - 0.5).clip(0, small - 1)
    distance_LS = np.abs(centres_L[:, None] - np.arange(small))
    return (1 - distance_LS).clip(0, None)
