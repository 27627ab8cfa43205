"""An image that came over the network, brought to the network's size."""

# Shapes: H height, W width, K channels

import re
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from elfnet.data.read_image import FORMATS
from elfnet.deploy.images.preprocess import Preprocess
from elfnet.errors import WorkError
from elfnet.serve.asked import Upload
from elfnet.serve.refusal import Refusal


def open_upload(upload: Upload, *, most_pixels: int) -> Image.Image:
    """An image of which only the header was read; 422 or 413 with its name."""
    name = upload.name
    if not upload.content:
        raise Refusal(422, f"{name} is empty; send an image file")
    try:
        picture = Image.open(BytesIO(upload.content), formats=FORMATS)
    except Image.DecompressionBombError:
        raise Refusal(413, f"{name} has more than {most_pixels:,} pixels; make it smaller") from None
    except Exception:
        raise Refusal(422, f"{name} is not an image or is damaged; send one of: {', '.join(FORMATS)}") from None
    width, height = picture.size
    if width * height > most_pixels:
        raise Refusal(413, f"{name} has {width} x {height} pixels, the limit is {most_pixels:,}; make it smaller")
    return picture


def decode(picture: Image.Image, name: str, preprocess: Preprocess) -> NDArray[np.uint8]:
    """Pixels as `Model.predict` makes them of a picture, uint8 (H, W, K); 422 with the image's name."""
    try:
        return preprocess.pixels(picture)
    except WorkError as error:
        raise Refusal(422, re.sub(r"\bthe picture\b", lambda _: name, str(error), count=1)) from None
