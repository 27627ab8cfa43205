"""A listing: which files there are, of which class and group. Read from a folder, a list, a table or JSON."""

# Shapes: N examples, C classes

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from elfnet.data.examples import Ints
from elfnet.data.path_table import PathTable
from elfnet.errors import WorkError


@dataclass(frozen=True, eq=False, kw_only=True)
class Listing:
    """One split as it is written down; no image has been looked at.

    Attributes:
        origin: The file or folder it was read from, for messages.
        root: What the paths are relative to.
        paths: Of the files; empty for feature arrays, which have rows instead.
        label_names: What classes are called, in order of labels.
        numbered: Whether the file has numbers for classes, so that a number means the same class in every split;
            otherwise names do.
        groups: Name of each example's group; None without groups.
    """

    origin: str
    root: Path
    paths: PathTable
    labels_N: Ints
    label_names: tuple[str, ...]
    numbered: bool = False
    groups: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels_N)

    def to_train_on(self) -> "Listing":
        """Itself; refused without examples, with one class, a file listed twice, or a gap in the numbers of classes."""
        if not len(self):
            raise WorkError(f"{self.origin} lists no example; check it, or name another")
        if self.numbered:
            refuse_gap(self.labels_N, self.origin)
        refuse_one_class(self.label_names, self.origin)
        self._refuse_twice()
        return self

    def with_labels_of(self, train: "Listing") -> "Listing":
        """The same listing with the training listing's labels; a class that is not trained on is refused."""
        if not len(self):
            raise WorkError(f"{self.origin} lists no example; check it, or leave it out")
        self._refuse_twice()
        if self.numbered and train.numbered:
            largest, last = int(self.labels_N.max()), len(train.label_names) - 1
            if largest > last:
                raise WorkError(
                    f"{self.origin} has label {largest}, but {train.origin} has labels 0..{last}; "
                    "number the classes alike in both"
                )
            return replace(self, label_names=train.label_names)
        number = {name: label for label, name in enumerate(train.label_names)}
        unknown = [name for name in self.label_names if name not in number]
        if unknown:
            raise WorkError(
                f"{self.origin} has class {unknown[0]!r}, which {train.origin} does not have; "
                "remove it, or add training examples of it"
            )
        to_train_C = np.array([number[name] for name in self.label_names], dtype=np.int64)
        return replace(self, labels_N=to_train_C[self.labels_N], label_names=train.label_names)

    def _refuse_twice(self) -> None:
        """A file that is listed twice could be trained on and measured on, or be of two classes."""
        found = self.paths.first_twice()
        if found is None:
            return
        one, other = (self._label(position) for position in found)
        labels = f"as {one!r} and as {other!r}" if one != other else f"as {one!r}"
        raise WorkError(f"{self.origin} lists {self.paths[found[0]]} twice, {labels}; keep one of them")

    def _label(self, position: int) -> str:
        """As the file has it."""
        label = int(self.labels_N[position])
        return str(label) if self.numbered else self.label_names[label]


def refuse_one_class(names: Sequence[str], origin: str) -> None:
    """Nothing can be learnt from one class."""
    if len(names) == 1:
        raise WorkError(f"{origin} has one class only ({names[0]!r}); a classifier needs two")


def refuse_gap(labels_N: Ints, origin: str) -> None:
    """Labels must run from 0 on without a gap; the first label that is missing is named."""
    present = np.unique(labels_N)
    if present[-1] != len(present) - 1:
        missing = int((present != np.arange(len(present))).argmax())
        raise WorkError(
            f"{origin} has no example of label {missing}, but has label {present[missing]}; labels must run from 0 on "
            "without a gap: renumber them"
        )
