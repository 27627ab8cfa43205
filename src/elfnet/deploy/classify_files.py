"""Answers for a stream of image files, a batch at a time: memory does not grow with their number."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.deploy.model import Model, Prediction
from elfnet.errors import ElfnetError, RequestError


@dataclass(frozen=True)
class Classified:
    file: str
    prediction: Prediction


@dataclass(frozen=True)
class NotRead:
    """A file that could not be used, and why, in one line."""

    file: str
    reason: str


def classify_files(
    model: Model, files: Iterable[str], *, batch: int = 64, top: int = 1, resize: bool = True
) -> Iterator[Classified | NotRead]:
    """One result a file; those that can be read in the order of `files`, the others as soon as they are met."""
    if batch < 1 or top < 1:
        raise RequestError(f"batch={batch} and top={top} must be 1 or more")
    names: list[str] = []
    pixels: list[NDArray[np.uint8]] = []

    def answers() -> Iterator[Classified]:
        ready_NKHW = model.preprocess.normalise(np.stack(pixels))
        for name, prediction in zip(names, model.answer(ready_NKHW, top=top), strict=True):
            yield Classified(name, prediction)

    for file in files:
        try:
            pixels.append(model.preprocess.pixels(file, resize=resize))
        except ElfnetError as error:
            yield NotRead(file, str(error))
            continue
        names.append(file)
        if len(names) == batch:
            yield from answers()
            names.clear()
            pixels.clear()
    if names:
        yield from answers()
