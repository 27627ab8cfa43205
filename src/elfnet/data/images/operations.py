"""The image operations that AutoAugment, RandAugment and TrivialAugment choose from, with Pillow.

Every operation takes an 8-bit image (mode "RGB", or "L" for one channel) and an amount in natural units, and returns an
image of the same size and mode. What moves out of the image is lost; what moves in is mid-grey. Operations on colours
leave an image of one channel as it is.
"""

from collections.abc import Callable

from PIL import Image, ImageEnhance, ImageOps

FILL = 128
"""Value of the pixels that a shear, translation or rotation moves into the image."""

Operation = Callable[[Image.Image, float], Image.Image]
"""Gets the image and the amount."""


def _affine(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    """Output pixel (x, y) shows the input at (a x + b y + c, d x + e y + f), matrix = (a, b, c, d, e, f)."""
    return image.transform(
        image.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR, fillcolor=_fill(image)
    )


def _fill(image: Image.Image) -> int | tuple[int, ...]:
    return FILL if image.mode == "L" else (FILL,) * len(image.getbands())


def shear_x(image: Image.Image, slope: float) -> Image.Image:
    """Shift each row by `slope` pixels more than the row above it: to the left if positive. The first row stays."""
    return _affine(image, (1, slope, 0, 0, 1, 0))


def shear_y(image: Image.Image, slope: float) -> Image.Image:
    """Shift each column by `slope` pixels more than the one before: upwards if positive. The first column stays."""
    return _affine(image, (1, 0, 0, slope, 1, 0))


def translate_x(image: Image.Image, pixels: float) -> Image.Image:
    """Shift to the left by a whole number of pixels; to the right if negative."""
    return _affine(image, (1, 0, int(pixels), 0, 1, 0))


def translate_y(image: Image.Image, pixels: float) -> Image.Image:
    """Shift upwards by a whole number of pixels; downwards if negative."""
    return _affine(image, (1, 0, 0, 0, 1, int(pixels)))


def rotate(image: Image.Image, degrees: float) -> Image.Image:
    """Rotate about the centre; counterclockwise if positive."""
    return image.rotate(degrees, resample=Image.Resampling.BILINEAR, fillcolor=_fill(image))


def brightness(image: Image.Image, change: float) -> Image.Image:
    """Blend with black: -1 is black, 0 the image itself, positive values extrapolate."""
    return ImageEnhance.Brightness(image).enhance(1 + change)


def color(image: Image.Image, change: float) -> Image.Image:
    """Blend with the image without colour: -1 is grey, 0 the image itself. An image of one channel stays as it is."""
    return image if image.mode == "L" else ImageEnhance.Color(image).enhance(1 + change)


def contrast(image: Image.Image, change: float) -> Image.Image:
    """Blend with the mean grey of the image: -1 is uniform, 0 the image itself."""
    return ImageEnhance.Contrast(image).enhance(1 + change)


def sharpness(image: Image.Image, change: float) -> Image.Image:
    """Blend with a smoothed copy: -1 is smoothed, 0 the image itself, positive values sharpen."""
    return ImageEnhance.Sharpness(image).enhance(1 + change)


def posterize(image: Image.Image, bits: float) -> Image.Image:
    """Keep the highest `bits` bits of each value; 8 changes nothing."""
    return ImageOps.posterize(image, round(bits))


def solarize(image: Image.Image, threshold: float) -> Image.Image:
    """Invert values that are not below the threshold; 256 changes nothing."""
    # Pillow compares integers with it; math.ceil would do the same to a fraction.
    return ImageOps.solarize(image, threshold)  # type: ignore[arg-type]


def autocontrast(image: Image.Image, _amount: float) -> Image.Image:
    """Stretch the values of each channel to 0..255."""
    return ImageOps.autocontrast(image)


def equalize(image: Image.Image, _amount: float) -> Image.Image:
    """Make the histogram of each channel as even as possible."""
    return ImageOps.equalize(image)


def invert(image: Image.Image, _amount: float) -> Image.Image:
    """255 minus each value."""
    return ImageOps.invert(image)


def identity(image: Image.Image, _amount: float) -> Image.Image:
    """The image itself."""
    return image


OPERATIONS: dict[str, Operation] = {
    "identity": identity,
    "autocontrast": autocontrast,
    "equalize": equalize,
    "invert": invert,
    "rotate": rotate,
    "solarize": solarize,
    "posterize": posterize,
    "color": color,
    "contrast": contrast,
    "brightness": brightness,
    "sharpness": sharpness,
    "shear_x": shear_x,
    "shear_y": shear_y,
    "translate_x": translate_x,
    "translate_y": translate_y,
}
"""Every operation by name."""
