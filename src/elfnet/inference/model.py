"""`elfnet.load` and the `Model` it returns: images in, predictions with class names out."""

# Shapes: N images, C classes, T best classes, K channels, H height, W width

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from elfnet.calibrate.measured_cost import MeasuredCost, TimeBudget
from elfnet.calibrate.operating_point import OperatingPoint
from elfnet.errors import RequestError
from elfnet.inference.backends.build import open_backend
from elfnet.inference.bundle.one_file import is_one_file, open_one_file
from elfnet.inference.bundle.read import Bundle, open_bundle
from elfnet.inference.engine import ABSTAINED, Answers, Engine, PixelEngine, join_answers
from elfnet.inference.preprocess import ImageLike, Preprocess
from elfnet.inference.timing import measure_single_images
from elfnet.pretrained.names import find_model

if TYPE_CHECKING:
    from elfnet.models.staged import StagedNetwork

DEFAULT_BACKEND = "onnxruntime"


@dataclass(frozen=True)
class Prediction:
    """The prediction for one image.

    Attributes:
        label: Name of the class; None if the model abstained.
        class_index: Index of the class, from 0; None if the model abstained.
        confidence: Confidence at the exit taken, also if the model abstained.
        exit: The exit taken, from 1 as in tables.
        cost: Cost relative to the plain backbone.
        top: The best classes with their probabilities, best first.

    Example:
        >>> from elfnet import Prediction
        >>> Prediction("cat", 3, confidence=0.97, exit=1, cost=0.08, top=(("cat", 0.97), ("dog", 0.02))).label
        'cat'
    """

    label: str | None
    class_index: int | None
    confidence: float
    exit: int
    cost: float
    top: tuple[tuple[str, float], ...]


class Model:
    """A model that classifies images with early exit, as `elfnet.load` returns it. Thread-safe.

    Attributes:
        engine: Classifies arrays of normalised images.
        preprocess: Makes such arrays from files, PIL images and uint8 arrays.
        class_names: Names by class index.
        times: Time of the stages for one image at a time on this machine; None until `measure_times`.

    Args:
        backend: Name of the engine's backend.
        threads: Threads of the backend; None for its default.

    Example:
        >>> import numpy as np
        >>> from elfnet import load
        >>> model = load("digits.onnx")
        >>> [prediction] = model.predict([np.zeros((32, 32), dtype=np.uint8)])
        >>> prediction.label in model.class_names
        True
    """

    def __init__(
        self,
        engine: Engine,
        preprocess: Preprocess,
        class_names: Sequence[str],
        *,
        backend: str = DEFAULT_BACKEND,
        threads: int | None = None,
    ) -> None:
        self.engine, self.preprocess, self.class_names = engine, preprocess, tuple(class_names)
        self.times: MeasuredCost | None = None
        self._backend, self._threads = backend, threads

    @property
    def operating_points(self) -> dict[str, OperatingPoint]:
        """All operating points by name, with their thresholds and their results on the calibration split."""
        return {point.name: point for point in self.engine.family.points}

    @property
    def operating_point(self) -> str:
        """Name of the present operating point."""
        return self.engine.operating_point

    def set_operating_point(self, point: str | float) -> str:
        """Switch the operating point, and return its name.

        Args:
            point: A name, or a budget: the most accurate point whose mean cost is within it. A budget may be text, such
                as "0.5", or "5ms" for mean milliseconds per image; see `measure_times`.
        """
        return self.engine.set_operating_point(self.resolve(point))

    def resolve(self, point: str | float) -> str | float:
        """Return a budget that is text as a mean cost, or as the name of the most accurate point within milliseconds.

        Names and numbers are returned as they are.

        Raises:
            RequestError: All points take longer on this machine, or the argument is neither text nor a number.
        """
        if not isinstance(point, str | Real):
            raise RequestError(f"{point!r} is no operating point; give its name, or a budget such as 0.5 or '5ms'")
        if not isinstance(point, str) or point in self.operating_points:
            return point
        budget = TimeBudget.parse(point)
        if budget is not None:
            return self.engine.family.for_budget(budget, times=self.measure_times()).name
        try:
            return float(point)
        except ValueError:
            return point

    def measure_times(self) -> MeasuredCost:
        """Measure the time of every stage for one image at a time, once; later calls return the same times."""
        if self.times is None:
            height, width, channels = self.preprocess.shape
            self.times = measure_single_images(
                self.engine.backend,
                (channels, height, width),
                name=self._backend,
                threads=self._threads,
                plain_exit=self.engine.family.plain_exit,
            )
        return self.times

    def predict(
        self,
        images: ImageLike | Iterable[ImageLike],
        *,
        operating_point: str | float | None = None,
        top: int = 5,
        batch: int = 64,
        resize: bool = True,
    ) -> list[Prediction]:
        """Classify one image or many.

        Args:
            images: One image or an iterable of images. An image is a path, the content of an image file (bytes), a PIL
                image or a uint8 array. For a network that reads feature rows: one row, or rows (N, K).
            operating_point: Name or budget for this call only, as in `set_operating_point`; None for the present point.
            top: Number of best classes to return.
            batch: Images per batch; it determines the memory needed.
            resize: Resize files and PIL images to the network's size; if False, refuse other sizes.

        Returns:
            One prediction per image, in order.

        Raises:
            RequestError: An argument is invalid or not an image.
            WorkError: An image cannot be read.
        """
        if batch < 1 or top < 1:
            raise RequestError(f"batch={batch} and top={top} must be 1 or more")
        all_images = list(np.atleast_2d(images)) if self.preprocess.reads_rows else as_list(images)  # type: ignore[arg-type]
        operating_point = None if operating_point is None else self.resolve(operating_point)
        answers: list[Prediction] = []
        for start in range(0, len(all_images), batch):
            pixels_NHWK = self.preprocess.stack(all_images[start : start + batch], resize=resize)
            answers += self.answer(pixels_NHWK, operating_point=operating_point, top=top)
        return answers

    def answer(
        self, pixels_NHWK: NDArray[Any], *, operating_point: str | float | None = None, top: int = 5
    ) -> list[Prediction]:
        """Classify one batch of uint8 images in the network's mode and size."""
        return list(self._predictions(self.classify(pixels_NHWK, operating_point=operating_point), top))

    def classify(
        self, pixels_NHWK: NDArray[Any], *, operating_point: str | float | Sequence[str] | None = None
    ) -> Answers:
        """Classify one batch of uint8 images in the network's mode and size, and return arrays.

        Args:
            pixels_NHWK: The images; for a network that reads feature rows, float32 (N, K).
            operating_point: Name or budget for this call only, or one name per image; None for the present point. The
                default backend runs images of different points together, others run one point after the other.
        """
        if isinstance(self.engine, PixelEngine):
            return self.engine.of_pixels(pixels_NHWK, operating_point=operating_point)
        images_NKHW = self.preprocess.normalise(pixels_NHWK)
        if operating_point is None or isinstance(operating_point, str | float | int):
            return self.engine(images_NKHW, operating_point=operating_point)
        return _one_point_after_the_other(self.engine, images_NKHW, operating_point)

    def warm_up(self) -> None:
        """Run every part of the network once, because some are built when they are first used."""
        blank_NHWK = np.zeros((1, *self.preprocess.input_shape), dtype=self.preprocess.input_type)
        if isinstance(self.engine, PixelEngine):
            self.engine.of_pixels(blank_NHWK)
        else:
            self.engine.warm_up(self.preprocess.normalise(blank_NHWK))

    def _predictions(self, answers: Answers, top: int) -> Iterator[Prediction]:
        # A stable sort puts the first of equally probable classes first, as the prediction does.
        best_NT = np.argsort(-answers.probability_NC, axis=1, kind="stable")[:, :top]
        for i, best_T in enumerate(best_NT):
            index = int(answers.prediction_N[i])
            abstained = index == ABSTAINED
            yield Prediction(
                label=None if abstained else self.class_names[index],
                class_index=None if abstained else index,
                confidence=float(answers.confidence_N[i]),
                exit=int(answers.exit_N[i]) + 1,
                cost=float(answers.cost_N[i]),
                top=tuple((self.class_names[c], float(answers.probability_NC[i, c])) for c in best_T),
            )


def _one_point_after_the_other(engine: Engine, images_NKHW: NDArray[np.float32], points: Sequence[str]) -> Answers:
    if len(points) != len(images_NKHW):
        raise RequestError(f"{len(points)} operating points for {len(images_NKHW)} images; give one, or one per image")
    rows = {name: np.flatnonzero([name == other for other in points]) for name in dict.fromkeys(points)}
    parts = [engine(images_NKHW[rows_of_point], operating_point=name) for name, rows_of_point in rows.items()]
    return join_answers(parts).take(np.argsort(np.concatenate(list(rows.values()))))


def as_list(images: ImageLike | Iterable[ImageLike]) -> list[ImageLike]:
    """Return one image or many as a list; an array with four dimensions is many."""
    if isinstance(images, np.ndarray):
        return list(images) if images.ndim == 4 else [images]
    if isinstance(images, str | Path | bytes | Image.Image):
        return [images]
    if isinstance(images, Iterable):
        return list(images)
    raise RequestError(f"{type(images).__name__} is not an image; give a path, bytes, a PIL image or a uint8 array")


def load(
    path: str | Path,
    *,
    backend: str = DEFAULT_BACKEND,
    threads: int | None = None,
    deepest_exit: int | None = None,
    abstain_below: float = 0.0,
    variant: str | None = None,
) -> Model:
    """Load a bundle, and verify it by its hash.

    Args:
        path: An `.onnx` file that `elfnet export` wrote; the name of a network of `elfnet models ls`, or
            `hub:user/name[@revision]`; or a bundle of an older version, a zip or a directory.
        backend: `onnxruntime`; or `openvino`, `torch`, `torch-compiled` if installed.
        threads: Threads per call; None for the backend's default.
        deepest_exit: All remaining images exit here (from 1), which bounds the worst-case cost.
        abstain_below: The model abstains if the confidence at the exit taken is lower.
        variant: The precision, one of those in the bundle; None for float32, or for that of an `.onnx` file.

    Raises:
        RequestError: There is no bundle at `path`, or an argument is invalid.
        WorkError: The bundle is damaged or was altered.

    Example:
        model = load("runs/elf/elf.onnx")
        model.set_operating_point(0.6)
        model.predict("cat.png")[0].label

    Example:
        >>> from elfnet import load
        >>> model = load("digits.onnx")
        >>> len(model.class_names)
        10
    """
    path = find_model(path)
    if is_one_file(path):
        return _load_one_file(
            path,
            backend=backend,
            threads=threads,
            deepest_exit=deepest_exit,
            abstain_below=abstain_below,
            variant=variant,
        )
    variant = variant or "float32"
    bundle = open_bundle(path, variant=variant)
    precision = bundle.manifest.variants[variant].precision
    preprocess = bundle.manifest.preprocessing.preprocess()
    height, width, channels = preprocess.shape
    opened = open_backend(
        backend,
        graphs=lambda: bundle.graphs,
        network=lambda: _torch_network(bundle, precision),
        # The int8 graphs contain their precision; a backend runs them like float32 graphs.
        precision="bfloat16" if precision == "bfloat16" else "float32",
        threads=threads,
        image_shape=(channels, height, width),
    )
    engine = Engine(
        opened,
        bundle.family,
        deepest_exit=exit_from_zero(deepest_exit, bundle.family.exits),
        abstain_below=abstain_below,
    )
    return Model(engine, preprocess, bundle.manifest.class_names, backend=backend, threads=threads)


def _load_one_file(
    path: Path,
    *,
    backend: str,
    threads: int | None,
    deepest_exit: int | None,
    abstain_below: float,
    variant: str | None,
) -> Model:
    bundle = open_one_file(path, variant=variant)
    manifest = bundle.manifest
    preprocess = manifest.preprocessing.preprocess()
    deepest = exit_from_zero(deepest_exit, bundle.family.exits)
    engine: Engine
    if backend == DEFAULT_BACKEND and variant != "bfloat16":
        from elfnet.inference.one_file_engine import OneFileEngine

        engine = OneFileEngine(bundle, threads=threads, deepest_exit=deepest, abstain_below=abstain_below)
    else:
        opened = open_backend(
            backend,
            graphs=bundle.stage_graphs,
            network=lambda: _no_torch_network(path),
            precision="bfloat16" if variant == "bfloat16" else "float32",
            threads=threads,
        )
        engine = Engine(opened, bundle.family, deepest_exit=deepest, abstain_below=abstain_below)
    return Model(engine, preprocess, manifest.class_names, backend=backend, threads=threads)


def _no_torch_network(path: Path) -> NoReturn:
    raise RequestError(
        f"{path} holds no torch network; choose backend onnxruntime or openvino, or name the run directory"
    )


def _torch_network(bundle: Bundle, precision: str) -> "StagedNetwork":
    if precision == "int8":
        raise RequestError("variant int8 has no torch network; choose backend onnxruntime or openvino")
    from elfnet.inference.backends.torch import network_of_bundle

    return network_of_bundle(bundle)


def exit_from_zero(exit_number: int | None, exits: int) -> int | None:
    """Convert a user's exit number, from 1, to an index, from 0, and check its range."""
    if exit_number is None:
        return None
    if exit_number not in range(1, exits + 1):
        raise RequestError(f"deepest_exit={exit_number} must be a whole number in 1..{exits}")
    return int(exit_number) - 1
