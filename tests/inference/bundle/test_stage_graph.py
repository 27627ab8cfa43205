"""A model in parts: one ordinary protobuf message, from which the stage alone can be cut."""

import onnx
import pytest
from onnx import helper

from elfnet.inference.bundle.stage_graph import PLACE, join_parts, stage_alone


def _model(weights: int) -> bytes:
    """A stage with so many weights, so that lengths of one, two and three bytes occur, and a head behind it."""
    value = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 2]) for name in "abc"]
    stage = onnx.GraphProto(name="stage", node=[helper.make_node("Relu", ["a"], ["b"])])
    stage.input.append(value[0])
    stage.output.append(value[1])
    stage.initializer.append(helper.make_tensor("w", onnx.TensorProto.FLOAT, [weights], [1.0] * weights))
    head = onnx.GraphProto(node=[helper.make_node("Neg", ["b"], ["c"])])
    head.output.append(value[2])
    header = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 18)])
    model, place = join_parts(*(part.SerializeToString() for part in (header, stage, head)))
    note = onnx.ModelProto(metadata_props=[onnx.StringStringEntryProto(key=PLACE, value=place)])
    return model + bytes(note.SerializeToString())


def _metadata(model: bytes) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.ModelProto.FromString(model).metadata_props}


@pytest.mark.parametrize("weights", [0, 1, 20, 5000])
def test_whole_and_stage(weights: int) -> None:
    model = _model(weights)
    whole = onnx.ModelProto.FromString(model)
    onnx.checker.check_model(whole)
    assert [node.op_type for node in whole.graph.node] == ["Relu", "Neg"]
    assert [output.name for output in whole.graph.output] == ["b", "c"]
    alone = onnx.ModelProto.FromString(stage_alone(model, _metadata(model)))
    onnx.checker.check_model(alone)
    assert [node.op_type for node in alone.graph.node] == ["Relu"]
    assert [output.name for output in alone.graph.output] == ["b"]
    assert alone.graph.initializer == whole.graph.initializer
    assert alone.opset_import == whole.opset_import


@pytest.mark.parametrize("place", ["", "1", "1 2 x", "0 1 2", "5 4 9", "2 4 999999", "3 5 9"])
def test_wrong_place(place: str) -> None:
    with pytest.raises(ValueError):
        stage_alone(_model(1), {PLACE: place})
    with pytest.raises(KeyError):
        stage_alone(_model(1), {})
