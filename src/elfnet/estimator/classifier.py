"""`ELFClassifier`: a scikit-learn estimator with early exits, for feature tables and image arrays."""

# Shapes: N examples, F features, C classes, K channels, H height, W width

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from elfnet.calibrate.measured_cost import parse_budget
from elfnet.calibrate.operating_point import OperatingPoint
from elfnet.errors import RequestError
from elfnet.estimator.fitted import train
from elfnet.export.network import FittedNetwork
from elfnet.inference.backends.torch import TorchBackend
from elfnet.inference.bundle.one_file import OneFile, open_one_file, verified
from elfnet.inference.engine import Answers, Engine
from elfnet.inference.one_file_engine import OneFileEngine
from elfnet.inference.preprocess import FEATURE_ROWS, Preprocess
from elfnet.inference.timing import measure_single_images
from elfnet.recipe.automatic import wanted_epochs, wanted_row_epochs

BATCH = 256
TINY_IMAGE, SMALL_IMAGE = 16, 64
"""Images up to the second side get a network for small images, below the first one that keeps more of their pixels."""


class ELFClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier with early exits, for feature tables and image arrays.

    `X` is a table of numbers (N, F), or uint8 images of equal size, (N, H, W) or (N, H, W, 3). Rare classes are
    weighted by the method; class weights need not be given. Features are standardised inside. A share of each
    class is held out to choose the operating point; data that is too small for that is fitted without, and the
    thresholds are then fixed in advance.

    Args:
        budget: Mean cost per example relative to the plain network, such as 0.6, or mean milliseconds per example as
            text, such as "5ms", measured on this machine one example at a time. The most accurate operating point
            within it is used. None for the default point, which is at full depth unless an early exit is better.
        method: Method of `elfnet recipes ls`, such as `joint-quick`, `elf-ldam-drw` or `elf-balanced-softmax`.
        backbone: Network of `model.backbone`; `auto` is `mlp` for tables and a ResNet by the size of images.
        epochs: Passes over the training data; None for as many as their number suggests, such as 500 for 100 rows.
        batch_size: Examples per step.
        calibration: Share of each class that is held out for calibration; 0 for none.
        settings: Further settings of the recipe by dotted name, such as `{"train.lr": 0.01}`.
        random_state: Seed of weights, batches and the held-out share.
        verbose: Show the progress on standard error.

    Attributes:
        classes_: The class labels, sorted.
        n_features_in_: Number of features of a table.
        operating_point_: The operating point in use, with its expected accuracy and cost.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from elfnet import ELFClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = ELFClassifier(random_state=0).fit(X, y)
        >>> model.score(X, y) > 0.9
        True
    """

    fitted_: FittedNetwork | bytes
    """After `fit` the network; after `load` the content of the file."""

    def __init__(
        self,
        budget: float | str | None = None,
        *,
        method: str = "joint-quick",
        backbone: str = "auto",
        epochs: int | None = None,
        batch_size: int = 64,
        calibration: float = 0.1,
        settings: Mapping[str, Any] | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.budget = budget
        self.method = method
        self.backbone = backbone
        self.epochs = epochs
        self.batch_size = batch_size
        self.calibration = calibration
        self.settings = settings
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train, calibrate and choose the operating point.

        Args:
            X: Feature table (N, F), or uint8 images (N, H, W) or (N, H, W, 3).
            y: Class of each example: integers or text.

        Raises:
            RequestError: There is one class only, or a setting is invalid.
        """
        examples, labels_N = self._checked(X, y)
        if not 0.0 <= self.calibration < 1.0:
            raise RequestError(f"calibration={self.calibration} must be a share from 0 to below 1, such as 0.1")
        epochs = self._epochs(examples)
        settings = {
            "model.backbone": self._backbone(examples),
            "train.epochs": epochs,
            "train.batch_size": self.batch_size,
            "train.evaluate_every": epochs,
            "train.compile": "off",
            "train.precision": "float32",
            **(self.settings or {}),
        }
        self.fitted_ = train(
            examples,
            labels_N,
            method=self.method,
            settings=settings,
            calibration=self.calibration,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            verbose=self.verbose,
        )
        self.__dict__.pop("_engine", None)
        self.operating_point_ = self._choose_point()
        return self

    def _checked(self, X: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Check X and y, set `classes_`, and return the examples and their class indices."""
        if _is_image_array(X):
            examples = as_images(X)
            labels = column_or_1d(y, warn=True)
            if len(labels) != len(examples):
                raise RequestError(f"X has {len(examples)} images and y {len(labels)} labels; make the numbers equal")
            self.n_features_in_ = int(np.prod(examples.shape[1:]))
        else:
            examples, labels = validate_data(self, X, y, dtype=np.float32)
            labels = column_or_1d(labels, warn=True)
        check_classification_targets(labels)
        self.classes_, labels_N = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise RequestError(
                f"y has only one class ({self.classes_[0]!s}); a classifier needs at least two, with examples of each"
            )
        return examples, labels_N.astype(np.int64)

    def _backbone(self, examples: NDArray[Any]) -> str:
        if self.backbone != "auto":
            return self.backbone
        if examples.ndim == 2:
            return "mlp"
        side = max(examples.shape[1:3])
        # resnet9 divides the side by 8.
        return "resnet14" if side < TINY_IMAGE else "resnet9" if side <= SMALL_IMAGE else "resnet18"

    def _epochs(self, examples: NDArray[Any]) -> int:
        if self.epochs is not None:
            return self.epochs
        is_table = examples.ndim == 2
        return wanted_row_epochs(len(examples), self.batch_size) if is_table else wanted_epochs(len(examples))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the class of each example."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self._answers(X).prediction_N])

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the class probabilities at the exit that each example takes, (N, C), in the order of `classes_`."""
        check_is_fitted(self)
        probability_NC = self._answers(X).probability_NC.astype(np.float64)
        return np.asarray(probability_NC / probability_NC.sum(axis=1, keepdims=True))

    def exits(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the exit that each example takes, from 1."""
        check_is_fitted(self)
        return self._answers(X).exit_N + 1

    def save(self, path: str | Path) -> Path:
        """Write the fitted classifier as the ONNX file that `elfnet export` writes; it needs no torch to run.

        An existing file is replaced. `load` reads it back; the parameters of the estimator are not in it.
        """
        check_is_fitted(self)
        path = Path(path)
        if isinstance(self.fitted_, FittedNetwork):
            from elfnet.export.network import write_file

            write_file(
                self.fitted_,
                path,
                class_names=[str(label) for label in self.classes_],
                default_point=self.operating_point_.name,
            )
        else:
            from elfnet import atomic

            atomic.write_bytes(path, self.fitted_)
        return path

    @classmethod
    def load(cls, path: str | Path, *, budget: float | str | None = None) -> Self:
        """Open a file that `save` or `elfnet export` wrote; nothing in it is executed.

        Class labels are integers if all names are whole numbers, else text.

        Args:
            path: The file.
            budget: As of the class; None for the operating point that the file names as its default.
        """
        model = cls(budget)
        opened = open_one_file(path)
        names = list(opened.manifest.class_names)
        is_number = all(name == str(int(name)) for name in names if name.lstrip("-").isdecimal()) and all(
            name.lstrip("-").isdecimal() for name in names
        )
        model.classes_ = np.array([int(name) for name in names] if is_number else names)
        model.fitted_ = opened.content
        model.n_features_in_ = int(np.prod(opened.manifest.preprocessing.preprocess().shape))
        model.operating_point_ = model._choose_point(opened.manifest.default_point)
        return model

    def _choose_point(self, default: str | None = None) -> OperatingPoint:
        engine = self._engine
        if isinstance(self.budget, str):
            height, width, channels = self._preprocess.shape
            times = measure_single_images(
                engine.backend,
                (channels, height, width),
                name="this classifier",
                threads=None,
                plain_exit=engine.family.plain_exit,
            )
            return engine.family.for_budget(parse_budget(self.budget), times=times)
        if self.budget is not None:
            return engine.family.for_budget(self.budget)
        return engine.family.default if default is None else engine.family.point(default)

    def _answers(self, X: ArrayLike) -> Answers:
        examples = self._input(X)
        parts = [
            self._engine(
                self._preprocess.normalise(examples[start : start + BATCH]),
                operating_point=self.operating_point_.name,
            )
            for start in range(0, len(examples), BATCH)
        ]
        names = ("prediction_N", "confidence_N", "exit_N", "cost_N", "probability_NC")
        return Answers(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def _input(self, X: ArrayLike) -> NDArray[Any]:
        if self._preprocess.mode == FEATURE_ROWS:
            return np.asarray(validate_data(self, X, reset=False, dtype=np.float32))
        images = as_images(X)
        if images.shape[1:] != self._preprocess.shape:
            raise RequestError(
                f"X has images of shape {images.shape[1:]}, the classifier was fitted on {self._preprocess.shape}; "
                "resize them"
            )
        return images

    @cached_property
    def _opened(self) -> OneFile:
        assert isinstance(self.fitted_, bytes)
        return verified(Path("the classifier's file"), self.fitted_)

    @property
    def _preprocess(self) -> Preprocess:
        if isinstance(self.fitted_, FittedNetwork):
            return self.fitted_.preprocess
        return self._opened.manifest.preprocessing.preprocess()

    @cached_property
    def _engine(self) -> Engine:
        """Runs the network: with torch after `fit`, with ONNX Runtime after `load`."""
        if isinstance(self.fitted_, FittedNetwork):
            return Engine(TorchBackend(self.fitted_.network), self.fitted_.family)
        return OneFileEngine(self._opened)

    def __getstate__(self) -> dict[str, Any]:
        # Engines hold sessions and locks; they are opened again when they are needed.
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("_engine", "_opened")}


def _is_image_array(X: Any) -> bool:
    return getattr(X, "ndim", 0) in (3, 4)


def as_images(X: ArrayLike) -> NDArray[np.uint8]:
    """Return images as uint8 (N, H, W, K), and refuse other arrays."""
    images: NDArray[Any] = np.asarray(X)
    images = images[..., None] if images.ndim == 3 else images
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] not in (1, 3) or not len(images):
        raise RequestError(
            f"X is {images.dtype} of shape {np.shape(X)}; images must be uint8 of shape (N, H, W), (N, H, W, 1) or "
            "(N, H, W, 3) with values from 0 to 255, for example (255 * X).astype('uint8')"
        )
    return images
