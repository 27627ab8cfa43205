"""The nodes between the stages of the one-file graph: which images stop, which continue, and the answers in order.

A table goes with the images, one row per image: its thresholds, the number of each exit, its position in the batch, and
the inputs in which operating points differ. It is float64, so that one `Compress` per exit serves all of it.
"""

# Shapes: N images of a call, B images that have not left, E exits, C classes

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from elfnet.calibrate.family import Family
from elfnet.exits.policy import NEVER
from elfnet.inference.point_inputs import (
    ABSTAIN_BELOW,
    ADJUST_TAU,
    COMBINE,
    CONFIDENCE_SCALE,
    ENTROPY,
    THRESHOLDS,
    PointInputs,
)

TINY = 1e-300
"""A smaller probability counts as this one in the entropy, where the logarithm of 0 would give no number."""


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

    def cast(self, value: str, kind: int, *, into: str | Sequence[str] = ()) -> str:
        return self.add("Cast", value, into=into, to=kind)

    def columns(self, table: str, index: int | Sequence[int]) -> str:
        """Return one column of a table as (B,), or several as (B, number)."""
        return self.add("Gather", table, self.constant(index, np.int64), axis=1)

    def reduce(self, operator: str, value: str, axis: int) -> str:
        return self.add(operator, value, self.constant([axis], np.int64), keepdims=0)

    def branch(self, outputs: Sequence[onnx.ValueInfoProto]) -> onnx.GraphProto:
        """Return the graph as a branch of an `If`, with these outputs."""
        return helper.make_graph(
            self.nodes, self.name, [], list(outputs), initializer=self.weights, value_info=self.values
        )


@dataclass(frozen=True, eq=False)
class StageGraph:
    """Nodes and weights of a stage and of its head, with names that are unique in the assembled graph."""

    features: list[onnx.ValueInfoProto]
    next_features: list[onnx.ValueInfoProto]
    logits: onnx.ValueInfoProto
    stage_nodes: list[onnx.NodeProto]
    stage_weights: list[onnx.TensorProto]
    head_nodes: list[onnx.NodeProto]
    head_weights: list[onnx.TensorProto]


class ExitNodes:
    """Writes the nodes between the stages of one network, for the operating points of one family."""

    def __init__(self, stages: Sequence[StageGraph], family: Family, inputs: PointInputs) -> None:
        self._stages, self._family, self._inputs = stages, family, inputs
        self._exits = len(stages)
        self._last = self._exits - 1
        self.classes: int = stages[0].logits.type.tensor_type.shape.dim[1].dim_value
        self._combine_varies = COMBINE in inputs.varying
        self._combines = self._combine_varies or inputs.fixed.combine
        # Columns of the table.
        self._number = self._last
        self._position = self._last + self._exits
        self._width = self._position + 1
        self._of_input: dict[str, int] = {}
        for name, width in inputs.varying.items():
            self._of_input[name] = self._width
            self._width += width

    def begin(self, main: GraphWriter) -> tuple[str, str | None]:
        """Write the table of all images, and the zero evidence if a policy combines exits."""
        batch = main.add("Shape", self._stages[0].features[0].name, start=0, end=1)
        one = main.constant([1], np.int64)
        rows = main.add("Concat", batch, one, axis=0)
        count = main.add("Squeeze", batch)
        zero, step = main.constant(0, np.int64), main.constant(1, np.int64)
        position = main.cast(main.add("Unsqueeze", main.add("Range", zero, count, step), one), TensorProto.DOUBLE)
        numbers = main.add("Expand", main.constant([range(1, self._exits + 1)]), rows)
        parts = [self._input(main, THRESHOLDS, rows)] if self._last else []
        parts += [numbers, position, *(self._input(main, name, rows) for name in self._inputs.varying)]
        table = main.add("Concat", *parts, axis=1, into="table_0")
        self._usable_heads(main)
        if not self._combines:
            return table, None
        shape = main.add("Concat", batch, main.constant([self.classes], np.int64), axis=0)
        nothing = numpy_helper.from_array(np.zeros(1))
        return table, main.add("ConstantOfShape", shape, value=nothing, into="evidence_0")

    def _input(self, main: GraphWriter, name: str, rows: str) -> str:
        """Return an input as float64 with one row per image."""
        return main.cast(main.add("Expand", name, rows), TensorProto.DOUBLE)

    def _usable_heads(self, main: GraphWriter) -> None:
        """Write `usable_K` for each early exit: whether any image of the batch needs its head."""
        if not self._last:
            return
        names = [f"usable_{k}" for k in range(self._last)]
        if self._inputs.fixed.combine and not self._combine_varies:
            for name in names:
                main.add("Identity", main.constant([True], np.bool_), into=name)
            return
        thresholds = THRESHOLDS
        if self._combine_varies:
            # Less 2, every threshold of a policy that combines exits is below 1: it needs all heads.
            thresholds = main.add("Sub", thresholds, main.add("Add", COMBINE, COMBINE))
        lowest = main.reduce("ReduceMin", thresholds, 0)
        usable = main.add("Less", lowest, main.constant(NEVER, np.float32))
        main.add("Split", usable, into=names, axis=0, num_outputs=self._last)

    def level(self, graph: GraphWriter, k: int, table: str, evidence: str | None) -> str:
        """Write stage k and all that follows it.

        Args:
            graph: The graph that holds the stage.
            k: Index of the stage, from 0.
            table: The table of the images that reach it.
            evidence: The sum of the scaled logits of the exits before, if a policy combines exits.

        Returns:
            A row for each of these images, in the order in which they leave: probabilities, exit, position.
        """
        stage = self._stages[k]
        graph.nodes += stage.stage_nodes
        graph.weights += stage.stage_weights
        graph.values += stage.next_features if k else [*stage.features, *stage.next_features]
        if k == self._last:
            graph.values.append(stage.logits)
            probabilities, _ = self._probabilities(graph, k, table, evidence)
            return self._rows(graph, k, table, probabilities)
        outputs = self._values_after(k)
        names = [value.name for value in outputs]
        graph.values += outputs
        graph.add(
            "If",
            f"usable_{k}",
            into=names,
            then_branch=self._head_branch(k, table, evidence),
            else_branch=self._no_head_branch(k, table, evidence),
        )
        here, following, go, *_ = names
        deeper = self._deeper(graph, k, go, following, f"evidence_{k + 1}" if self._combines else None)
        return graph.add("Concat", here, deeper, axis=0)

    def _values_after(self, k: int) -> list[onnx.ValueInfoProto]:
        """Return what the `If` around head k gives: rows of those who left, and all about those who stay."""
        stay = f"rows_{k + 1}"
        values = [
            helper.make_tensor_value_info(f"left_{k}", TensorProto.DOUBLE, [f"left_{k}", self.classes + 2]),
            helper.make_tensor_value_info(f"table_{k + 1}", TensorProto.DOUBLE, [stay, self._width]),
            helper.make_tensor_value_info(f"go_{k}", TensorProto.BOOL, [1]),
        ]
        if self._combines:
            evidence = helper.make_tensor_value_info(f"evidence_{k + 1}", TensorProto.DOUBLE, [stay, self.classes])
            values.append(evidence)
        return values + self._stages[k + 1].features

    def _head_branch(self, k: int, table: str, evidence: str | None) -> onnx.GraphProto:
        stage, graph = self._stages[k], GraphWriter(f"exit_{k}")
        graph.nodes += stage.head_nodes
        graph.weights += stage.head_weights
        graph.values.append(stage.logits)
        probabilities, evidence = self._probabilities(graph, k, table, evidence)
        # Not a number counts as leaving: a cap on depth holds for every input.
        stay = graph.add("LessOrEqual", self._confidence(graph, table, probabilities), graph.columns(table, k))
        leave = graph.add("Not", stay)
        rows = graph.add("Compress", self._rows(graph, k, table, probabilities), leave, axis=0)
        kept = graph.add("Compress", table, stay, axis=0)
        go = graph.cast(graph.add("Shape", kept, start=0, end=1), TensorProto.BOOL)
        found = [rows, kept, go]
        if evidence is not None:
            found.append(graph.add("Compress", evidence, stay, axis=0))
        found += [graph.add("Compress", value.name, stay, axis=0) for value in stage.next_features]
        return graph.branch(_renamed(self._values_after(k), found))

    def _no_head_branch(self, k: int, table: str, evidence: str | None) -> onnx.GraphProto:
        graph = GraphWriter(f"no_exit_{k}")
        found = [
            graph.add("Identity", graph.constant(np.zeros((0, self.classes + 2)))),
            graph.add("Identity", table),
            graph.add("Identity", graph.constant([True], np.bool_)),
        ]
        if evidence is not None:
            found.append(graph.add("Identity", evidence))
        found += [graph.add("Identity", value.name) for value in self._stages[k].next_features]
        return graph.branch(_renamed(self._values_after(k), found))

    def _deeper(self, graph: GraphWriter, k: int, go: str, table: str, evidence: str | None) -> str:
        """Write the `If` that holds stage k + 1, and return the rows of answers from there."""
        inside = GraphWriter(f"after_{k}")
        rows = self.level(inside, k + 1, table, evidence)
        empty = GraphWriter(f"nobody_{k}")
        none = empty.add("Identity", empty.constant(np.zeros((0, self.classes + 2))))
        result = helper.make_tensor_value_info(f"deeper_{k}", TensorProto.DOUBLE, [f"deeper_{k}", self.classes + 2])
        graph.values.append(result)
        return graph.add(
            "If",
            go,
            into=result.name,
            then_branch=inside.branch(_renamed([result], [rows])),
            else_branch=empty.branch(_renamed([result], [none])),
        )

    def _rows(self, graph: GraphWriter, k: int, table: str, probabilities: str) -> str:
        return graph.add("Concat", probabilities, graph.columns(table, [self._number + k, self._position]), axis=1)

    def _probabilities(self, graph: GraphWriter, k: int, table: str, evidence: str | None) -> tuple[str, str | None]:
        """Write the probabilities (B, C) of exit k and the new evidence, from the logits; see `Policy.decide`."""
        policy, varying = self._inputs.fixed, self._inputs.varying
        logits = graph.cast(self._stages[k].logits.name, TensorProto.DOUBLE)
        if ADJUST_TAU in varying:
            tau = graph.columns(table, [self._of_input[ADJUST_TAU] + k])
            logits = graph.add("Sub", logits, graph.add("Mul", tau, graph.constant([self._family.log_prior])))
        elif policy.adjustment is not None and policy.adjustment.taus[k] != 0.0:
            shift = policy.adjustment.taus[k] * np.array([self._family.log_prior])
            logits = graph.add("Sub", logits, graph.constant(shift))
        if CONFIDENCE_SCALE in varying:
            logits = graph.add("Mul", logits, graph.columns(table, [self._of_input[CONFIDENCE_SCALE] + k]))
        elif policy.confidence_scale[k] != 1.0:
            logits = graph.add("Mul", logits, graph.constant(policy.confidence_scale[k]))
        if evidence is None:
            return graph.add("Softmax", logits, axis=1), None
        if not self._combine_varies:
            evidence = graph.add("Add", evidence, logits)
            return graph.add("Softmax", graph.add("Div", evidence, graph.constant(k + 1.0)), axis=1), evidence
        combine = graph.columns(table, [self._of_input[COMBINE]])
        evidence = graph.add("Add", graph.add("Mul", evidence, combine), logits)
        exits = graph.add("Add", graph.add("Mul", combine, graph.constant(float(k))), graph.constant(1.0))
        return graph.add("Softmax", graph.add("Div", evidence, exits), axis=1), evidence

    def _confidence(self, graph: GraphWriter, table: str, probabilities: str) -> str:
        """Write the confidence (B,): the largest probability, or 1 - entropy / log C."""
        largest = graph.reduce("ReduceMax", probabilities, 1)
        varies = ENTROPY in self._inputs.varying
        if self.classes == 1 or not (varies or self._inputs.fixed.measure == "entropy"):
            return largest
        logarithm = graph.add("Log", graph.add("Max", probabilities, graph.constant(TINY)))
        negative_entropy = graph.reduce("ReduceSum", graph.add("Mul", probabilities, logarithm), 1)
        scaled = graph.add("Div", negative_entropy, graph.constant(math.log(self.classes)))
        certainty = graph.add("Add", scaled, graph.constant(1.0))
        if not varies:
            return certainty
        by_entropy = graph.cast(graph.columns(table, self._of_input[ENTROPY]), TensorProto.BOOL)
        return graph.add("Where", by_entropy, certainty, largest)

    def end(self, main: GraphWriter, rows: str, table: str) -> None:
        """Write the outputs from the rows of all answers."""
        position = main.cast(main.columns(rows, [self.classes + 1]), TensorProto.INT64)
        ordered = main.add("ScatterND", rows, position, rows)
        starts, ends, axes = (main.constant([number], np.int64) for number in (0, self.classes, 1))
        probabilities = main.add("Slice", ordered, starts, ends, axes)
        main.cast(probabilities, TensorProto.FLOAT, into="probabilities")
        exact = self._confidence(main, table, probabilities)
        confidence = main.cast(exact, TensorProto.FLOAT, into="confidence")
        limit = main.add("Squeeze", ABSTAIN_BELOW, main.constant([1], np.int64))
        best = main.add("ArgMax", probabilities, axis=1, keepdims=0)
        main.add("Where", main.add("Less", confidence, limit), main.constant(-1, np.int64), best, into="class")
        main.cast(main.columns(ordered, self.classes), TensorProto.INT64, into="exit")
        self._cost(main, table)

    def _cost(self, main: GraphWriter, table: str) -> None:
        """Write the cost up to the exit taken, without the heads that the image's own thresholds leave out."""
        # Exits count from 1: column 0 is never read.
        cost_E = np.array([0.0, *self._family.cost])
        if not self._last or (self._combines and not self._combine_varies):
            main.cast(main.add("Gather", main.constant(cost_E), "exit", axis=0), TensorProto.FLOAT, into="cost")
            return
        thresholds = main.columns(table, list(range(self._last)))
        if self._combine_varies:
            combine = main.columns(table, [self._of_input[COMBINE]])
            thresholds = main.add("Sub", thresholds, main.add("Add", combine, combine))
        never = main.cast(main.add("GreaterOrEqual", thresholds, main.constant(NEVER)), TensorProto.DOUBLE)
        saved = np.zeros((self._last, self._exits + 1))
        for k, head_cost in enumerate(self._family.head_cost[: self._last]):
            saved[k, k + 1 :] = head_cost
        cost = main.add("Sub", main.constant(cost_E), main.add("MatMul", never, main.constant(saved)))
        one = main.constant([1], np.int64)
        taken = main.add("GatherElements", cost, main.add("Unsqueeze", "exit", one), axis=1)
        main.cast(main.add("Squeeze", taken, one), TensorProto.FLOAT, into="cost")


def _renamed(values: Sequence[onnx.ValueInfoProto], names: Sequence[str]) -> list[onnx.ValueInfoProto]:
    """Return copies of values with other names."""
    copies = []
    for value, name in zip(values, names, strict=True):
        copy = onnx.ValueInfoProto()
        copy.CopyFrom(value)
        copy.name = name
        copies.append(copy)
    return copies
