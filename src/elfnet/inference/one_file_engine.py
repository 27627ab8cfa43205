"""The engine of a bundle that is one ONNX file: one call of ONNX Runtime per batch.

The graph holds the loop over stages, so that Python's lock is released during all of it. Stages by themselves are
opened only to measure them, or for the answers of all exits.
"""

# Shapes: N images, B images that have not left, E exits, C classes, K channels, H height, W width

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from numpy.typing import NDArray

from elfnet.errors import RequestError, WorkError
from elfnet.exits.policy import Policy
from elfnet.inference.backends.onnxruntime import OnnxBackend, open_session, session_options
from elfnet.inference.bundle.one_file import OneFile
from elfnet.inference.engine import Answers, Backend, Engine, Plan, checked_images, no_answers
from elfnet.inference.graph_inputs import ALL_LEAVE, THRESHOLDS, PointInputs, checked_thresholds

OUTPUTS = ["class", "confidence", "probabilities", "exit", "cost"]


class OneFileEngine(Engine):
    """Runs a bundle that is one ONNX file. Thread-safe.

    Args:
        bundle: The file.
        threads: Threads per call; None for one per core.
        deepest_exit: See `Engine`.
        abstain_below: See `Engine`.
    """

    def __init__(
        self,
        bundle: OneFile,
        *,
        threads: int | None = None,
        deepest_exit: int | None = None,
        abstain_below: float = 0.0,
    ) -> None:
        if threads is not None and threads < 1:
            raise RequestError(f"threads={threads} must be at least 1; leave it out for one per core")
        self._bundle = bundle
        self._inputs = PointInputs.of(bundle.family)
        self._session = _LazySession(lambda: (bundle.content, bundle.input_name), bundle, threads)
        self._normalised = _LazySession(bundle.with_normalised_input, bundle, threads)
        self._preprocess = bundle.manifest.preprocessing.preprocess()
        self._reads_pixels = bundle.manifest.image_input != "float32"
        height, width, channels = self._preprocess.shape
        self._image_shape = (channels, height, width)
        # Opened at once, so that a file that ONNX Runtime cannot read is refused here.
        opened = (self._session if self._reads_pixels else self._normalised).open()
        read_shape = self._preprocess.input_shape if self._reads_pixels else self._image_shape
        _require_fit(*opened, read_shape, self._inputs, bundle)
        backend = LazyStages(bundle.exits, lambda: OnnxBackend(bundle.stage_graphs(), threads=threads))
        super().__init__(backend, bundle.family, deepest_exit=deepest_exit, abstain_below=abstain_below)

    def _prepare(self, policy: Policy) -> Plan:
        inputs = self._inputs.values(policy, self._abstain_below, self._last)
        return replace(super()._prepare(policy), inputs=inputs)

    def __call__(self, images_NKHW: NDArray[np.float32], *, operating_point: str | float | None = None) -> Answers:
        """Classify normalised images; see `Engine`."""
        images_NKHW = checked_images(images_NKHW, self._image_shape)
        return self._run(self._normalised, images_NKHW, [self.plan(operating_point)])

    def of_pixels(
        self,
        pixels_NHWK: NDArray[Any],
        *,
        operating_point: str | float | Sequence[str] | None = None,
        thresholds: NDArray[np.floating[Any]] | None = None,
    ) -> Answers:
        """Classify images or feature rows as `Preprocess.pixels` returns them; the graph normalises them if it can.

        Args:
            pixels_NHWK: The images, uint8; or feature rows (N, K), float32.
            operating_point: Name or budget for this call only, or one name per image; None for the present point.
            thresholds: Thresholds in place of those of the operating point, (1, E - 1) or (N, E - 1). No image goes
                beyond `deepest_exit` with them either.

        Raises:
            RequestError: An array has another shape or type, or a threshold is not between 0 and 1.
        """
        shape, kind = self._preprocess.input_shape, np.dtype(self._preprocess.input_type)
        is_array = isinstance(pixels_NHWK, np.ndarray)
        if not is_array or pixels_NHWK.dtype != kind or pixels_NHWK.shape[1:] != shape:
            found = f"{pixels_NHWK.dtype} of shape {pixels_NHWK.shape}" if is_array else type(pixels_NHWK).__name__
            raise RequestError(
                f"{'rows' if self._preprocess.reads_rows else 'images'} are {found}, the network needs {kind} of shape "
                f"(examples, {', '.join(map(str, shape))}); convert them"
            )
        plans, other_inputs = self._plans_of(operating_point, len(pixels_NHWK)), None
        if thresholds is not None:
            rows = checked_thresholds(thresholds, len(pixels_NHWK), self.family.exits)
            if self._last < self.family.exits - 1:
                rows[:, self._last] = ALL_LEAVE
            other_inputs = {THRESHOLDS: rows}
        if not self._reads_pixels:
            return self._run(self._normalised, self._preprocess.normalise(pixels_NHWK), plans, other_inputs)
        return self._run(self._session, pixels_NHWK, plans, other_inputs)

    def _plans_of(self, point: str | float | Sequence[str] | None, images: int) -> list[Plan]:
        """Return one plan for all images, or one per image."""
        if point is None or isinstance(point, str | float | int):
            return [self.plan(point)]
        if len(point) != images:
            raise RequestError(f"{len(point)} operating points for {images} images; give one, or one per image")
        by_name = {name: self.plan(name) for name in set(point)}
        return list(by_name.values()) if len(by_name) == 1 else [by_name[name] for name in point]

    def _run(
        self,
        session: "_LazySession",
        images: NDArray[Any],
        plans: Sequence[Plan],
        other_inputs: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> Answers:
        if len(images) == 0:
            return no_answers()
        inputs = plans[0].inputs
        if len(plans) > 1:
            inputs = {name: np.concatenate([plan.inputs[name] for plan in plans]) for name in inputs}
        if other_inputs is not None:
            inputs = {**inputs, **other_inputs}
        prediction_N, confidence_N, probability_NC, exit_N, cost_N = session.run(images, inputs)
        exit_N -= 1
        exact_N = cost_N.astype(np.float64)
        if other_inputs is None:
            # The same numbers as other engines give; the graph's are float32.
            cost_NE = np.stack([plan.cost_E for plan in plans])
            exact_N = cost_NE[0][exit_N] if len(plans) == 1 else cost_NE[np.arange(len(exit_N)), exit_N]
        return Answers(prediction_N, confidence_N.astype(np.float64), exit_N, exact_N, probability_NC)


def _require_fit(
    session: onnxruntime.InferenceSession,
    image_input: str,
    image_shape: tuple[int, ...],
    inputs: PointInputs,
    bundle: OneFile,
) -> None:
    """Refuse a graph whose inputs and outputs are not those that the metadata describe.

    Raises:
        WorkError: They differ.
    """
    values = (*session.get_inputs(), *session.get_overridable_initializers(), *session.get_outputs())
    found = {value.name: tuple(value.shape[1:]) for value in values}
    wanted: dict[str, tuple[int, ...]] = {image_input: image_shape}
    wanted.update({name: (width,) for name, width in inputs.widths.items()})
    wanted.update(dict.fromkeys(OUTPUTS, ()))
    wanted["probabilities"] = (len(bundle.manifest.class_names),)
    for name in (*wanted, *found):
        if found.get(name) != wanted.get(name):
            raise WorkError(f"{bundle.path}: the graph does not fit the metadata (see {name!r}); export the run again")


class _LazySession:
    """A session that is opened when it is first used."""

    def __init__(self, model: Callable[[], tuple[bytes, str]], bundle: OneFile, threads: int | None) -> None:
        self._model, self._bundle, self._threads = model, bundle, threads
        self._opening = Lock()
        self._opened: tuple[onnxruntime.InferenceSession, str] | None = None

    def open(self) -> tuple[onnxruntime.InferenceSession, str]:
        """Return the session and the name of its input."""
        with self._opening:
            if self._opened is None:
                content, name = self._model()
                options = session_options(self._threads)
                self._opened = open_session(content, options, what=str(self._bundle.path)), name
            return self._opened

    def run(self, images: NDArray[Any], inputs: Mapping[str, NDArray[np.float32]]) -> list[Any]:
        session, name = self.open()
        return list(session.run(OUTPUTS, {name: images, **inputs}))


class LazyStages:
    """A staged backend that is opened when it is first used.

    Args:
        exits: Number of exits.
        opened: Opens the backend.
    """

    def __init__(self, exits: int, opened: Callable[[], Backend]) -> None:
        self._exits, self._open = exits, opened
        self._opening = Lock()

    @property
    def exits(self) -> int:
        return self._exits

    @cached_property
    def _cached(self) -> Backend:
        return self._open()

    @property
    def _backend(self) -> Backend:
        with self._opening:
            return self._cached

    def start(self, images_BKHW: NDArray[np.float32]) -> Any:
        return self._backend.start(images_BKHW)

    def run(self, k: int, features: Any) -> tuple[Any, NDArray[np.float32]]:
        return self._backend.run(k, features)

    def run_without_head(self, k: int, features: Any) -> Any:
        return self._backend.run_without_head(k, features)

    def keep(self, features: Any, stay: NDArray[np.int64]) -> Any:
        return self._backend.keep(features, stay)
