"""The one-file graph gives what replay and the staged engine give, for every kind of policy."""

# Shapes: N images, E exits, C classes

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray

from elfnet.calibrate.line_search import measured_point
from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import confidences_for_policy, replay
from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.exits.policy import NEVER, Policy
from elfnet.export.assemble import assemble
from elfnet.inference.backends.onnxruntime import OnnxBackend
from elfnet.inference.engine import Engine
from elfnet.inference.graph_inputs import ALL_LEAVE, PointInputs, rounded_threshold
from elfnet.inference.preprocess import Preprocess

EXAMPLES = 60
TOO_NEAR = 1e-4
LOG_PRIOR = tuple(np.log([0.4, 0.25, 0.2, 0.1, 0.05]).tolist())
KINDS: dict[str, Callable[[Policy], Policy]] = {
    "plain": lambda policy: policy,
    "scaled": lambda policy: replace(policy, confidence_scale=tuple(np.linspace(0.5, 1.5, policy.exits).tolist())),
    "combined": lambda policy: replace(policy, combine=True, confidence_scale=(0.7,) * policy.exits),
    "adjusted": lambda policy: replace(
        policy, adjustment=LogitAdjustment((0.0, *np.linspace(0.5, 1.5, policy.exits - 1).tolist()), LOG_PRIOR)
    ),
    "entropy": lambda policy: replace(policy, measure="entropy"),
}


def policies(table: ExitTable, kind: str) -> list[Policy]:
    """Nobody leaves early, some leave at each exit, some leave where heads are left out, and everybody leaves."""
    never = KINDS[kind](Policy(f"{kind} none", (NEVER,) * (table.exits - 1), (1.0,) * table.exits))
    confidence_NE = confidences_for_policy(table, never).confidence_NE[:EXAMPLES]
    some = tuple(_between(confidence_NE[:, k], 0.6) for k in range(table.exits - 1))
    few = tuple(NEVER if k % 2 == 0 else threshold for k, threshold in enumerate(some))
    nothing = (0.0,) * (table.exits - 1)
    thresholds = {"some": some, "few": few, "all": nothing}
    return [never, *(replace(never, name=f"{kind} {name}", thresholds=values) for name, values in thresholds.items())]


def _between(observed: NDArray[np.float64], share: float) -> float:
    """Return the middle of a wide gap between two values."""
    around = np.sort(observed)[int((share - 0.15) * len(observed)) : int((share + 0.15) * len(observed))]
    widest = int(np.argmax(np.diff(around)))
    return float(around[widest : widest + 2].mean())


def family_of(table: ExitTable, of: Sequence[Policy]) -> Family:
    points = [measured_point(confidences_for_policy(table, policy), policy, rule="fixed") for policy in of]
    return Family.of(table, points, confidence_scale=of[0].confidence_scale)


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def run(session: onnxruntime.InferenceSession, images: NDArray[Any], **inputs: NDArray[np.float32]) -> list[Any]:
    return list(session.run(["class", "confidence", "probabilities", "exit", "cost"], {"images": images, **inputs}))


@pytest.mark.parametrize("kind", [*KINDS, "every kind"])
def test_one_call_equals_replay_and_the_staged_engine(
    exported_graphs: list[bytes], exported_images: NDArray[np.float32], exported_table: ExitTable, kind: str
) -> None:
    chosen = [policy for each in KINDS for policy in policies(exported_table, each)]
    if kind != "every kind":
        chosen = policies(exported_table, kind)
    family = family_of(exported_table, chosen)
    inputs = PointInputs.of(family)
    assert set(inputs.varying) == (
        {"confidence_scale", "adjust_tau", "combine", "entropy"} if kind == "every kind" else set()
    )
    session = session_of(assemble(exported_graphs, family, image_input="float32"))
    staged = Engine(OnnxBackend(exported_graphs, threads=1), family)
    for policy in chosen:
        expected = replay(exported_table, policy)
        values = inputs.values(policy)
        taken = set()
        for batch, first in ((1, 0), (1, 1), (3, 2), (8, 5), (47, 13)):
            part = slice(first, first + batch)
            class_N, confidence_N, probability_NC, exit_N, cost_N = run(session, exported_images[part], **values)
            answers = staged(exported_images[part], operating_point=policy.name)
            assert exit_N.tolist() == (expected.exit_N[part] + 1).tolist() == (answers.exit_N + 1).tolist()
            assert class_N.tolist() == expected.prediction_N[part].tolist() == answers.prediction_N.tolist()
            assert confidence_N == pytest.approx(expected.confidence_N[part], abs=TOO_NEAR)
            assert probability_NC == pytest.approx(answers.probability_NC, abs=TOO_NEAR)
            assert cost_N == pytest.approx(answers.cost_N, abs=1e-6)
            taken |= set(exit_N.tolist())
        early = policy.name.rsplit(" ", 1)[1]
        assert {"none": taken == {family.exits}, "all": taken == {1}}.get(early, len(taken) > 1)


def test_every_row_may_have_an_operating_point_of_its_own(
    exported_graphs: list[bytes], exported_images: NDArray[np.float32], exported_table: ExitTable
) -> None:
    chosen = [policy for kind in KINDS for policy in policies(exported_table, kind)]
    family = family_of(exported_table, chosen)
    inputs = PointInputs.of(family)
    session = session_of(assemble(exported_graphs, family, image_input="float32"))
    of_row = [chosen[row % len(chosen)] for row in range(EXAMPLES)]
    values = {name: np.concatenate([inputs.values(policy)[name] for policy in of_row]) for name in inputs.widths}
    answers = run(session, exported_images[:EXAMPLES], **values)
    for policy in chosen:
        rows = [row for row in range(EXAMPLES) if of_row[row] is policy]
        alone = run(session, exported_images[rows], **inputs.values(policy))
        for together, separate in zip(answers, alone, strict=True):
            assert together[rows] == pytest.approx(separate, abs=1e-5)


@pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)
def test_cap_on_depth_and_abstaining(
    exported_graphs: list[bytes], exported_images: NDArray[np.float32], exported_table: ExitTable
) -> None:
    chosen = policies(exported_table, "plain")
    family = family_of(exported_table, chosen)
    inputs = PointInputs.of(family)
    session = session_of(assemble(exported_graphs, family, image_input="float32"))
    backend = OnnxBackend(exported_graphs, threads=1)
    for deepest in range(family.exits):
        unsure = float(np.median(confidences_for_policy(exported_table, chosen[0]).confidence_NE[:EXAMPLES, deepest]))
        staged = Engine(backend, family, deepest_exit=deepest, abstain_below=unsure + 1e-6)
        for policy in chosen:
            answers = staged(exported_images[:EXAMPLES], operating_point=policy.name)
            values = inputs.values(policy, unsure + 1e-6, deepest)
            class_N, _, _, exit_N, cost_N = run(session, exported_images[:EXAMPLES], **values)
            assert exit_N.tolist() == (answers.exit_N + 1).tolist()
            assert class_N.tolist() == answers.prediction_N.tolist()
            assert cost_N == pytest.approx(answers.cost_N, abs=1e-6)
            assert exit_N.max() <= deepest + 1
        assert -1 in class_N
        assert (class_N >= 0).any()


@pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)
def test_what_is_not_needed_is_not_run(
    exported_graphs: list[bytes], exported_images: NDArray[np.float32], exported_table: ExitTable, tmp_path: Path
) -> None:
    family = family_of(exported_table, policies(exported_table, "plain"))
    model = assemble(exported_graphs, family, image_input="float32").SerializeToString()

    def executed(thresholds: list[list[float]], images: int = 2) -> set[str]:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / "profile")
        session = onnxruntime.InferenceSession(model, options)
        given = np.array(thresholds, dtype=np.float32)
        run(session, exported_images[:images], thresholds=given, abstain_below=np.zeros((1, 1), np.float32))
        events = json.loads(Path(session.end_profiling()).read_text())
        # Names of nodes are "stage_0/..." and "stage_0/head/...", behind the name of a copy.
        found = (re.match(r"(?:full/|one/|again/)*stage_\d(?:/head)?", event["name"]) for event in events)
        return {match[0] for match in found if match}

    stages = {f"stage_{k}" for k in range(family.exits)}
    below_1 = rounded_threshold(1 - 1e-12)
    assert family.exits == 4
    # Every early exit out of use: the plain chain, for one image and for several.
    plain = {f"full/{stage}" for stage in stages}
    assert executed([[1.0, 1.0, 2.0]]) == executed([[1.0, 1.0, 1.0]], images=1) == plain
    assert executed([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]) == plain
    assert executed([[1.0, below_1, 1.0]]) == stages | {"stage_1/head"}
    assert executed([[1.0, ALL_LEAVE, 0.5]]) == {"stage_0", "stage_1", "stage_1/head"}
    # A row that may leave is enough.
    assert executed([[1.0, 1.0, 1.0], [1.0, below_1, 1.0]]) == stages | {"stage_1/head"}
    one = {f"one/{stage}" for stage in stages}
    assert executed([[1.0, below_1, 1.0]], images=1) == one | {"one/stage_1/head"}
    assert executed([[1.0, ALL_LEAVE, 0.5]], images=1) == {"one/stage_0", "one/stage_1", "one/stage_1/head"}


@pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)
def test_cheap_first_stage_is_computed_again_where_it_is_needed(
    exported_graphs: list[bytes], exported_images: NDArray[np.float32], exported_table: ExitTable
) -> None:
    family = family_of(exported_table, policies(exported_table, "plain"))
    saved = family.cost[0] - family.head_cost[0] - 0.009
    cheap = replace(family, cost=(family.cost[0] - saved, *family.cost[1:]))
    inputs = PointInputs.of(family)
    sessions, again = [], []
    for chosen in (family, cheap):
        model = assemble(exported_graphs, chosen, image_input="float32")
        again.append("again/stage_0/" in str(model.graph))
        sessions.append(session_of(model))
    assert again == [False, True]
    for policy in (point.policy for point in family.points):
        for batch in (1, 9):
            kept, computed = (run(session, exported_images[:batch], **inputs.values(policy)) for session in sessions)
            for one, other in zip(kept[:4], computed[:4], strict=True):
                assert one == pytest.approx(other, abs=1e-5)


@pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)
def test_large_networks_have_no_nodes_for_single_images(
    exported_graphs: list[bytes],
    exported_images: NDArray[np.float32],
    exported_table: ExitTable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    family = family_of(exported_table, policies(exported_table, "plain"))
    values = PointInputs.of(family).values(family.points[1].policy)
    small = assemble(exported_graphs, family, image_input="float32")
    monkeypatch.setattr("elfnet.export.assemble.MAX_ONE_IMAGE_BYTES", 1000)
    large = assemble(exported_graphs, family, image_input="float32")
    assert ("one/stage_0" in str(small.graph), "one/stage_0" in str(large.graph)) == (True, False)
    found, expected = (run(session_of(model), exported_images[:1], **values) for model in (large, small))
    for one, wanted in zip(found, expected, strict=True):
        assert one == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)
def test_weights_are_in_the_file_once_and_constants_of_every_path(
    exported_graphs: list[bytes], exported_table: ExitTable, tmp_path: Path
) -> None:
    family = family_of(exported_table, policies(exported_table, "plain"))

    def convolutions(model: bytes) -> list[tuple[str, str]]:
        """Operator and domain of the convolutions after ONNX Runtime has optimised the graph, layout included."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
        onnxruntime.InferenceSession(model, options)
        nodes = list(_nodes(onnx.load(options.optimized_model_filepath).graph))
        assert not any(node.op_type == "Reshape" for node in nodes)
        return [(node.op_type, node.domain) for node in nodes if node.op_type.endswith("Conv")]

    together = assemble(exported_graphs, family, image_input="float32")
    separate = [kind for graph in exported_graphs for kind in convolutions(graph)]
    in_stages, in_heads = 9, 6
    assert len(separate) == in_stages + in_heads
    found = convolutions(together.SerializeToString())
    assert len(found) == 3 * in_stages + 2 * in_heads
    # A weight that is no constant of its branch would leave another operator there.
    assert set(found) == set(separate)
    weights = [tensor for graph in _graphs(together.graph) for tensor in graph.initializer]
    large = [tensor.name for tensor in weights if np.prod(tensor.dims) > 400]
    assert len(large) == in_stages + in_heads


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for each in _graphs(graph):
        yield from each.node


@pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)
def test_images_as_in_a_file_and_defaults(exported_graphs: list[bytes], exported_table: ExitTable) -> None:
    chosen = policies(exported_table, "plain")
    family = family_of(exported_table, chosen)
    preprocess = Preprocess(mode="RGB", height=16, width=16, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.25))
    pixels = np.random.default_rng(0).integers(0, 256, (9, 16, 16, 3), dtype=np.uint8)
    inputs = PointInputs.of(family)
    given = inputs.values(chosen[1], 0.3)
    expected = run(
        session_of(assemble(exported_graphs, family, image_input="float32")), preprocess.normalise(pixels), **given
    )
    model = assemble(exported_graphs, family, preprocess=preprocess, default_point=chosen[1].name, abstain_below=0.3)
    session = session_of(model)
    assert [value.name for value in session.get_inputs()] == ["images"]
    for found, wanted in zip(run(session, pixels), expected, strict=True):
        assert np.array_equal(found, wanted)
    required = session_of(assemble(exported_graphs, family, preprocess=preprocess))
    assert [value.name for value in required.get_inputs()] == ["images", "thresholds", "abstain_below"]
    for found, wanted in zip(run(required, pixels, **given), expected, strict=True):
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)
def test_feature_rows(
    exported_graphs: list[bytes], exported_images: NDArray[np.float32], exported_table: ExitTable
) -> None:
    family = family_of(exported_table, policies(exported_table, "plain"))
    values = PointInputs.of(family).values(family.points[1].policy)
    expected = run(session_of(assemble(exported_graphs, family, image_input="float32")), exported_images[:7], **values)
    # Doubling and halving are exact.
    rows = 2 * exported_images[:7].reshape(7, -1)
    features = rows.shape[1]
    halved = Preprocess(mode="features", height=1, width=1, mean=(0.0,) * features, std=(2.0,) * features)
    session = session_of(assemble(exported_graphs, family, image_input="features", preprocess=halved))
    found = session.run(["class", "confidence", "probabilities", "exit", "cost"], {"features": rows, **values})
    for one, wanted in zip(found, expected, strict=True):
        assert np.array_equal(one, wanted)


@pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)
def test_file_is_not_larger_than_the_weights_and_a_little(
    exported_graphs: list[bytes], exported_table: ExitTable
) -> None:
    family = family_of(exported_table, policies(exported_table, "plain"))
    graphs = [onnx.ModelProto.FromString(graph) for graph in exported_graphs]
    weights = sum(len(tensor.raw_data) for model in graphs for tensor in model.graph.initializer)
    assert assemble(exported_graphs, family, image_input="float32").ByteSize() <= 1.05 * weights + 256_000


@pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)
def test_too_many_exits(exported_graphs: list[bytes], exported_table: ExitTable) -> None:
    family = family_of(exported_table, policies(exported_table, "plain"))
    with pytest.raises(RequestError, match="has 32 exits, an ONNX file that stops early can have 30"):
        assemble(exported_graphs * 8, family, image_input="float32")


def test_threshold_just_below_1_stays_below_1() -> None:
    assert np.float32(rounded_threshold(1 - 1e-12)) < 1
    assert rounded_threshold(1.0) == 1.0
    assert rounded_threshold(0.9) == float(np.float32(0.9))
