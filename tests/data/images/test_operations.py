"""Every image operation against a formula of its own, with the sign and both ends of its amounts."""

# Shapes: H height, W width, K channels

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

from elfnet.data.images.operations import FILL, OPERATIONS

Pixels = NDArray[np.uint8]
GREY = (0.299, 0.587, 0.114)


def _pixels(channels: int) -> Pixels:
    noise = np.random.default_rng(0).integers(30, 200, (8, 8, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(noise).resize((20, 16), Image.Resampling.BICUBIC))
    return smooth if channels == 3 else smooth[..., :1]


def _apply(name: str, pixels: Pixels, amount: float) -> Pixels:
    image = Image.fromarray(pixels if pixels.shape[-1] == 3 else pixels[..., 0])
    changed = OPERATIONS[name](image, amount)
    assert (changed.size, changed.mode) == (image.size, image.mode)
    found = np.asarray(changed)
    return found if found.ndim == 3 else found[..., None]


def _shifted(pixels: Pixels, *, left: int = 0, up: int = 0) -> Pixels:
    height, width, _ = pixels.shape
    found = np.full_like(pixels, FILL)
    for y in range(height):
        for x in range(width):
            if 0 <= y + up < height and 0 <= x + left < width:
                found[y, x] = pixels[y + up, x + left]
    return found


def _blend(low: NDArray[np.float64] | float, pixels: Pixels, factor: float) -> NDArray[np.float64]:
    return np.clip(low + factor * (pixels - low), 0, 255)


def _grey(pixels: Pixels) -> NDArray[np.float64]:
    return pixels @ np.array(GREY) if pixels.shape[-1] == 3 else pixels[..., 0].astype(float)


def _smoothed(pixels: Pixels) -> NDArray[np.float64]:
    """A 3 x 3 mean in which the middle counts five times; the border stays."""
    found = pixels.astype(float)
    height, width, _ = pixels.shape
    for y in range(1, height - 1):
        for x in range(1, width - 1):
            around = pixels[y - 1 : y + 2, x - 1 : x + 2].astype(float).sum(axis=(0, 1))
            found[y, x] = (around + 4.0 * pixels[y, x]) / 13
    return found


def _stretched(pixels: Pixels) -> NDArray[np.float64]:
    low, high = pixels.min(axis=(0, 1)).astype(float), pixels.max(axis=(0, 1)).astype(float)
    stretched: NDArray[np.float64] = (pixels - low) * 255 / (high - low)
    return stretched


def _equalized(pixels: Pixels) -> NDArray[np.float64]:
    """Every value becomes its place among the sorted values, counted in steps of the mean count of a value."""
    found = np.empty(pixels.shape)
    for channel in range(pixels.shape[-1]):
        values = pixels[..., channel].ravel()
        step = (values.size - np.count_nonzero(values == values.max())) // 255
        if step == 0:  # fewer pixels than values: Pillow leaves the channel as it is
            found[..., channel] = pixels[..., channel]
            continue
        below = np.array([np.count_nonzero(values < value) for value in range(256)])
        found[..., channel] = np.minimum((below + step // 2) // step, 255)[pixels[..., channel]]
    return found


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("amount", [-14.5, -3, 0, 5.9, 14.5])
def test_translations_move_whole_pixels_and_fill_with_grey(channels: int, amount: float) -> None:
    pixels = _pixels(channels)
    assert np.array_equal(_apply("translate_x", pixels, amount), _shifted(pixels, left=int(amount)))
    assert np.array_equal(_apply("translate_y", pixels, amount), _shifted(pixels, up=int(amount)))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("slope", [-0.3, 0.3, 0.99])
def test_shears_move_each_line_by_the_slope(channels: int, slope: float) -> None:
    """Line i moves by slope (i + 1/2), since lines are sampled at their middle, with linear interpolation."""
    pixels = _pixels(channels)
    for name, turned in (("shear_x", False), ("shear_y", True)):
        source = pixels.swapaxes(0, 1) if turned else pixels
        found = _apply(name, pixels, slope)
        found = found.swapaxes(0, 1) if turned else found
        lines, length, _ = source.shape
        for i in range(lines):
            at = np.arange(length) + slope * (i + 0.5)
            inside = (at + 0.5 >= 0) & (at + 0.5 < length)
            assert (found[i][~inside] == FILL).all()
            expected = np.stack([np.interp(at, np.arange(length), source[i, :, k]) for k in range(channels)], axis=1)
            assert (np.abs(found[i][inside] - expected[inside]) <= 1).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_rotations_are_counterclockwise_about_the_middle(channels: int) -> None:
    square = _pixels(channels)[:, :16]
    assert np.array_equal(_apply("rotate", square, 90), np.rot90(square))
    assert np.array_equal(_apply("rotate", square, -90), np.rot90(square, -1))
    corner = _apply("rotate", square, 30)[0, 0]
    assert (corner == FILL).all(), "corners come from outside of the image"


Formula = Callable[[Pixels, float], NDArray[np.float64]]


def _of_value(change: Callable[[Pixels], NDArray[np.float64] | Pixels]) -> Formula:
    return lambda pixels, _amount: np.asarray(change(pixels), dtype=float)


FORMULAS: dict[str, tuple[tuple[float, ...], Formula]] = {
    "identity": ((0.0,), _of_value(lambda pixels: pixels)),
    "invert": ((0.0,), _of_value(lambda pixels: 255 - pixels)),
    "autocontrast": ((0.0,), _of_value(_stretched)),
    "equalize": ((0.0,), _of_value(_equalized)),
    "brightness": ((-0.99, -0.9, 0.0, 0.9, 0.99), lambda pixels, amount: _blend(0.0, pixels, 1 + amount)),
    "color": (
        (-0.99, -0.9, 0.0, 0.9, 0.99),
        lambda pixels, amount: _blend(np.rint(_grey(pixels))[..., None], pixels, 1 + amount),
    ),
    "contrast": (
        (-0.99, -0.9, 0.0, 0.9, 0.99),
        lambda pixels, amount: _blend(float(np.rint(np.rint(_grey(pixels)).mean())), pixels, 1 + amount),
    ),
    "sharpness": ((-0.99, -0.9, 0.0, 0.9, 0.99), lambda pixels, amount: _blend(_smoothed(pixels), pixels, 1 + amount)),
    "posterize": (
        (8, 7.4, 4, 2),
        lambda pixels, bits: (pixels // 2 ** (8 - round(bits)) * 2 ** (8 - round(bits))).astype(float),
    ),
    "solarize": (
        (256, 184.3, 128, 0),
        lambda pixels, threshold: np.where(pixels < threshold, pixels, 255 - pixels).astype(float),
    ),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("name", "amount"), [(name, amount) for name, (amounts, _) in FORMULAS.items() for amount in amounts]
)
def test_operations_on_values_are_their_formulas(name: str, amount: float, channels: int) -> None:
    pixels = _pixels(channels)
    if name == "equalize":
        pixels = np.tile(pixels, (3, 3, 1))  # more pixels than values
    found, expected = _apply(name, pixels, amount), FORMULAS[name][1](pixels, amount)
    # Pillow rounds what it blends with, and the result.
    assert np.abs(found - expected).max() <= 2, f"largest difference {np.abs(found - expected).max()}"


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [1, 7, 32, 150])
@pytest.mark.parametrize("values", [(0, 256), (30, 200), (100, 104), (77, 78)])
def test_operations_on_values_are_pillows(channels: int, size: int, values: tuple[int, int]) -> None:
    """Bit for bit, for images of many values, of few, and of one."""
    rng = np.random.default_rng(size)
    pixels = rng.integers(*values, (size, size + 1, channels), dtype=np.uint8)
    pixels[: size // 2] = rng.integers(*values, dtype=np.uint8)  # an uneven histogram
    image = Image.fromarray(pixels if channels == 3 else pixels[..., 0])
    pairs = [
        ("invert", 0.0, ImageOps.invert(image)),
        ("autocontrast", 0.0, ImageOps.autocontrast(image)),
        ("equalize", 0.0, ImageOps.equalize(image)),
        *(("posterize", bits, ImageOps.posterize(image, bits)) for bits in range(1, 9)),
        *(("solarize", threshold, ImageOps.solarize(image, threshold)) for threshold in (0, 99, 256)),
    ]
    for name, amount, expected in pairs:
        assert np.array_equal(np.asarray(OPERATIONS[name](image, amount)), np.asarray(expected)), name


def test_every_operation_has_a_test() -> None:
    assert OPERATIONS.keys() == {*FORMULAS, "translate_x", "translate_y", "shear_x", "shear_y", "rotate"}


def test_an_image_of_one_channel_keeps_its_values_when_colours_change() -> None:
    grey = _pixels(1)
    assert np.array_equal(_apply("color", grey, 0.9), grey)
