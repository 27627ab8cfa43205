"""An image of the training size gives the network's own numbers; another size is fitted, or refused."""

# Shapes: N images, H height, W width, K channels

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from elfnet.data.images.decode import Limits, decode
from elfnet.data.images.transforms import Evaluation
from elfnet.data.loading.feed import EvaluationFeed
from elfnet.data.loading.memory import PlainSource
from elfnet.data.loading.normalise import Normalisation, normalise
from elfnet.data.sources.digits import enlarge
from elfnet.data.types import LabelledImages
from elfnet.errors import RequestError, WorkError
from elfnet.inference.preprocess import Preprocess


def preprocess(mode: str = "RGB", height: int = 32, width: int = 32) -> Preprocess:
    channels = {"RGB": 3, "L": 1}[mode]
    mean, std = (0.4914, 0.4822, 0.4465)[:channels], (0.2470, 0.2435, 0.2616)[:channels]
    return Preprocess(mode=mode, height=height, width=width, mean=mean, std=std)


def noise(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_every_byte_is_normalised_as_in_evaluation() -> None:
    """Bit for bit, for all 256 values, with many means."""
    rng = np.random.default_rng(0)
    pixels_NHWK = np.repeat(np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1), 3, axis=3)
    for _ in range(50):
        mean, std = tuple(rng.uniform(0, 1, 3).tolist()), tuple(rng.uniform(0.01, 1, 3).tolist())
        found = Preprocess(mode="RGB", height=16, width=16, mean=mean, std=std).normalise(pixels_NHWK)
        expected = normalise(torch.from_numpy(pixels_NHWK), mean_K=torch.tensor(mean), std_K=torch.tensor(std))
        assert np.array_equal(found, expected.numpy())
    assert found.flags.c_contiguous
    assert found.dtype == np.float32


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1)])
def test_a_png_of_the_training_size_is_what_evaluation_sees(tmp_path: Path, mode: str, channels: int) -> None:
    images = LabelledImages(noise(4, 32, 32, channels), np.zeros(4, dtype=np.int64))
    normalisation = Normalisation.of(images)
    source = PlainSource(images.images_NHWC, normalisation, device=torch.device("cpu"))
    (expected,) = EvaluationFeed(source, 4, batch_size=4)
    files = []
    for number, image in enumerate(images.images_NHWC):
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(image.squeeze()).save(files[-1])
    ready = Preprocess(mode=mode, height=32, width=32, mean=normalisation.mean_K, std=normalisation.std_K)
    assert np.array_equal(ready(files), expected.numpy())
    assert np.array_equal(ready(list(images.images_NHWC)), expected.numpy())


def resized_then_cropped(picture: Image.Image, side: int) -> NDArray[np.uint8]:
    """The rule as it is told: shorter side to `side`, then the centre. For margins that are whole numbers."""
    scale = side / min(picture.size)
    whole = picture.resize((round(picture.width * scale), round(picture.height * scale)), Image.Resampling.BILINEAR)
    left, top = (whole.width - side) // 2, (whole.height - side) // 2
    return np.asarray(whole.crop((left, top, left + side, top + side)))


@pytest.mark.parametrize(("width", "height"), [(64, 128), (128, 64), (96, 96), (8, 16), (48, 32)])
def test_another_size_is_resized_and_cropped(width: int, height: int) -> None:
    picture = Image.fromarray(noise(height, width, 3))
    found = preprocess().pixels(picture)
    assert found.shape == (32, 32, 3)
    assert np.abs(found.astype(int) - resized_then_cropped(picture, 32)).max() <= 1


@pytest.mark.parametrize(("width", "height"), [(300, 200), (32, 32), (640, 480), (100, 90)])
@pytest.mark.parametrize("suffix", ["png", "jpg"])
@pytest.mark.parametrize("squash", [False, True])
def test_files_are_seen_as_in_the_evaluation_of_file_runs(
    tmp_path: Path, width: int, height: int, suffix: str, squash: bool
) -> None:
    """Bit for bit what `data` gives for images that a network was trained on from files."""
    low = noise(height // 10, width // 10, 3)
    Image.fromarray(low).resize((width, height)).save(tmp_path / f"a.{suffix}")
    content = (tmp_path / f"a.{suffix}").read_bytes()
    evaluation = Evaluation(image_size=32, resize=40, squash=squash)
    expected = evaluation(lambda choose: decode(content, "it", Limits(), choose=choose))
    fitted = Preprocess(
        mode="RGB", height=32, width=32, mean=(0.0,) * 3, std=(1.0,) * 3, crop_share=32 / 40, squash=squash
    )
    assert np.array_equal(fitted.pixels(tmp_path / f"a.{suffix}"), expected)


def test_without_resizing_nothing_is_cropped_either() -> None:
    closer = Preprocess(mode="L", height=32, width=32, mean=(0.0,), std=(1.0,), crop_share=0.5)
    image = noise(32, 32)
    assert np.array_equal(closer.pixels(Image.fromarray(image), resize=False)[..., 0], image)
    assert not np.array_equal(closer.pixels(Image.fromarray(image))[..., 0], image)


def test_making_smaller_averages() -> None:
    """Without antialiasing, stripes would give black or white instead of grey."""
    stripes = np.zeros((320, 320, 3), dtype=np.uint8)
    stripes[:, ::2] = 255
    assert np.abs(preprocess().pixels(Image.fromarray(stripes)).astype(int) - 127).max() <= 10


def test_a_small_digit_is_enlarged_as_the_training_data_was() -> None:
    small = noise(8, 8)
    expected = enlarge(small[None].astype(np.float64), side=32)[0]
    found = preprocess("L").pixels(Image.fromarray(small))[..., 0]
    assert np.abs(found.astype(int) - expected).max() <= 1


def test_a_long_thin_image_needs_no_memory() -> None:
    """Its shorter side at 32 would make the longer one 32 million pixels wide."""
    assert preprocess("L").pixels(Image.new("L", (1_000_000, 1))).shape == (32, 32, 1)


def test_resizing_can_be_refused() -> None:
    with pytest.raises(WorkError, match="the picture has 33 x 32 pixels, the network reads 32 x 32"):
        preprocess().pixels(Image.new("RGB", (33, 32)), resize=False)
    assert preprocess().pixels(Image.new("RGB", (32, 32)), resize=False).shape == (32, 32, 3)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((32, 32, 3)),
        np.zeros((32, 31, 3), dtype=np.uint8),
        np.zeros((32, 32), dtype=np.uint8),
        np.zeros((3, 32, 32), dtype=np.uint8),
        np.zeros((1, 32, 32, 3), dtype=np.uint8),
        np.zeros((), dtype=np.uint8),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_of_another_kind_are_refused(array: NDArray[Any]) -> None:
    with pytest.raises(RequestError, match="the network reads uint8 of shape"):
        preprocess().pixels(array)


def test_grey_arrays_need_no_channel() -> None:
    assert preprocess("L").pixels(noise(32, 32)).shape == (32, 32, 1)


def test_content_of_another_size_is_fitted_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(noise(50, 40, 3)).save(path)
    assert np.array_equal(preprocess().pixels(path.read_bytes()), preprocess().pixels(path))
    with pytest.raises(WorkError, match="the image in memory has 40 x 50 pixels, the network reads 32 x 32"):
        preprocess().pixels(path.read_bytes(), resize=False)


def test_something_else_is_no_image() -> None:
    with pytest.raises(RequestError, match="int is not an image"):
        preprocess().pixels(3)  # type: ignore[arg-type]
