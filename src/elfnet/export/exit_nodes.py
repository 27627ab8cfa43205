"""The stages of a network with exits between them: which images stop, which continue, and the answers in order.

Behind each early exit stand two `If` nodes. The first runs the head if any image may leave there, and removes those
that leave (`Compress`). The second holds the next stage, and runs it if any image stays.
"""

# Shapes: N images of a call, B images that have not left, E exits, C classes

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from elfnet.export.graph_writer import GraphWriter
from elfnet.export.policy_nodes import PolicyNodes
from elfnet.export.stage_nodes import StageGraph


class BatchNodes:
    """Writes the stages of one network with exits, for batches of any size.

    A table goes with the images, one row per image: the inputs of its operating point, the number of each exit, and its
    position in the batch. It is float64, so that one `Compress` per exit serves all of it. Answers come back as rows
    with their position, and `ScatterND` puts them in the order of the input.
    """

    def __init__(self, stages: Sequence[StageGraph], policy: PolicyNodes) -> None:
        self._stages, self._policy = stages, policy
        self._last = len(stages) - 1
        self._classes = policy.classes
        # Columns of the table.
        self._number = policy.table_width
        self._position = self._number + len(stages)
        self._width = self._position + 1

    def write(self, graph: GraphWriter) -> list[str]:
        """Write the whole network, and return the names of probabilities (N, C), exit (N,) and cost (N,)."""
        batch = graph.add("Shape", self._stages[0].features[0].name, start=0, end=1)
        table, thresholds = self._table(graph, batch)
        usable = self._policy.usable_heads(graph)
        evidence = None
        if self._policy.combines:
            shape = graph.add("Concat", batch, graph.constant([self._classes], np.int64), axis=0)
            evidence = graph.add("ConstantOfShape", shape, value=numpy_helper.from_array(np.zeros(1)))
        rows = self._level(graph, 0, usable, table, evidence)
        position = graph.cast(graph.columns(rows, [self._classes + 1]), TensorProto.INT64)
        ordered = graph.add("ScatterND", rows, position, rows)
        sizes = graph.constant([self._classes, 1, 1], np.int64)
        parts = [f"{graph.name}/{name}" for name in ("probabilities", "number", "position")]
        graph.add("Split", ordered, sizes, into=parts, axis=1)
        taken = graph.cast(parts[1], TensorProto.INT64)
        return [parts[0], graph.squeeze(taken), self._policy.cost(graph, thresholds, taken)]

    def _table(self, graph: GraphWriter, batch: str) -> tuple[str, str]:
        """Write the table of all images, and return it with the deciding thresholds of each."""
        one = graph.constant([1], np.int64)
        rows = graph.add("Concat", batch, one, axis=0)
        zero, step = graph.constant(0, np.int64), graph.constant(1, np.int64)
        numbered = graph.add("Range", zero, graph.add("Squeeze", batch), step)
        position = graph.cast(graph.add("Unsqueeze", numbered, one), TensorProto.DOUBLE)
        numbers = graph.add("Expand", graph.constant([range(1, len(self._stages) + 1)]), rows)
        given = [graph.add("Expand", name, rows) for name in self._policy.table_columns]
        columns = [graph.cast(value, TensorProto.DOUBLE) for value in given]
        table = graph.add("Concat", *columns, numbers, position, axis=1)
        if not self._policy.combine_varies:
            return table, given[0]
        return table, graph.add("Expand", self._policy.deciding_thresholds(graph), rows)

    def _level(self, graph: GraphWriter, k: int, usable: Sequence[str], table: str, evidence: str | None) -> str:
        """Write stage k and all that follows it.

        Args:
            graph: The graph that holds the stage.
            k: Index of the stage, from 0.
            usable: For each early exit, whether any image needs its head.
            table: The table of the images that reach it.
            evidence: The sum of the scaled logits of the exits before, if a policy combines exits.

        Returns:
            A row for each of these images, in the order in which they leave: probabilities, exit, position.
        """
        stage = self._stages[k]
        graph.place(stage.stage)
        if k == self._last:
            probabilities, _ = self._policy.probabilities(graph, k, stage.logits.name, table, evidence)
            return self._rows(graph, k, table, probabilities)
        left, following, go, *others = graph.choose(
            usable[k],
            self._values_after(k),
            self._head_branch(k, table, evidence),
            self._no_head_branch(k, table, evidence),
        )
        inside, nobody = GraphWriter(f"after_{k}"), GraphWriter(f"nobody_{k}")
        rows = self._level(inside, k + 1, usable, following, others[0] if self._policy.combines else None)
        none = nobody.add("Identity", nobody.constant(np.zeros((0, self._classes + 2))))
        result = helper.make_tensor_value_info(f"deeper_{k}", TensorProto.DOUBLE, [f"deeper_{k}", self._classes + 2])
        (deeper,) = graph.choose(go, [result], (inside, [rows]), (nobody, [none]))
        return graph.add("Concat", left, deeper, axis=0)

    def _values_after(self, k: int) -> list[onnx.ValueInfoProto]:
        """Return what the `If` around head k gives: rows of those who left, and all about those who stay."""
        stay = f"rows_{k + 1}"
        values = [
            helper.make_tensor_value_info(f"left_{k}", TensorProto.DOUBLE, [f"left_{k}", self._classes + 2]),
            helper.make_tensor_value_info(f"table_{k + 1}", TensorProto.DOUBLE, [stay, self._width]),
            helper.make_tensor_value_info(f"go_{k}", TensorProto.BOOL, [1]),
        ]
        if self._policy.combines:
            values.append(helper.make_tensor_value_info(f"evidence_{k + 1}", TensorProto.DOUBLE, [stay, self._classes]))
        return values + self._stages[k + 1].features

    def _head_branch(self, k: int, table: str, evidence: str | None) -> tuple[GraphWriter, list[str]]:
        stage, graph = self._stages[k], GraphWriter(f"exit_{k}")
        graph.place(stage.head)
        probabilities, evidence = self._policy.probabilities(graph, k, stage.logits.name, table, evidence)
        stay = self._policy.stays(graph, k, probabilities, table)
        leave = graph.add("Not", stay)
        rows = graph.add("Compress", self._rows(graph, k, table, probabilities), leave, axis=0)
        kept = graph.add("Compress", table, stay, axis=0)
        go = graph.cast(graph.add("Shape", kept, start=0, end=1), TensorProto.BOOL)
        found = [rows, kept, go]
        if evidence is not None:
            found.append(graph.add("Compress", evidence, stay, axis=0))
        return graph, found + [graph.add("Compress", value.name, stay, axis=0) for value in stage.kept]

    def _no_head_branch(self, k: int, table: str, evidence: str | None) -> tuple[GraphWriter, list[str]]:
        graph = GraphWriter(f"no_exit_{k}")
        found = [
            graph.add("Identity", graph.constant(np.zeros((0, self._classes + 2)))),
            graph.add("Identity", table),
            graph.add("Identity", graph.constant([True], np.bool_)),
        ]
        if evidence is not None:
            found.append(graph.add("Identity", evidence))
        return graph, found + [graph.add("Identity", value.name) for value in self._stages[k].kept]

    def _rows(self, graph: GraphWriter, k: int, table: str, probabilities: str) -> str:
        return graph.add("Concat", probabilities, graph.columns(table, [self._number + k, self._position]), axis=1)


class OneImageNodes:
    """Writes the stages of one network with exits, for calls with one image.

    One image stays or leaves as a whole: nothing is removed from a batch and nothing put in order, which takes half of
    the nodes. On ResNet-32, calls with one image that stop early take 0.05 to 0.08 of the plain network's time less.
    """

    def __init__(self, stages: Sequence[StageGraph], policy: PolicyNodes) -> None:
        self._stages, self._policy = stages, policy
        self._last = len(stages) - 1

    def write(self, graph: GraphWriter) -> list[str]:
        """Write the whole network, and return the names of probabilities (1, C), exit (1,) and cost (1,)."""
        usable = self._policy.usable_heads(graph)
        evidence = None
        if self._policy.combines:
            evidence = graph.constant(np.zeros((1, self._policy.classes)))
        probabilities, taken = self._level(graph, 0, usable, evidence)
        cost = self._policy.cost(graph, self._policy.deciding_thresholds(graph), taken)
        return [probabilities, graph.squeeze(taken), cost]

    def _level(self, graph: GraphWriter, k: int, usable: Sequence[str], evidence: str | None) -> list[str]:
        """Write stage k and all that follows it, and return the names of probabilities (1, C) and exit (1, 1)."""
        stage, number = self._stages[k], numpy_helper.from_array(np.array([[k + 1]]), f"one/exit_{k}")
        graph.place(stage.stage)
        if k == self._last:
            probabilities, _ = self._policy.probabilities(graph, k, stage.logits.name, None, evidence)
            graph.weights.append(number)
            return [probabilities, graph.add("Identity", number.name)]
        head, no_head = GraphWriter(f"one/head_{k}"), GraphWriter(f"one/no_head_{k}")
        head.place(stage.head)
        probabilities, after = self._policy.probabilities(head, k, stage.logits.name, None, evidence)
        with_head = [self._policy.stays(head, k, probabilities, None), probabilities]
        nothing = no_head.constant(np.zeros((1, self._policy.classes)))
        without_head = [no_head.constant([True], np.bool_), nothing]
        shape = [1, self._policy.classes]
        outputs = [
            helper.make_tensor_value_info(f"one/stays_{k}", TensorProto.BOOL, [1]),
            helper.make_tensor_value_info(f"one/answer_{k}", TensorProto.DOUBLE, shape),
        ]
        if after is not None and evidence is not None:
            outputs.append(helper.make_tensor_value_info(f"one/evidence_{k + 1}", TensorProto.DOUBLE, shape))
            with_head.append(after)
            without_head.append(evidence)
        without_head = [no_head.add("Identity", name) for name in without_head]
        stays, answer, *others = graph.choose(usable[k], outputs, (head, with_head), (no_head, without_head))
        deeper, here = GraphWriter(f"one/after_{k}"), GraphWriter(f"one/here_{k}")
        following = self._level(deeper, k + 1, usable, others[0] if others else None)
        here.weights.append(number)
        found = [here.add("Identity", answer), here.add("Identity", number.name)]
        results = [
            helper.make_tensor_value_info(f"one/result_{k}", TensorProto.DOUBLE, shape),
            helper.make_tensor_value_info(f"one/taken_{k}", TensorProto.INT64, [1, 1]),
        ]
        return graph.choose(stays, results, (deeper, following), (here, found))
