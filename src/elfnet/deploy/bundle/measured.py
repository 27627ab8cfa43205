"""What was measured when a bundle was made: the only part of a manifest that is not the same every time."""

from elfnet.deploy.bundle.part import Count, Part, Share


class PointParity(Part):
    """One operating point, torch against the exported graphs.

    Attributes:
        differ: examples with another exit or another answer.
        on_the_edge: those of them whose confidence in torch lies within 1e-4 of a threshold that decided, or whose
            two best classes are as close.
    """

    differ: Count
    on_the_edge: Count


class Parity(Part):
    """The exported graphs against torch, on images of the calibration split.

    Attributes:
        images: how many.
        largest_logit: the largest logit in absolute value, to compare differences with.
        largest_difference: of the logits of each exit.
        points: by operating point.
        engine_points: those at which the engine was run on the graphs; the others follow from the graphs' logits.
    """

    split: str
    images: Count
    largest_logit: float
    largest_difference: tuple[float, ...]
    points: dict[str, PointParity]
    engine_points: tuple[str, ...]


class PeakMemory(Part):
    """Of a process with the base package alone that loads the bundle and classifies one batch.

    Attributes:
        bytes: the process's largest resident size; None where the system does not tell.
        before_loading: the same before the bundle was loaded: Python and the imported packages.
    """

    batch: Count
    bytes: Count | None
    before_loading: Count | None


class AgainstFloat32(Part):
    """Another precision against float32, on the whole calibration split and on the exporting machine.

    Attributes:
        images: how many.
        accuracy, accuracy_float32: at full depth.
        time_ratio: processor time of all stages relative to float32 on the same backend, by batch size.
        backend: what computed both.
    """

    images: Count
    accuracy: Share
    accuracy_float32: Share
    time_ratio: dict[str, float]
    backend: str

    @property
    def points_lost(self) -> float:
        return 100 * (self.accuracy_float32 - self.accuracy)


class Measured(Part):
    """What was measured on the exporting machine.

    Attributes:
        accuracy: of the points at which the engine was run, on the images of the parity check.
        parity: of the float32 variant with torch; None for others, which give other answers.
        against_float32: of the other variants.
    """

    accuracy: dict[str, Share]
    parity: Parity | None = None
    against_float32: AgainstFloat32 | None = None
    peak_memory: PeakMemory | None = None
    versions: dict[str, str]
