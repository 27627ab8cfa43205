"""Files that may be anything: what is read, and what is refused in one line."""

import os
import struct
import threading
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from elfnet.data.images.decode import Limits, decode, open_picture, read_bytes
from elfnet.data.images.resize import Choose, Part
from elfnet.data.images.silence import silent_decoders
from elfnet.errors import WorkError


def whole(width: int, height: int) -> Part:
    return Part((0, 0, width, height), (width, height))


def allowed(limits: dict[str, int]) -> Limits:
    return Limits(**limits)  # type: ignore[arg-type]


def read_image(path: Path, *, mode: str, **limits: int) -> NDArray[np.uint8]:
    return decode(read_bytes(path, allowed(limits)), str(path), allowed(limits), mode=mode)


def crop_picture(picture: Image.Image, *, choose: Choose = whole, **limits: int) -> NDArray[np.uint8]:
    return open_picture(picture, "the picture", allowed(limits)).crop(choose)


@pytest.fixture
def colours() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)


@pytest.fixture
def picture(colours: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(colours)


def refused(path: Path, **limits: int) -> str:
    with pytest.raises(WorkError) as caught:
        read_image(path, mode="RGB", **limits)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def png_header(width: int, height: int, *, bits: int = 8, colour: int = 2) -> bytes:
    """A PNG that claims a size and holds almost nothing."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "webp"])
def test_lossless_files_come_back_byte_for_byte(
    tmp_path: Path, picture: Image.Image, colours: NDArray[np.uint8], suffix: str
) -> None:
    path = tmp_path / f"a.{suffix}"
    picture.save(path, lossless=True)
    assert np.array_equal(read_image(path, mode="RGB"), colours)


def grey_of(colours: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """ITU-R 601 luma."""
    weights = np.array([0.299, 0.587, 0.114])
    grey: NDArray[np.uint8] = np.rint(colours.astype(np.float64) @ weights).astype(np.uint8)
    return grey


def test_colour_becomes_grey_and_grey_becomes_colour(
    tmp_path: Path, picture: Image.Image, colours: NDArray[np.uint8]
) -> None:
    picture.save(tmp_path / "colour.png")
    grey = read_image(tmp_path / "colour.png", mode="L")
    assert np.abs(grey.astype(int) - grey_of(colours)).max() <= 1
    Image.fromarray(colours[..., 0]).save(tmp_path / "grey.png")
    repeated = read_image(tmp_path / "grey.png", mode="RGB")
    assert np.array_equal(repeated, np.repeat(colours[..., :1], 3, axis=2))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA"])
def test_modes_that_are_converted(tmp_path: Path, picture: Image.Image, mode: str) -> None:
    path = tmp_path / "a.png"
    picture.convert(mode).save(path)
    expected = np.asarray(picture.convert(mode).convert("RGB"))  # opaque: transparency is a test of its own
    assert np.array_equal(read_image(path, mode="RGB"), expected)


def test_transparency_lies_on_white(tmp_path: Path, colours: NDArray[np.uint8]) -> None:
    alpha = np.full((5, 7, 1), 51, dtype=np.uint8)  # a fifth
    Image.fromarray(np.concatenate([colours, alpha], axis=2)).save(tmp_path / "a.png")
    expected = colours * 0.2 + 255 * 0.8
    assert np.abs(read_image(tmp_path / "a.png", mode="RGB") - expected).max() <= 1


def test_palette_with_transparency(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    palette = Image.new("P", (2, 1))
    palette.putpalette([255, 0, 0, 0, 0, 255])
    palette.putdata([0, 1])
    palette.save(path, transparency=bytes([0, 255]))
    assert read_image(path, mode="RGB").tolist() == [[[255, 255, 255], [0, 0, 255]]]


@pytest.mark.parametrize(
    ("orientation", "turn"),
    [
        (1, lambda a: a),
        (2, np.fliplr),
        (3, lambda a: np.rot90(a, 2)),
        (4, np.flipud),
        (6, lambda a: np.rot90(a, -1)),
        (8, np.rot90),
    ],
)
def test_exif_orientation_is_applied(
    tmp_path: Path,
    picture: Image.Image,
    colours: NDArray[np.uint8],
    orientation: int,
    turn: Callable[[NDArray[np.uint8]], NDArray[np.uint8]],
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture.save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(read_image(tmp_path / "a.png", mode="RGB"), turn(colours))


def test_animation_gives_its_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ((255, 0, 0), (0, 255, 0))]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert read_image(tmp_path / "a.gif", mode="RGB")[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize(("mode", "suffix"), [("I;16", "png"), ("I;16", "tif"), ("I", "tif")])
def test_sixteen_bits_keep_their_high_byte(tmp_path: Path, mode: str, suffix: str) -> None:
    Image.new(mode, (4, 4), 40_000).save(tmp_path / f"a.{suffix}")
    assert np.unique(read_image(tmp_path / f"a.{suffix}", mode="L")).tolist() == [40_000 // 256]


def test_values_beyond_sixteen_bits_are_refused(tmp_path: Path) -> None:
    Image.new("I", (4, 4), 70_000).save(tmp_path / "a.tif")
    assert "beyond 16 bits" in refused(tmp_path / "a.tif")
    Image.new("F", (4, 4)).save(tmp_path / "b.tif")
    assert "floating-point pixels" in refused(tmp_path / "b.tif")


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "bmp", "tif", "webp"])
@pytest.mark.parametrize("kept", [0.3, 0.7, 0.95])
def test_truncated_files(tmp_path: Path, suffix: str, kept: float) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / f"a.{suffix}")
    content = (tmp_path / f"a.{suffix}").read_bytes()
    (tmp_path / f"a.{suffix}").write_bytes(content[: int(kept * len(content))])
    refused(tmp_path / f"a.{suffix}")


def test_files_that_are_no_image(tmp_path: Path) -> None:
    for name, content, expected in (
        ("a.png", b"", "is empty"),
        ("b.png", b"hello", "not an image"),
        ("c.png", b"\x89PNG\r\n\x1a\n", "not an image"),
        ("d.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
    ):
        (tmp_path / name).write_bytes(content)
        assert expected in refused(tmp_path / name)
    assert "no image" in refused(tmp_path / "nowhere.png")
    assert "contains no image" in refused(tmp_path)
    assert "cannot read" in refused(tmp_path / "a.png" / "b.png")


def test_damaged_bytes_are_refused_or_read_but_never_crash(tmp_path: Path, picture: Image.Image) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "a"
    for suffix in ("png", "jpeg", "gif", "tiff", "webp", "bmp"):
        picture.save(path, format=suffix)
        content = np.frombuffer(path.read_bytes(), dtype=np.uint8)
        for _ in range(40):
            damaged = content.copy()
            damaged[rng.integers(0, len(content), 4)] = rng.integers(0, 256, 4)
            path.write_bytes(damaged.tobytes())
            # Anything but a WorkError fails the test.
            with suppress(WorkError):
                read_image(path, mode="RGB", max_pixels=10_000)


@pytest.mark.parametrize(("width", "height"), [(85_000, 1_000), (12_000, 10_000), (60_000, 60_000)])
def test_enormous_images_are_refused_from_their_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, height: int
) -> None:
    """Below Pillow's own limits, where it warns, and where it refuses."""
    (tmp_path / "a.png").write_bytes(png_header(width, height))
    monkeypatch.setattr(Image.Image, "load", lambda _: pytest.fail("was decoded"))
    assert "80,000,000" in refused(tmp_path / "a.png")


def test_limits(tmp_path: Path, picture: Image.Image) -> None:
    path = tmp_path / "a.bmp"
    picture.save(path)
    size = path.stat().st_size
    assert f"{size - 1:,} bytes" in refused(path, max_bytes=size - 1)
    assert "the limit is 34" in refused(path, max_pixels=34)
    assert read_image(path, mode="RGB", max_bytes=size, max_pixels=35).shape == (5, 7, 3)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    assert "not a regular file" in refused(tmp_path / "a.png")


def test_pictures_in_memory_are_checked_alike(picture: Image.Image) -> None:
    found = crop_picture(picture.convert("RGBA"))
    assert np.array_equal(found, np.asarray(picture))
    assert np.array_equal(crop_picture(picture.convert("CMYK")), np.asarray(picture.convert("CMYK").convert("RGB")))
    with pytest.raises(WorkError, match="the picture has floating-point pixels"):
        crop_picture(picture.convert("F"))
    with pytest.raises(WorkError, match="the limit is 34"):
        crop_picture(picture, max_pixels=34)


def test_the_content_of_a_file_is_read_like_the_file(tmp_path: Path, colours: NDArray[np.uint8]) -> None:
    for suffix in ("png", "jpg", "bmp"):
        path = tmp_path / f"a.{suffix}"
        Image.fromarray(colours).save(path)
        found = decode(path.read_bytes(), "it", Limits())
        assert np.array_equal(found, read_image(path, mode="RGB"))


@pytest.mark.parametrize(
    ("content", "limits", "message"),
    [
        (b"", {}, "it is empty; copy it again"),
        (b"hello", {}, "it is not an image or is damaged; give one of: JPEG, "),
        (b"x" * 101, {"max_bytes": 100}, "it has more than 100 bytes; make it smaller"),
        (png_header(9000, 9000), {}, "it has 9000 x 9000 pixels, the limit is 80,000,000; make it smaller"),
        (png_header(30, 30), {}, "it is truncated or damaged ("),
    ],
)
def test_content_that_is_refused(content: bytes, limits: dict[str, int], message: str) -> None:
    with pytest.raises(WorkError) as caught:
        decode(content, "it", allowed(limits))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_picture_from_a_truncated_file(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(content[: len(content) // 2])
    with Image.open(tmp_path / "a.png") as picture, pytest.raises(WorkError, match="the picture is truncated"):
        crop_picture(picture)


def test_warning_filters_survive_many_threads(tmp_path: Path, picture: Image.Image) -> None:
    picture.save(tmp_path / "a.png")
    before = list(warnings.filters)
    workers = [
        threading.Thread(target=lambda: [read_image(tmp_path / "a.png", mode="L") for _ in range(20)]) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert list(warnings.filters) == before


def test_a_picture_that_needs_nothing_is_taken_as_it_is(picture: Image.Image, colours: NDArray[np.uint8]) -> None:
    found = crop_picture(picture)
    np.testing.assert_array_equal(found, colours)
    turned = picture.copy()
    turned.getexif()[0x0112] = 6
    found = crop_picture(turned)
    np.testing.assert_array_equal(found, np.rot90(colours, -1))
    assert turned.size == picture.size


def test_where_pillow_is_silent_threads_decode_side_by_side(picture: Image.Image) -> None:
    """Both come to the barrier while they decode; with a lock around decoding, the second never would."""
    both = threading.Barrier(2, timeout=10)

    def choose(width: int, height: int) -> Part:
        both.wait()
        warnings.warn_explicit("odd metadata", UserWarning, "Image.py", 1, module="PIL.Image")
        return whole(width, height)

    with warnings.catch_warnings(record=True) as warned, silent_decoders(), ThreadPoolExecutor(2) as threads:
        reading = [threads.submit(crop_picture, picture.copy(), choose=choose) for _ in range(2)]
        for read in reading:
            read.result()
    assert warned == []


def test_after_the_last_one_that_silenced_pillow_the_filters_are_as_before() -> None:
    before = list(warnings.filters)
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(silent_decoders())
        second.enter_context(silent_decoders())
        silent = list(warnings.filters)
        assert silent != before
        first.close()  # not in the order of entering
        assert list(warnings.filters) == silent
    assert list(warnings.filters) == before


def test_a_picture_of_the_caller_keeps_its_size(tmp_path: Path) -> None:
    Image.new("RGB", (160, 120), "red").save(tmp_path / "a.jpg")
    with Image.open(tmp_path / "a.jpg") as picture:
        crop_picture(picture, choose=lambda _w, _h: Part((0, 0, 160, 120), (20, 15)))
        assert picture.size == (160, 120)
