"""A stage's graph that was changed comes back in the form from which the head can be left out."""

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from elfnet.export.onnx_graph import cut_again
from elfnet.inference.bundle.stage_graph import stage_alone

Arrays = list[NDArray[np.float32]]


def _value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 2])


def _weight(name: str, *numbers: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(numbers, dtype=np.float32), name)


def _mixed_up(*, last: bool = False) -> onnx.ModelProto:
    """next_features = 2 relu(features) + shared, logits = -relu(features) * shared; nodes and weights of both mixed."""
    nodes = [
        helper.make_node("Relu", ["features"], ["positive"], doc_string="somewhere/model.py"),
        helper.make_node("Neg", ["positive"], ["negative"]),
        helper.make_node("Mul", ["positive", "two"], ["doubled"]),
        helper.make_node("Mul", ["negative", "shared"], ["logits"]),
        helper.make_node("Exp", ["doubled"], ["nobody_reads_this"]),
        helper.make_node("Add", ["doubled", "shared"], ["next_features"]),
    ]
    weights = [_weight("unused", 9, 9), _weight("shared", 3, 5), _weight("two", 2, 2)]
    outputs = [_value("logits")] if last else [_value("next_features"), _value("logits")]
    graph = helper.make_graph(nodes, "stage", [_value("features")], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _alone(model: bytes) -> bytes:
    return stage_alone(model, {entry.key: entry.value for entry in onnx.ModelProto.FromString(model).metadata_props})


def _run(model: bytes, *inputs: NDArray[np.float32]) -> Arrays:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    found: Arrays = session.run(None, dict(zip(names, inputs, strict=True)))
    return found


def test_stage_first_and_head_behind() -> None:
    made = cut_again(_mixed_up())
    features = np.array([[-1, 1], [2, -3]], dtype=np.float32)
    positive = np.maximum(features, 0)
    next_features, logits = _run(made, features)
    assert next_features == pytest.approx(2 * positive + [3, 5])
    assert logits == pytest.approx(-positive * [3, 5])
    (alone,) = _run(_alone(made), features)
    assert np.array_equal(alone, next_features)


def test_each_part_has_what_it_reads_and_no_more() -> None:
    made = cut_again(_mixed_up())
    whole, alone = onnx.ModelProto.FromString(made), onnx.ModelProto.FromString(_alone(made))
    assert [node.op_type for node in alone.graph.node] == ["Relu", "Mul", "Add"]
    assert [node.op_type for node in whole.graph.node] == ["Relu", "Mul", "Add", "Neg", "Mul"]
    # What both read is in the stage, once.
    assert sorted(weight.name for weight in alone.graph.initializer) == ["shared", "two"]
    assert sorted(weight.name for weight in whole.graph.initializer) == ["shared", "two"]
    assert b"somewhere" not in made


def test_the_last_stage_has_no_use_without_its_head() -> None:
    made = cut_again(_mixed_up(last=True))
    assert [node.op_type for node in onnx.ModelProto.FromString(made).graph.node] == ["Relu", "Neg", "Mul"]
    assert [value.name for value in onnx.ModelProto.FromString(made).graph.output] == ["logits"]


@pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)
def test_what_was_not_changed_is_cut_at_the_same_place(exported_graphs: list[bytes]) -> None:
    for graph in exported_graphs:
        again = cut_again(onnx.ModelProto.FromString(graph))
        for new, old in ((again, graph), (_alone(again), _alone(graph))):
            made, given = onnx.ModelProto.FromString(new).graph, onnx.ModelProto.FromString(old).graph
            assert [node.name for node in made.node] == [node.name for node in given.node]
            assert made.initializer == given.initializer
            assert made.output == given.output
        assert cut_again(onnx.ModelProto.FromString(again)) == again
