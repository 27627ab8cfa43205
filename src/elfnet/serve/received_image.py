"""An image that came over the network, brought to the network's size."""

# Shapes: H height, W width, K channels

import re
import warnings
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from elfnet.data.read_image import FORMATS
from elfnet.deploy.images.preprocess import Preprocess
from elfnet.errors import WorkError
from elfnet.serve.asked import Upload
from elfnet.serve.refusal import Refusal


def judge_pixels_alone() -> None:
    """Keep Pillow's warning about many pixels out of the log: `most_pixels` decides, not Pillow.

    For the whole process, once, before there are threads: filters that are set and taken back around a call are not
    safe with several of them.
    """
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def decode_upload(upload: Upload, preprocess: Preprocess, *, most_pixels: int) -> NDArray[np.uint8]:
    """Pixels as `Model.predict` makes them of a picture, uint8 (H, W, K); 422 or 413 with the image's name."""
    name = upload.name
    if not upload.content:
        raise Refusal(422, f"{name} is empty; send an image file")
    try:
        # Only the header is read here.
        picture = Image.open(BytesIO(upload.content), formats=FORMATS)
    except Image.DecompressionBombError:
        raise Refusal(413, f"{name} has more than {most_pixels:,} pixels; make it smaller") from None
    except Exception:
        raise Refusal(422, f"{name} is not an image or is damaged; send one of: {', '.join(FORMATS)}") from None
    with picture:
        width, height = picture.size
        if width * height > most_pixels:
            raise Refusal(413, f"{name} has {width} x {height} pixels, the limit is {most_pixels:,}; make it smaller")
        try:
            return preprocess.pixels(picture)
        except WorkError as error:
            raise Refusal(422, re.sub(r"\bthe picture\b", lambda _: name, str(error), count=1)) from None
