"""Decoding: every mode and orientation as expected, every kind of damage named with the path."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin

from elfnet.data.images.decode import Limits, UnreadableImageError, decode, image_size
from elfnet.data.images.resize import Part, Pixels

LIMITS = Limits()


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def whole(width: int, height: int) -> Part:
    return Part((0, 0, width, height), (width, height))


def read(content: bytes, **changes: Any) -> Pixels:
    return decode(content, "x.png", changes.pop("limits", LIMITS), **changes)


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
        (b"hello", r"^x\.png is not an image or is damaged; give one of: JPEG, "),
        (encoded(Image.fromarray(gradient(60, 80)))[:-40], r"^x\.png is truncated or damaged; copy"),
        (smooth_jpeg(160, 120)[:-300], r"^x\.png is truncated or damaged \(.*truncated.*\); copy or save it again"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image or is damaged"),
    ],
    ids=["empty", "text", "truncated png", "truncated jpeg", "postscript"],
)
def test_damage_is_named_with_the_path(content: bytes, expected: str) -> None:
    with pytest.raises(UnreadableImageError, match=expected):
        read(content)


def test_too_many_pixels_are_refused_before_decoding() -> None:
    # The header promises what the limit forbids; the pixels themselves are not even there.
    bomb = encoded(Image.new("L", (2000, 1000)))[:60]
    with pytest.raises(UnreadableImageError, match=r"x\.png has 2000 x 1000 pixels, the limit is 1,500,000; make it"):
        read(bomb, limits=Limits(max_pixels=1_500_000))
    with pytest.raises(UnreadableImageError, match="truncated"):
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


def test_no_byte_of_a_png_may_differ() -> None:
    """Every byte of a PNG is covered by a checksum or by the structure of the file."""
    content = encoded(Image.fromarray(gradient()), exif=Image.Exif())
    assert content[-12:] == b"\0\0\0\0IEND\xaeB`\x82"
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(UnreadableImageError) as refused:
            read(bytes(damaged))
        assert str(refused.value).startswith("x.png ")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_no_shorter_file_is_read(kind: str) -> None:
    content = encoded(Image.fromarray(gradient(20, 30)), kind)
    for length in range(len(content)):
        with pytest.raises(UnreadableImageError):
            read(content[:length])
    # Programs append data of their own.
    assert np.array_equal(read(content + b"more"), read(content))


def test_a_truncated_jpeg_is_refused_when_it_is_decoded_at_a_smaller_size() -> None:
    content = smooth_jpeg(160, 120)
    for length in (len(content) - 1, len(content) - 2, len(content) // 2):
        with pytest.raises(UnreadableImageError, match="truncated"):
            read(content[:length], choose=lambda _w, _h: Part((0, 0, 160, 120), (20, 15)))


def test_damage_of_exif_alone_leaves_the_image_readable() -> None:
    tags = Image.Exif()
    tags[0x0112] = 6
    content = encoded(Image.fromarray(gradient(16, 16)), "JPEG", exif=tags)
    damaged = content.replace(b"Exif\0\0MM", b"Exif\0\0QQ").replace(b"Exif\0\0II", b"Exif\0\0QQ")
    assert damaged != content
    assert read(damaged).shape == (16, 16, 3)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "TIFF"])
def test_mutated_files_are_refused_in_one_line_or_read(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing but `UnreadableImageError` may come out, and nothing may be written."""
    rng = np.random.default_rng(22)
    options = {"compression": "tiff_lzw"} if kind == "TIFF" else {}
    content = encoded(Image.fromarray(gradient(24, 24)), kind, **options)
    messages = []
    for _ in range(100):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), 1 + rng.integers(3)).tolist():
            damaged[place] ^= 1 << rng.integers(8)
        try:
            read(bytes(damaged), limits=Limits(max_pixels=10_000))
        except UnreadableImageError as error:
            messages.append(str(error))
    assert len(messages) == 100 if kind == "PNG" else messages
    assert not [one for one in messages if "\n" in one or not one.startswith("x.png ")]
    assert capfd.readouterr() == ("", "")
