"""Write an ONNX graph node by node."""

# Shapes: B images that have not left

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from elfnet.export.stage_nodes import Part


class GraphWriter:
    """A graph that grows node by node. Constants become its initialisers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.values: list[onnx.ValueInfoProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        array = np.asarray(value, dtype=dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = f"{self.name}/constant_{len(self._constants)}"
            self.weights.append(numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]

    def add(self, operator: str, *inputs: str, into: str | Sequence[str] = (), **attributes: Any) -> str:
        """Add a node, and return the name of its first output, which is `into` if given."""
        name = f"{self.name}/{operator}_{len(self.nodes)}"
        outputs = ([into] if isinstance(into, str) else list(into)) or [name]
        self.nodes.append(helper.make_node(operator, list(inputs), outputs, name=name, **attributes))
        return outputs[0]

    def place(self, part: Part) -> None:
        """Add a stage or a head."""
        self.nodes += part.nodes
        self.weights += part.weights
        self.values += part.values

    def cast(self, value: str, kind: int, *, into: str | Sequence[str] = ()) -> str:
        return self.add("Cast", value, into=into, to=kind)

    def columns(self, table: str, index: int | Sequence[int]) -> str:
        """Return one column of a table as (B,), or several as (B, number)."""
        return self.add("Gather", table, self.constant(index, np.int64), axis=1)

    def reduce(self, operator: str, value: str, axis: int) -> str:
        return self.add(operator, value, self.constant([axis], np.int64), keepdims=0)

    def squeeze(self, value: str, *, into: str | Sequence[str] = ()) -> str:
        """Return (B, 1) as (B,)."""
        return self.add("Squeeze", value, self.constant([1], np.int64), into=into)

    def choose(
        self,
        condition: str,
        outputs: Sequence[onnx.ValueInfoProto],
        yes: tuple["GraphWriter", Sequence[str]],
        no: tuple["GraphWriter", Sequence[str]],
    ) -> list[str]:
        """Add an `If`, and return the names of its outputs.

        Args:
            condition: A boolean with one element.
            outputs: Names, types and shapes of the outputs.
            yes: The branch that is run if the condition is true, and the names of the outputs in it.
            no: The other branch, likewise.
        """
        (yes_writer, yes_names), (no_writer, no_names) = yes, no
        branches = {
            "then_branch": yes_writer._branch(outputs, yes_names),
            "else_branch": no_writer._branch(outputs, no_names),
        }
        names = [value.name for value in outputs]
        self.values += outputs
        self.add("If", condition, into=names, **branches)
        return names

    def _branch(self, outputs: Sequence[onnx.ValueInfoProto], names: Sequence[str]) -> onnx.GraphProto:
        own = []
        for value, name in zip(outputs, names, strict=True):
            own.append(onnx.ValueInfoProto())
            own[-1].CopyFrom(value)
            own[-1].name = name
        inner = [value for value in self.values if value.name not in set(names)]
        return helper.make_graph(self.nodes, self.name, [], own, initializer=self.weights, value_info=inner)
