"""The networks that lie beside the code: `NAME.onnx` with its facts in `NAME.toml`, and samples in the folder `NAME`.

`networks/` is part of the package. A clone also has `models/`, for networks that are too large for the package or whose
data states no licence.
"""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from elfnet.errors import WorkError
from elfnet.parsing import read_toml
from elfnet.run.json_file import Strict, first_error

PACKAGED = Path(__file__).parent / "networks"
IN_CLONE = Path(__file__).parents[3] / "models"


class NetworkFacts(Strict):
    """The content of `NAME.toml`.

    Attributes:
        summary: One line for lists.
        licence: Of weights and samples, and what the data allows.
        data: Where the training data comes from.
        command: The command that trained it.
        test_images: Number of test images behind the accuracies.
        accuracy: Accuracy on the test split by operating point, from 0 to 1.
        sha256: Of the file.
    """

    summary: str
    licence: str
    data: str
    command: str
    test_images: Annotated[int, Field(gt=0)]
    accuracy: dict[str, Annotated[float, Field(ge=0, le=1)]]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ShippedNetwork:
    """A network that lies beside the code.

    Attributes:
        name: The name to use in place of a path.
        path: The file that `elfnet export` wrote.

    Args:
        facts_file: Its `NAME.toml`.
    """

    def __init__(self, facts_file: Path) -> None:
        self._facts_file = facts_file
        self.name = facts_file.stem
        self.path = facts_file.with_suffix(".onnx")

    @cached_property
    def facts(self) -> NetworkFacts:
        """What is known about it."""
        try:
            return NetworkFacts.model_validate(read_toml(self._facts_file))
        except (OSError, ValidationError, ValueError) as error:
            reason = first_error(error) if isinstance(error, ValidationError) else error
            raise WorkError(f"cannot read {self._facts_file}: {reason}; install elfnet again") from error

    @property
    def samples(self) -> Path | None:
        """Folder with sample images; None if there is none."""
        folder = self._facts_file.with_suffix("")
        return folder if folder.is_dir() else None

    def verified_path(self) -> Path:
        """Return the path of the file after checking its hash.

        Raises:
            WorkError: The file is missing or is not the one that was measured.
        """
        try:
            found = hashlib.sha256(self.path.read_bytes()).hexdigest()
        except OSError as error:
            raise WorkError(
                f"the file of network {self.name} is missing ({self.path}); install elfnet again"
            ) from error
        if found != self.facts.sha256:
            raise WorkError(f"{self.path} is damaged or was altered (its hash does not match); install elfnet again")
        return self.path


def shipped_networks() -> dict[str, ShippedNetwork]:
    """Return the networks beside the code by name: those of the package first, then those of a clone."""
    found = [file for folder in (PACKAGED, IN_CLONE) for file in sorted(folder.glob("*.toml"))]
    networks: dict[str, ShippedNetwork] = {}
    for file in found:
        networks.setdefault(file.stem, ShippedNetwork(file))
    return networks
