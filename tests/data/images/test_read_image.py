"""Decoding: every mode and orientation as expected, every kind of damage named with the path."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin

from elfnet.data.images.decode import Limits, UnreadableImageError, image_size, read_crop
from elfnet.data.images.resize import Part, Pixels

LIMITS = Limits()


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def whole(width: int, height: int) -> Part:
    return Part((0, 0, width, height), (width, height))


def read(content: bytes, **changes: Any) -> Pixels:
    settings: dict[str, Any] = {"choose": whole, "limits": LIMITS}
    return read_crop(content, "x.png", **(settings | changes))


def gradient(height: int = 6, width: int = 8) -> Pixels:
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows * 20, columns * 20, rows * columns], axis=-1).astype(np.uint8)


def smooth_jpeg(width: int, height: int) -> bytes:
    noise = np.random.default_rng(0).integers(0, 256, (height // 40, width // 40, 3), dtype=np.uint8)
    return encoded(Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC), "JPEG", quality=95)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_formats_come_back_bit_for_bit(kind: str) -> None:
    assert np.array_equal(read(encoded(Image.fromarray(gradient()), kind)), gradient())


def test_modes() -> None:
    grey = gradient()[..., 0]
    three = np.repeat(grey[..., None], 3, axis=-1)
    assert np.array_equal(read(encoded(Image.fromarray(grey))), three)
    assert np.array_equal(read(encoded(Image.fromarray(grey.astype(np.uint16) * 257))), three)
    assert np.array_equal(read(encoded(Image.fromarray(gradient()).convert("P"), "GIF")).shape, (6, 8, 3))
    assert np.unique(read(encoded(Image.fromarray(grey > 40)))).tolist() == [0, 255]
    cmyk = read(encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG"))
    assert cmyk[8, 8, 0] > 200
    assert cmyk[8, 8, 1:].max() < 60


def test_transparency_is_laid_on_white() -> None:
    clear = np.zeros((4, 4, 4), dtype=np.uint8)
    clear[:2] = (10, 20, 30, 255)
    pixels = read(encoded(Image.fromarray(clear)))
    assert pixels[0, 0].tolist() == [10, 20, 30]
    assert pixels[3, 3].tolist() == [255, 255, 255]


def test_floating_point_pixels_are_refused() -> None:
    with pytest.raises(UnreadableImageError, match=r"x\.png has floating-point pixels"):
        read(encoded(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF"))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_stood_upright(orientation: int) -> None:
    """The stored image is turned so that the tag undoes it; the result must be the original."""
    upright = Image.fromarray(gradient())
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = upright.transpose(undo[orientation]) if orientation > 1 else upright
    tags = Image.Exif()
    tags[0x0112] = orientation
    seen: list[tuple[int, int]] = []

    def choose(width: int, height: int) -> Part:
        seen.append((width, height))
        return whole(width, height)

    assert np.array_equal(read(encoded(stored, exif=tags), choose=choose), gradient())
    assert seen == [(8, 6)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", r"x\.png is empty"),
        (b"hello", r"image x\.png is damaged or not an image$"),
        (encoded(Image.fromarray(gradient(60, 80)))[:-40], "damaged or not an image"),
        (smooth_jpeg(160, 120)[:-300], "damaged or not an image .*truncated"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "damaged or not an image"),
    ],
    ids=["empty", "text", "truncated png", "truncated jpeg", "postscript"],
)
def test_damage_is_named_with_the_path(content: bytes, expected: str) -> None:
    with pytest.raises(UnreadableImageError, match=expected):
        read(content)


def test_too_many_pixels_are_refused_before_decoding() -> None:
    # The header promises what the limit forbids; the pixels themselves are not even there.
    bomb = encoded(Image.new("L", (2000, 1000)))[:60]
    with pytest.raises(UnreadableImageError, match=r"x\.png has 2000 x 1000 pixels, more than 1\.5 million.*max_mega"):
        read(bomb, limits=Limits(max_pixels=1_500_000))
    with pytest.raises(UnreadableImageError, match="damaged"):
        read(bomb)


def test_image_size_needs_the_whole_image() -> None:
    assert image_size(smooth_jpeg(160, 120), "", LIMITS) == (160, 120)
    with pytest.raises(UnreadableImageError):
        image_size(smooth_jpeg(160, 120)[:-300], "", LIMITS)


def test_a_part_is_what_cropping_and_resizing_gives() -> None:
    rows, columns = np.mgrid[:60, :80]
    pixels = np.stack([2 * rows, 3 * columns, rows + columns], axis=-1).astype(np.uint8)
    found = read(encoded(Image.fromarray(pixels)), choose=lambda _w, _h: Part((10, 5, 50, 35), (20, 15)))
    naive = pixels[5:35, 10:50].astype(float).reshape(15, 2, 20, 2, 3).mean(axis=(1, 3))
    # On a plane of colour every averaging filter gives the value at the centre.
    assert np.abs(found[2:-2, 2:-2] - naive[2:-2, 2:-2]).max() <= 1


@pytest.mark.parametrize(("side", "scales"), [(400, 1), (299, 2), (150, 4), (80, 4), (70, 8)])
def test_the_decoder_downscales_only_where_enough_pixels_are_left(
    monkeypatch: pytest.MonkeyPatch, side: int, scales: int
) -> None:
    """600 pixels brought to `side`: the decoder may halve them as long as at least `side` are left."""
    asked: list[tuple[int, int]] = []
    real = JpegImagePlugin.JpegImageFile.draft

    def spy(image: Any, mode: str | None, size: tuple[int, int]) -> Any:
        asked.append(size)
        return real(image, mode, size)

    monkeypatch.setattr(JpegImagePlugin.JpegImageFile, "draft", spy)
    content = smooth_jpeg(800, 600)

    def square(_width: int, _height: int) -> Part:
        return Part((100, 0, 700, 600), (side, side))

    quick = read(content, choose=square).astype(int)
    assert asked == ([(800 // scales, 600 // scales)] if scales > 1 else [])
    exact = read(content, choose=square, downscale=False).astype(int)
    assert np.abs(quick - exact).mean() < 1
    assert np.abs(quick - exact).max() <= 12
