"""Images in an .npz file: one uint8 array of images of equal size, and one label per image."""

# Shapes: N images, H height, W width, K channels

from pathlib import Path

import numpy as np

from elfnet.data.sources.features import label_texts, read_arrays
from elfnet.data.sources.listing import refuse_one_class
from elfnet.data.sources.tables import sorted_class_names
from elfnet.data.types import SOURCES, LabelledImages, Source, SourceRequest
from elfnet.errors import RequestError, WorkError


@SOURCES.register("arrays")
def arrays(request: SourceRequest) -> Source[LabelledImages]:
    """Images in memory: .npz with X, uint8 (N, H, W) or (N, H, W, 3), and y (data.train, data.test)."""
    request.refuse_group_column("an array of images")
    if request.train is None:
        raise RequestError("source=arrays needs data.train: an .npz file with arrays X (uint8 images) and y")
    files = {"train": request.train, "calibration": request.calibration, "test": request.test}
    read = {split: _read(file) for split, file in files.items() if file is not None}
    names = sorted_class_names(set(read["train"][1]))
    refuse_one_class(names, str(request.train))
    number = {name: label for label, name in enumerate(names)}
    parts = {}
    for split, (images_NHWK, labels) in read.items():
        unknown = next((label for label in labels if label not in number), None)
        if unknown is not None:
            raise WorkError(f"{files[split]} has the class {unknown!r}, which {request.train} does not have; remove it")
        parts[split] = LabelledImages(images_NHWK, np.array([number[label] for label in labels], dtype=np.int64))
    # Colour images are photographs as a rule; grey ones are often characters, which a mirror changes.
    colour = parts["train"].example_shape[-1] == 3
    return Source(
        name=Path(request.train).stem,
        class_names=tuple(names),
        train=parts["train"],
        test=parts.get("test"),
        horizontal_flip=colour,
        calibration=parts.get("calibration"),
    )


def _read(file: Path) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint8]], list[str]]:
    images, labels = read_arrays(file, ["X", "y"])
    images = images[..., None] if images.ndim == 3 else images
    if images.ndim != 4 or images.dtype != np.uint8 or images.shape[-1] not in (1, 3) or 0 in images.shape:
        raise WorkError(
            f"X in {file} is {images.dtype} of shape {images.shape}; it must be uint8 of shape (N, H, W), (N, H, W, 1) "
            "or (N, H, W, 3), with values from 0 to 255"
        )
    texts = label_texts(labels, file)
    if len(texts) != len(images):
        raise WorkError(f"{file} has {len(images)} images but {len(texts)} labels; make the numbers equal")
    return images, texts
