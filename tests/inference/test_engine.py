"""The engine gives what replay gives, and really does not run later stages on those who left."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.hooks import RemovableHandle

from elfnet.calibrate.line_search import fixed_points, measured_point
from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import Replay, compute_confidences, confidences_for_policy, replay
from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.exits.policy import NEVER, Policy
from elfnet.inference.backends.torch import TorchBackend
from elfnet.inference.engine import ABSTAINED, Answers, Engine, join_answers
from elfnet.models.build import build_network
from elfnet.models.staged import StagedNetwork

IMAGES, CLASSES = 60, 5


@pytest.fixture(scope="module")
def network() -> StagedNetwork:
    torch.manual_seed(0)
    network = build_network("resnet8", classes=CLASSES, head_filters=8)
    with torch.no_grad():
        for head in network.heads:
            # Untrained heads are all equally unsure; larger weights spread the confidences.
            head.classifier.weight *= 4  # type: ignore[union-attr,operator]
    return network.eval()


@pytest.fixture(scope="module")
def images() -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=(IMAGES, 3, 16, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def table(
    make_table: Callable[[StagedNetwork, NDArray[np.float32]], ExitTable],
    network: StagedNetwork,
    images: NDArray[np.float32],
) -> ExitTable:
    return make_table(network, images)


@pytest.fixture(scope="module")
def thresholds(table: ExitTable) -> list[float]:
    """Thresholds that divide the examples, midway between two observed confidences."""
    observed = np.sort(compute_confidences(table).confidence_NE[:, :-1], axis=None)
    return [float((observed[i] + observed[i + 1]) / 2) for i in (30, 90, 150)]


@pytest.fixture
def engine(network: StagedNetwork, table: ExitTable, thresholds: list[float]) -> Engine:
    family = fixed_points(table, thresholds)
    return Engine(TorchBackend(network), family)


def assert_same(answers: Answers, expected: Replay) -> None:
    assert answers.exit_N.tolist() == expected.exit_N.tolist()
    assert answers.prediction_N.tolist() == expected.prediction_N.tolist()
    assert answers.confidence_N == pytest.approx(expected.confidence_N, abs=1e-4)
    assert answers.cost_N.tolist() == expected.cost_N.tolist()
    assert answers.probability_NC.sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    assert answers.probability_NC.max(axis=1) == pytest.approx(answers.confidence_N, abs=1e-6)


@pytest.mark.parametrize("batch", [1, 7, IMAGES])
def test_engine_equals_replay_at_any_batch_size(
    engine: Engine, table: ExitTable, images: NDArray[np.float32], thresholds: list[float], batch: int
) -> None:
    for point in fixed_points(table, thresholds).points:
        expected = replay(table, point.policy)
        parts = [engine(images[i : i + batch], operating_point=point.name) for i in range(0, IMAGES, batch)]
        assert_same(join_answers(parts), expected)
    assert (expected.exit_N < 3).sum() > 0


def test_later_stages_see_only_those_who_stay(
    engine: Engine, network: StagedNetwork, images: NDArray[np.float32]
) -> None:
    sizes: list[int] = []

    def look(_module: object, inputs: tuple[torch.Tensor]) -> None:
        sizes.append(len(inputs[0]))

    hooks = [stage.register_forward_pre_hook(look) for stage in network.stages]
    answers = engine(images, operating_point=engine.family.names()[1])
    for hook in hooks:
        hook.remove()
    reaching = [int((answers.exit_N >= k).sum()) for k in range(4)]
    # A stage that nobody reaches is not run at all.
    assert sizes == [number for number in reaching if number]
    assert sizes[-1] < sizes[0]


class FromTable:
    """Gives the logits of a table, so that nothing is left to rounding; an image's first number is its row."""

    def __init__(self, table: ExitTable) -> None:
        self._table, self.exits = table, table.exits

    def start(self, images_BKHW: NDArray[np.float32]) -> NDArray[np.int64]:
        return images_BKHW[:, 0, 0, 0].astype(np.int64)

    def run(self, k: int, features: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        return features, self._table.logits_NEC[features, k]

    def run_without_head(self, _k: int, features: NDArray[np.int64]) -> NDArray[np.int64]:
        return features

    def keep(self, features: NDArray[np.int64], stay: NDArray[np.int64]) -> NDArray[np.int64]:
        return features[stay]


ADJUSTMENT = LogitAdjustment((0.3, 0.0, 0.8, 1.2), tuple(np.log([0.5, 0.25, 0.15, 0.07, 0.03]).tolist()))


def test_engine_equals_replay_with_adjusted_logits(
    network: StagedNetwork, table: ExitTable, images: NDArray[np.float32], thresholds: list[float]
) -> None:
    """From images to answers: what the exit table says of an adjusted policy is what the engine does."""
    adjusted = replace(table, adjustment=ADJUSTMENT)
    family = fixed_points(adjusted, thresholds)
    engine = Engine(TorchBackend(network), family)
    changed = 0
    for point in family.points:
        expected = replay(table, point.policy)
        assert_same(engine(images, operating_point=point.name), expected)
        changed += int(
            (expected.prediction_N != replay(table, replace(point.policy, adjustment=None)).prediction_N).sum()
        )
    assert changed > IMAGES // 4


@pytest.mark.parametrize("adjustment", [None, ADJUSTMENT])
@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("batch", [1, 2, 13, 200])
def test_the_same_logits_give_the_same_bits(
    table: ExitTable, batch: int, combine: bool, adjustment: LogitAdjustment | None
) -> None:
    """Whether all leave at once, nobody does, or some: exits, answers and confidences are those of replay, exactly."""
    rng = np.random.default_rng(0)
    logits_NEC = rng.normal(0, 2, (200, 4, CLASSES)).astype(np.float32)
    # Equally good classes; an answer that is certain; a class that is impossible.
    logits_NEC[0] = 1.0
    logits_NEC[1, 1:] = [500, 0, 0, 0, 0]
    logits_NEC[2, 1, 0] = -np.inf
    made_up = replace(table, logits_NEC=logits_NEC, labels_N=np.arange(200) % CLASSES)
    policy = Policy("some", (0.6, 0.7, 0.55), (0.8, 1.0, 1.2, 0.7), combine=combine, adjustment=adjustment)
    engine = Engine(FromTable(made_up), _family_with(table, policy))
    rows = np.arange(200, dtype=np.float32).reshape(-1, 1, 1, 1)
    expected = replay(made_up, policy)
    answers = join_answers([engine(rows[i : i + batch]) for i in range(0, 200, batch)])
    assert set(expected.exit_N.tolist()) == {0, 1, 2, 3}
    for name in ("exit_N", "prediction_N", "confidence_N", "cost_N"):
        assert np.array_equal(getattr(answers, name), getattr(expected, name)), name
    assert answers.probability_NC.dtype == np.float32
    chosen_N = answers.probability_NC[np.arange(200), answers.prediction_N]
    assert np.array_equal(chosen_N, expected.confidence_N.astype(np.float32))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_numbers_of_a_broken_network_convince_nobody(table: ExitTable, wrong: float) -> None:
    """They go to the end without a confidence or a warning, and the other images of the batch are answered."""
    logits_NEC = table.logits_NEC.copy()
    logits_NEC[7, :, 2] = wrong
    policy = Policy("some", (0.5, 0.5, 0.5), (1.0,) * 4)
    engine = Engine(FromTable(replace(table, logits_NEC=logits_NEC)), _family_with(table, policy))
    answers = engine(np.arange(IMAGES, dtype=np.float32).reshape(-1, 1, 1, 1))
    expected = replay(table, policy)
    others = np.arange(IMAGES) != 7
    assert answers.exit_N[7] == 3
    assert np.isnan(answers.confidence_N[7])
    assert answers.exit_N[others].tolist() == expected.exit_N[others].tolist()
    assert answers.confidence_N[others].tolist() == expected.confidence_N[others].tolist()


def _family_with(table: ExitTable, policy: Policy) -> Family:
    derived = confidences_for_policy(table, policy)
    point = measured_point(derived, policy, rule="fixed")
    return Family.of(table, [point], confidence_scale=policy.confidence_scale)


def _calls(network: StagedNetwork) -> tuple[list[str], list[RemovableHandle]]:
    """Which stages and heads are run, in order."""
    calls: list[str] = []

    def note(name: str) -> Callable[[object, object], None]:
        return lambda _module, _inputs: calls.append(name)

    hooks = [part.register_forward_pre_hook(note(f"stage {k}")) for k, part in enumerate(network.stages)]
    hooks += [part.register_forward_pre_hook(note(f"head {k}")) for k, part in enumerate(network.heads)]
    return calls, hooks


def test_a_head_that_nobody_can_leave_at_is_not_run(
    network: StagedNetwork, table: ExitTable, images: NDArray[np.float32], thresholds: list[float]
) -> None:
    policy = Policy("middle only", (NEVER, thresholds[1], NEVER), (1.0,) * 4)
    engine = Engine(TorchBackend(network), _family_with(table, policy))
    calls, hooks = _calls(network)
    answers = engine(images)
    for hook in hooks:
        hook.remove()
    assert calls == ["stage 0", "stage 1", "head 1", "stage 2", "stage 3", "head 3"]
    assert_same(answers, replay(table, policy))
    saved = table.cost_E[1] - answers.cost_N[answers.exit_N == 1]
    assert table.head_cost_E is not None
    assert saved == pytest.approx(table.head_cost_E[0])
    assert answers.cost_N.mean() == pytest.approx(engine.family.points[0].expected.mean_cost)


def test_full_depth_costs_what_the_plain_backbone_costs(engine: Engine, images: NDArray[np.float32]) -> None:
    assert engine(images, operating_point="full").cost_N == pytest.approx(1.0)


@pytest.mark.parametrize("batch", [1, 7, IMAGES])
def test_combining_exits_equals_replay(
    network: StagedNetwork, table: ExitTable, images: NDArray[np.float32], thresholds: list[float], batch: int
) -> None:
    policy = Policy("all together", (thresholds[2], NEVER, thresholds[0]), (0.5, 1.0, 2.0, 1.5), combine=True)
    engine = Engine(TorchBackend(network), _family_with(table, policy))
    answers = join_answers([engine(images[i : i + batch]) for i in range(0, IMAGES, batch)])
    assert_same(answers, replay(table, policy))
    assert len(set(answers.exit_N.tolist())) > 1
    # By hand, for those who went to the end: the mean of the scaled logits.
    combined_NC = (table.logits_NEC * np.array([0.5, 1.0, 2.0, 1.5])[:, None]).mean(axis=1)
    last_N = answers.exit_N == 3
    assert answers.prediction_N[last_N].tolist() == combined_NC.argmax(axis=1)[last_N].tolist()
    assert (combined_NC.argmax(axis=1) != table.logits_NEC[:, -1].argmax(axis=1)).any()


def test_operating_point_by_name_and_budget(engine: Engine, images: NDArray[np.float32]) -> None:
    assert engine.operating_point == "full"
    assert (engine(images).exit_N == 3).all()
    cheapest = min(point.expected.mean_cost for point in engine.family.points)
    engine.set_operating_point(cheapest)
    assert engine(images).cost_N.mean() == pytest.approx(cheapest)
    with pytest.raises(RequestError, match="unknown operating point 'ful'"):
        engine.set_operating_point("ful")
    with pytest.raises(RequestError):
        engine(images, operating_point=0.0001)


def test_cap_on_depth(network: StagedNetwork, table: ExitTable, images: NDArray[np.float32]) -> None:
    engine = Engine(TorchBackend(network), fixed_points(table, []), deepest_exit=1)
    answers = engine(images)
    assert (answers.exit_N == 1).all()
    assert answers.prediction_N.tolist() == compute_confidences(table).prediction_NE[:, 1].tolist()


def test_abstain(network: StagedNetwork, table: ExitTable, images: NDArray[np.float32]) -> None:
    unsure = float(np.median(compute_confidences(table).confidence_NE[:, -1]))
    engine = Engine(TorchBackend(network), fixed_points(table, []), abstain_below=unsure)
    answers = engine(images)
    assert ((answers.prediction_N == ABSTAINED) == (answers.confidence_N < unsure)).all()
    assert 0 < (answers.prediction_N == ABSTAINED).sum() < IMAGES


def test_no_images(engine: Engine, images: NDArray[np.float32]) -> None:
    answers = engine(images[:0])
    assert [len(getattr(answers, name)) for name in Answers.__dataclass_fields__] == [0] * 5


def test_many_callers(engine: Engine, table: ExitTable, images: NDArray[np.float32], thresholds: list[float]) -> None:
    """Threads with operating points of their own, while the default is being changed."""
    points = fixed_points(table, thresholds).points

    def call(number: int) -> None:
        point = points[number % len(points)]
        engine.set_operating_point(point.name)
        assert_same(engine(images, operating_point=point.name), replay(table, point.policy))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(12)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"deepest_exit": 4}, "must lie in 0..3"), ({"abstain_below": 2.0}, "must be a probability")],
)
def test_refused(network: StagedNetwork, table: ExitTable, settings: dict[str, float], message: str) -> None:
    make: Callable[..., Engine] = Engine
    with pytest.raises(RequestError, match=message):
        make(TorchBackend(network), fixed_points(table, []), **settings)
    fewer = replace(table, logits_NEC=table.logits_NEC[:, 1:], cost_E=table.cost_E[1:], head_cost_E=None)
    with pytest.raises(RequestError, match="the network has 4 exits, the operating points are for 3"):
        make(TorchBackend(network), fixed_points(fewer, []))


def test_exits_that_do_not_pay_are_left_out(
    network: StagedNetwork, table: ExitTable, images: NDArray[np.float32], thresholds: list[float]
) -> None:
    engine = Engine(TorchBackend(network), fixed_points(table, thresholds))
    name = engine.family.names()[2]
    engine.set_operating_point(name)
    assert engine.exits_in_use() == (True,) * 4
    # Heads 1 and 3 take as long as the whole network.
    cost = MeasuredCost(
        stages=(1.0,) * 4, heads=(9.0, 1e-6, 9.0, 1e-6), plain=4.0, backend="made up", batch=1, threads=1
    )
    reasons = engine.leave_out_unprofitable_exits(cost)
    assert engine.operating_point == name
    assert engine.exits_in_use() == (False, True, False, True)
    assert "does not pay" in reasons[name][0].why
    point = engine.family.point(name).policy
    expected = replay(table, replace(point, thresholds=(NEVER, point.thresholds[1], NEVER)))
    assert_same(engine(images), expected)
