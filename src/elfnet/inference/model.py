"""A trained network ready to answer: images in, named answers out."""

# Shapes: N images, C classes

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from elfnet.calibrate.operating_point import OperatingPoint
from elfnet.errors import RequestError
from elfnet.inference.backends.build import open_backend
from elfnet.inference.bundle.read import Bundle, open_bundle
from elfnet.inference.engine import ABSTAINED, Answers, Engine
from elfnet.inference.preprocess import ImageLike, Preprocess

if TYPE_CHECKING:
    from elfnet.models.staged import StagedNetwork


@dataclass(frozen=True)
class Prediction:
    """The answer for one image.

    Attributes:
        label: name of the class; None if the network abstained.
        class_index: its number, from 0; None if the network abstained.
        confidence: probability of the best class at the exit taken, whether it abstained or not.
        exit: the exit taken, from 1 as in tables.
        cost: relative to the plain backbone.
        top: the best classes with their probabilities, best first.
    """

    label: str | None
    class_index: int | None
    confidence: float
    exit: int
    cost: float
    top: tuple[tuple[str, float], ...]


class Model:
    """What `elfnet.load` returns. Many threads may use one.

    Attributes:
        engine: answers arrays of normalised images.
        preprocess: makes them from files, pictures and arrays.
        class_names: by class index.
    """

    def __init__(self, engine: Engine, preprocess: Preprocess, class_names: Sequence[str]) -> None:
        self.engine, self.preprocess, self.class_names = engine, preprocess, tuple(class_names)

    @property
    def operating_points(self) -> dict[str, OperatingPoint]:
        """Every point by name, with its thresholds and what it gave on the calibration split."""
        return {point.name: point for point in self.engine.family.points}

    @property
    def operating_point(self) -> str:
        """The name of the point in force."""
        return self.engine.operating_point

    def set_operating_point(self, point: str | float) -> str:
        """By name, or by budget: the most accurate point within it, whose name is returned."""
        return self.engine.set_operating_point(point)

    def predict(
        self,
        images: ImageLike | Iterable[ImageLike],
        *,
        operating_point: str | float | None = None,
        top: int = 5,
        batch: int = 64,
        resize: bool = True,
    ) -> list[Prediction]:
        """Classify one image or many, one prediction each, in their order.

        An image is a path, the content of an image file (bytes), a PIL image or a uint8 array.

        Args:
            operating_point: for this call only, by name or budget.
            top: how many of the best classes to name.
            batch: images at a time; decides how much memory is needed.
            resize: bring files and PIL images to the network's size; if False, another size is refused.
        """
        if batch < 1 or top < 1:
            raise RequestError(f"batch={batch} and top={top} must be 1 or more")
        several = as_list(images)
        answers: list[Prediction] = []
        for start in range(0, len(several), batch):
            ready_NKHW = self.preprocess(several[start : start + batch], resize=resize)
            answers += self.answer(ready_NKHW, operating_point=operating_point, top=top)
        return answers

    def answer(
        self, images_NKHW: NDArray[np.float32], *, operating_point: str | float | None = None, top: int = 5
    ) -> list[Prediction]:
        """The same for images that `preprocess` made ready, in one batch."""
        return list(self._named(self.engine(images_NKHW, operating_point=operating_point), top))

    def _named(self, answers: Answers, top: int) -> Iterator[Prediction]:
        # Stable: of equally probable classes the first comes first, as in the answer itself.
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


def as_list(images: ImageLike | Iterable[ImageLike]) -> list[ImageLike]:
    """One image or many as a list; an array with four dimensions is many."""
    if isinstance(images, np.ndarray):
        return list(images) if images.ndim == 4 else [images]
    if isinstance(images, str | Path | bytes | Image.Image):
        return [images]
    if isinstance(images, Iterable):
        return list(images)
    raise RequestError(f"{type(images).__name__} is not an image; give a path, bytes, a PIL image or a uint8 array")


DEFAULT_BACKEND = "onnxruntime"


def load(
    path: str | Path,
    *,
    backend: str = DEFAULT_BACKEND,
    threads: int | None = None,
    deepest_exit: int | None = None,
    abstain_below: float = 0.0,
    variant: str = "float32",
) -> Model:
    """A bundle, every byte of it checked against its hash, ready to answer.

    Args:
        path: a `.elfnet` file, or the directory of one.
        backend: what computes the stages: `onnxruntime`; or `openvino`, `torch`, `torch-compiled` where installed.
        threads: of the backend; its own choice by default.
        deepest_exit: everybody who is still there leaves at this exit (from 1): a cap on the worst case.
        abstain_below: answers with a final confidence below this are withheld.
        variant: the precision, of those that the bundle holds.

    Example:
        model = load("runs/elf/elf.elfnet")
        model.set_operating_point(0.6)
        model.predict("cat.png")[0].label
    """
    bundle = open_bundle(path, variant=variant)
    precision = bundle.manifest.variants[variant].precision
    preprocess = bundle.manifest.preprocessing.preprocess()
    height, width, channels = preprocess.shape
    computes = open_backend(
        backend,
        graphs=lambda: bundle.graphs,
        network=lambda: _network(bundle, precision),
        # Graphs in 8-bit integers say so themselves; whoever runs them needs no other setting.
        precision="bfloat16" if precision == "bfloat16" else "float32",
        threads=threads,
        image_shape=(channels, height, width),
    )
    engine = Engine(
        computes,
        bundle.family,
        deepest_exit=exit_from_zero(deepest_exit, bundle.family.exits),
        abstain_below=abstain_below,
    )
    return Model(engine, preprocess, bundle.manifest.class_names)


def _network(bundle: Bundle, precision: str) -> "StagedNetwork":
    if precision == "int8":
        raise RequestError("variant int8 exists as graphs only; choose backend onnxruntime or openvino")
    from elfnet.inference.backends.torch import network_of_bundle

    return network_of_bundle(bundle)


def exit_from_zero(exit_number: int | None, exits: int) -> int | None:
    """Exits are counted from 1 where people name them, from 0 in arrays."""
    if exit_number is None:
        return None
    if not 1 <= exit_number <= exits:
        raise RequestError(f"deepest_exit={exit_number} must lie in 1..{exits}")
    return exit_number - 1
