"""Testing in a fixed order."""

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.calibrate.risk import sequence
from elfnet.calibrate.risk.bounds import METHODS
from elfnet.calibrate.risk.losses import loss_form
from elfnet.calibrate.risk.sequence import PROCEDURES, Certified, certified_prefix


def _prefix(
    loss_PN: NDArray[np.int8],
    *,
    procedure: str = "fixed-sequence",
    method: str = "betting",
    members: dict[str, NDArray[np.bool_]] | None = None,
) -> Certified:
    bounds = METHODS[method]
    return certified_prefix(
        loss_PN,
        members or {"all": np.ones(loss_PN.shape[1], dtype=np.bool_)},
        epsilon=0.1,
        delta=0.1,
        method=bounds,
        form=loss_form("accuracy", prefers_signed=bounds.prefers_signed),
        procedure=procedure,
    )


def _coins(chance_P: list[float], examples: int = 400) -> NDArray[np.int8]:
    rng = np.random.default_rng(0)
    return (rng.random((len(chance_P), examples)) < np.array(chance_P)[:, None]).astype(np.int8)


@pytest.mark.parametrize("procedure", PROCEDURES)
@pytest.mark.parametrize("method", ["betting", "hoeffding-bentkus"])
def test_nothing_is_certified_after_the_first_failure(procedure: str, method: str) -> None:
    loss_PN = _coins([0.0, 0.01, 0.03, 0.3, 0.0, 0.0])
    assert _prefix(loss_PN, procedure=procedure, method=method).passed == 3
    assert _prefix(loss_PN[3:], procedure=procedure, method=method) == Certified(0, None)
    assert _prefix(loss_PN[4:], procedure=procedure, method=method).passed == 2


@pytest.mark.parametrize("method", ["betting", "hoeffding-bentkus"])
def test_both_procedures_certify_the_same(method: str) -> None:
    for start in range(20):
        loss_PN = np.random.default_rng(start).random((30, 200)) < np.linspace(0.0, 0.2, 30)[:, None]
        by_p, by_bound = (_prefix(loss_PN.astype(np.int8), procedure=name, method=method) for name in PROCEDURES)
        assert 0 < by_p.passed == by_bound.passed < 30
        assert by_p.statistic is not None
        assert by_bound.statistic is not None
        assert by_p.statistic <= 0.1
        assert loss_PN[by_p.passed - 1].mean() < by_bound.statistic <= 0.1


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    for chance_P in ([0.0] * 7, [0.0, 0.01, 0.02, 0.4, 0.0], [0.02, 0.4]):
        loss_PN = _coins(chance_P)
        whole = _prefix(loss_PN)
        for size in (1, 2, 3):
            monkeypatch.setattr(sequence, "CHUNK_CANDIDATES", size)
            assert _prefix(loss_PN) == whole
        monkeypatch.undo()


def test_the_worst_group_decides() -> None:
    loss_PN = _coins([0.0, 0.0])
    few_N = np.arange(400) % 2 == 0
    loss_PN[1, np.flatnonzero(few_N)[:30]] = 1
    members = {"many": ~few_N, "few": few_N}
    assert _prefix(loss_PN).passed == 2
    grouped = _prefix(loss_PN, members=members)
    assert grouped.passed == 1
    assert _prefix(loss_PN, members=dict(reversed(members.items()))) == grouped
    of_group = [_prefix(loss_PN[:1, member_N]).statistic for member_N in members.values()]
    assert grouped.statistic == max(value for value in of_group if value is not None)
