"""run.json: how a run was started, on which machine, with which data and which network."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import AliasChoices, Field, model_validator

from elfnet.errors import WorkError
from elfnet.run.json_file import Strict

Count = Annotated[int, Field(ge=0)]


class Hardware(Strict):
    """The machine that a run was started on; `cores` is None if the system does not report it."""

    processor: str
    cores: int | None
    system: str


class Machine(Strict):
    """How a run computes, with every `auto` resolved.

    Attributes:
        device: cpu, cuda or mps.
        precision: float32 or bfloat16.
        compile: whether the network is compiled.
        channels_last: whether tensors have the memory layout channels_last.
        threads: CPU threads per node.
    """

    device: str
    precision: str
    compile: bool
    channels_last: bool
    threads: int


class Seeds(Strict):
    """The seeds of the training subset, of the order of classes, and of training."""

    subset: int
    class_order: int
    training: int


class DataInfo(Strict):
    """The data of a run.

    Attributes:
        fingerprint: hash of the splits.
        class_names, class_counts: name and number of training examples of each class.
        train, calibration, test: number of examples of each split.
        image_shape: height, width, channels.
        mean, std: of each channel in the training split.
    """

    fingerprint: str
    class_names: tuple[str, ...]
    class_counts: tuple[Count, ...]
    train: Count
    calibration: Count
    test: Count
    image_shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @model_validator(mode="after")
    def _check_classes(self) -> Self:
        if len(self.class_names) != len(self.class_counts):
            raise ValueError("the numbers of class names and counts differ")
        return self

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)


class MultiplyAdds(Strict):
    """Multiply-adds per image: of the plain backbone, and of each stage and each head in order."""

    plain: Annotated[int, Field(gt=0)]
    stages: tuple[Count, ...]
    heads: tuple[Count, ...]


class WeightsInfo(Strict):
    """The file with the initial weights of the backbone, its hash, and what was loaded from it."""

    file: str
    sha256: str
    summary: str


class NetworkInfo(Strict):
    """A network that was passed as `network=`: its signature, and the hash of its weights before training."""

    given: bool = True
    signature: str
    first_weights_sha256: str


class TauScore(Strict):
    """Balanced accuracy on the calibration split with one tau."""

    tau: float
    balanced_accuracy: float


class TauInfo(Strict):
    """The tau of a post-hoc correction of one exit, and the scores of all candidates; no scores if it was given."""

    tau: float
    score_before: float | None
    scores: tuple[TauScore, ...]


class ResampledInfo(Strict):
    """The fit of one exit's classifier on re-sampled features."""

    examples: Count
    steps: Count
    largest_derivative: float
    classes_as_they_were: tuple[str, ...]


class FitInfo(Strict):
    """What was fitted to the features of a finished run, without training.

    Attributes:
        tau, score_before, scores: of the last exit, if a tau was chosen.
        exits: what was fitted at each exit.
        smaller_neighbourhoods: neighbours of classes that have too few examples for the setting, by class name.
    """

    tau: float | None = None
    score_before: float | None = None
    scores: tuple[TauScore, ...] = ()
    exits: tuple[TauInfo, ...] | tuple[ResampledInfo, ...] = ()
    smaller_neighbourhoods: dict[str, int] = Field(default_factory=dict)


class RefitInfo(FitInfo):
    """The finished run that a run started from, and what was fitted.

    Attributes:
        method: setting `refit.method`.
        run: the path of the source run, as the user wrote it.
        checkpoint_sha256, epochs: of its last checkpoint.
        calibration_balanced_accuracy: after the fit, if the classifiers were fitted without training.
        summary: what was done, in one line for the user.
    """

    # Version 0.1.0 called the method `how`.
    method: str = Field(validation_alias=AliasChoices("method", "how"))
    run: str
    checkpoint_sha256: str
    epochs: Count
    calibration_balanced_accuracy: float | None = None
    summary: str


class RunInfo(Strict):
    """The content of run.json.

    Attributes:
        versions: of elfnet, Python and the packages that decide results, by name.
        command: the command that started the training, without the directory of the program.
        multiply_adds: of the network that the run ends with.
        devices, nodes: processes per node and nodes that the run was started with.
        weights: initial weights that were loaded from a file; None: there are none.
        network: the network that was passed as `network=`; None: that of the recipe.
        refit: the finished run that this one started from; None: there is none.
        training_of, epochs_taken_over: in a table, the row whose first epochs this run shares; None: it shares none.
    """

    versions: dict[str, str]
    hardware: Hardware
    command: str
    machine: Machine
    seeds: Seeds
    data: DataInfo
    multiply_adds: MultiplyAdds
    devices: Annotated[int, Field(ge=1)] = 1
    nodes: Annotated[int, Field(ge=1)] = 1
    weights: WeightsInfo | None = None
    network: NetworkInfo | None = None
    refit: RefitInfo | None = None
    training_of: str | None = None
    epochs_taken_over: int | None = None

    def require_same_data(self, fingerprint: str, *, where: str | Path, way_out: str = "or train again") -> None:
        """Check that data has the content that the run was trained on.

        Args:
            fingerprint: of the data.
            where: the run, for the message.
            way_out: the alternative to restoring the data.

        Raises:
            WorkError: it has not.
        """
        if self.data.fingerprint != fingerprint:
            raise WorkError(f"the data is not what the run in {where} was trained on; restore it, {way_out}")
