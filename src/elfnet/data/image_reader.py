"""Where the parts of images come from: decoded when they are asked for, or from a packed cache."""

from typing import Protocol

from elfnet.data.image_files import EncodedImages
from elfnet.data.read_image import Limits, read_crop
from elfnet.data.resize import Choose, Pixels


class ImageReader(Protocol):
    """Reads parts of images by position."""

    def name(self, index: int) -> str: ...

    def part(self, index: int, choose: Choose) -> Pixels: ...


class Decoder:
    """Decodes when asked."""

    def __init__(self, images: EncodedImages, limits: Limits) -> None:
        self._images, self._limits = images, limits

    def name(self, index: int) -> str:
        return self._images.name(index)

    def part(self, index: int, choose: Choose) -> Pixels:
        """The part of an image that `choose(width, height)` names, at the size it names."""
        content = self._images.encoded(index, most_bytes=self._limits.most_bytes)
        return read_crop(content, self._images.name(index), choose=choose, limits=self._limits)
