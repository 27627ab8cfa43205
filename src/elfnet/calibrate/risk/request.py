"""What is asked of risk control, checked on construction."""

from dataclasses import dataclass
from numbers import Real

from elfnet.calibrate.risk.groups import GROUPINGS
from elfnet.calibrate.risk.losses import LOSSES, LossForm, loss_form
from elfnet.calibrate.risk.method import METHODS, Method
from elfnet.calibrate.risk.sequence import PROCEDURES
from elfnet.errors import RequestError
from elfnet.registry import unknown_name


@dataclass(frozen=True, kw_only=True)
class RiskRequest:
    """How promises are certified; the epsilons come on their own, as one request can serve several.

    Attributes:
        delta: the chance that a promise may be broken.
        method: `betting` or `hoeffding-bentkus`.
        procedure: `fixed-sequence` or `upper-bound`.
        loss: `accuracy` or `agreement`.
        groups: `none`, `true` or `predicted`.
        seed: of the split and of the order of the examples.
        fraction: share of the examples that candidates are fitted on.
    """

    delta: float
    method: str
    procedure: str
    loss: str
    groups: str
    seed: int
    fraction: float

    def __post_init__(self) -> None:
        require_share("delta", self.delta, "the chance that the promise is broken")
        require_share("fraction", self.fraction, "the share of the examples to fit on")
        for kind, name, choices in (
            ("risk control method", self.method, METHODS.names()),
            ("risk control procedure", self.procedure, list(PROCEDURES)),
            ("risk control loss", self.loss, list(LOSSES)),
            ("grouping", self.groups, list(GROUPINGS)),
        ):
            if name not in choices:
                raise unknown_name(kind, name, choices)

    @property
    def bounds(self) -> Method:
        return METHODS[self.method]

    @property
    def form(self) -> LossForm:
        return loss_form(self.loss, prefers_signed=self.bounds.prefers_signed)

    @property
    def reads_labels(self) -> bool:
        """Whether the labels of the calibration split play any part."""
        return self.loss == "accuracy" or self.groups == "true"


def require_share(name: str, value: object, meaning: str) -> None:
    """Refuse what is not strictly between 0 and 1."""
    if not isinstance(value, Real) or not 0.0 < float(value) < 1.0:
        raise RequestError(f"{name}={value!r} must lie between 0 and 1, both excluded: it is {meaning}; try 0.05")
