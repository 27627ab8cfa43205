"""The embedded data set: the handwritten digits that ship inside scikit-learn, so that everything works offline."""

# Shapes: N examples, H height, W width; S = 8 and L = 32 are the small and the large side

import numpy as np
from numpy.typing import NDArray

from elfnet.data.types import SOURCES, LabelledImages, Source, SourceRequest
from elfnet.errors import WorkError
from elfnet.extras import missing_package

SIDE = 32
_LARGEST_VALUE = 16  # the data set counts inked pixels in 4 x 4 blocks


@SOURCES.register("digits")
def digits(request: SourceRequest | None = None) -> Source[LabelledImages]:
    """1,797 images of ten digits, 32 x 32 x 1, without a test split of their own."""
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
    """Bilinear enlargement to `side` x `side`, rounded to bytes.

    Bilinear rather than repeated pixels: a stroke of 4 x 4 blocks would show a 3 x 3 convolution nothing but flat
    areas and edges that lie on one fixed grid.
    """
    weights_LS = _bilinear_weights(small_NSS.shape[1], side)
    large_NLL = weights_LS @ small_NSS @ weights_LS.T
    large_NHW: NDArray[np.uint8] = np.rint(large_NLL.clip(0, 255)).astype(np.uint8)
    return large_NHW


def _bilinear_weights(small: int, large: int) -> NDArray[np.float64]:
    """How much each small pixel gives to each large one, shape (L, S); rows sum to 1, borders repeat the last pixel."""
    centres_L = ((np.arange(large) + 0.5) * small / large - 0.5).clip(0, small - 1)
    distance_LS = np.abs(centres_L[:, None] - np.arange(small))
    return (1 - distance_LS).clip(0, None)
