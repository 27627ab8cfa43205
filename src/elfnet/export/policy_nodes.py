"""A policy as nodes of a graph: probabilities and confidence at an exit, the final answer, and the cost.

The arithmetic is that of `Policy.decide`, in float64 from the float32 logits. Numbers in which all operating points of
a family agree are constants. The others are inputs with one row, or one row per image; they are read from the inputs,
or from a table that holds them for the images that have not left.
"""

# Shapes: N images of a call, B images that have not left, E exits, C classes

import math

import numpy as np
from onnx import TensorProto

from elfnet.calibrate.point_family import Family
from elfnet.exits.policy import NEVER
from elfnet.export.graph_writer import GraphWriter
from elfnet.inference.graph_inputs import (
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


class PolicyNodes:
    """Writes the arithmetic of the policies of one family.

    Attributes:
        family: The operating points.
        inputs: The inputs of the graph.
        classes: Number of classes.
        combine_varies: Whether some operating points combine exits and some do not.
        combines: Whether any operating point combines exits.
        table_columns: Columns of the table by input: the thresholds first.
        table_width: Number of columns.
    """

    def __init__(self, family: Family, inputs: PointInputs, classes: int) -> None:
        self.family, self.inputs, self.classes = family, inputs, classes
        self.combine_varies = COMBINE in inputs.varying
        self.combines = self.combine_varies or inputs.fixed.combine
        self.table_columns: dict[str, int] = {}
        self.table_width = 0
        for name, width in {THRESHOLDS: family.exits - 1, **inputs.varying}.items():
            self.table_columns[name] = self.table_width
            self.table_width += width

    @property
    def always_combines(self) -> bool:
        """Whether all operating points combine exits, so that every head is needed."""
        return self.combines and not self.combine_varies

    def column(
        self, graph: GraphWriter, name: str, column: int, table: str | None, *, flat: bool = False
    ) -> str | None:
        """Return a column of an input as float64 with one row per image, or one row; None if it is no input.

        Args:
            graph: The graph that reads it.
            name: Name of the input.
            column: Its column.
            table: The table of the images that have not left; None to read the input itself.
            flat: Return (B,) instead of (B, 1).
        """
        if name not in self.table_columns:
            return None
        if table is not None:
            column += self.table_columns[name]
        found = graph.columns(name if table is None else table, column if flat else [column])
        return graph.cast(found, TensorProto.DOUBLE) if table is None else found

    def deciding_thresholds(self, graph: GraphWriter) -> str:
        """Return the thresholds, below 1 wherever the head is needed."""
        if not self.combine_varies:
            return THRESHOLDS
        # Less 2, every threshold of a policy that combines exits is below 1: it needs all heads.
        return graph.add("Sub", THRESHOLDS, graph.add("Add", COMBINE, COMBINE))

    def usable_heads(self, graph: GraphWriter) -> list[str]:
        """Write for each early exit whether any image of the call needs its head."""
        exits = self.family.exits - 1
        if self.always_combines:
            return [graph.constant([True], np.bool_)] * exits
        lowest = graph.reduce("ReduceMin", self.deciding_thresholds(graph), 0)
        usable = graph.add("Less", lowest, graph.constant(NEVER, np.float32))
        names = [f"{graph.name}/usable_{k}" for k in range(exits)]
        graph.add("Split", usable, into=names, axis=0, num_outputs=exits)
        return names

    def probabilities(
        self, graph: GraphWriter, k: int, logits: str, table: str | None, evidence: str | None
    ) -> tuple[str, str | None]:
        """Write the probabilities (B, C) of exit k, and the new evidence."""
        policy = self.inputs.fixed
        logits = graph.cast(logits, TensorProto.DOUBLE)
        tau, scale = (self.column(graph, name, k, table) for name in (ADJUST_TAU, CONFIDENCE_SCALE))
        if tau is not None:
            logits = graph.add("Sub", logits, graph.add("Mul", tau, graph.constant([self.family.log_prior])))
        elif policy.adjustment is not None and policy.adjustment.taus[k] != 0.0:
            shift = policy.adjustment.taus[k] * np.array([self.family.log_prior])
            logits = graph.add("Sub", logits, graph.constant(shift))
        if scale is not None:
            logits = graph.add("Mul", logits, scale)
        elif policy.confidence_scale[k] != 1.0:
            logits = graph.add("Mul", logits, graph.constant(policy.confidence_scale[k]))
        if evidence is None:
            return graph.add("Softmax", logits, axis=1), None
        combine = self.column(graph, COMBINE, 0, table)
        if combine is None:
            evidence = graph.add("Add", evidence, logits)
            return graph.add("Softmax", graph.add("Div", evidence, graph.constant(k + 1.0)), axis=1), evidence
        evidence = graph.add("Add", graph.add("Mul", evidence, combine), logits)
        exits = graph.add("Add", graph.add("Mul", combine, graph.constant(float(k))), graph.constant(1.0))
        return graph.add("Softmax", graph.add("Div", evidence, exits), axis=1), evidence

    def confidence(self, graph: GraphWriter, probabilities: str, table: str | None) -> str:
        """Write the confidence (B,): the largest probability, or 1 - entropy / log C."""
        largest = graph.reduce("ReduceMax", probabilities, 1)
        varies = ENTROPY in self.table_columns
        if self.classes == 1 or not (varies or self.inputs.fixed.measure == "entropy"):
            return largest
        logarithm = graph.add("Log", graph.add("Max", probabilities, graph.constant(TINY)))
        negative_entropy = graph.reduce("ReduceSum", graph.add("Mul", probabilities, logarithm), 1)
        scaled = graph.add("Div", negative_entropy, graph.constant(math.log(self.classes)))
        certainty = graph.add("Add", scaled, graph.constant(1.0))
        by_entropy = self.column(graph, ENTROPY, 0, table, flat=True)
        if by_entropy is None:
            return certainty
        return graph.add("Where", graph.cast(by_entropy, TensorProto.BOOL), certainty, largest)

    def stays(self, graph: GraphWriter, k: int, probabilities: str, table: str | None) -> str:
        """Write whether each image passes exit k (B,)."""
        threshold = self.column(graph, THRESHOLDS, k, table, flat=True)
        assert threshold is not None
        # Not a number counts as leaving: a cap on depth holds for every input.
        return graph.add("LessOrEqual", self.confidence(graph, probabilities, table), threshold)

    def answer(self, main: GraphWriter, probabilities: str) -> None:
        """Write the outputs that follow from the probabilities (N, C) at the exit taken."""
        main.cast(probabilities, TensorProto.FLOAT, into="probabilities")
        confidence = main.cast(self.confidence(main, probabilities, None), TensorProto.FLOAT, into="confidence")
        best = main.add("ArgMax", probabilities, axis=1, keepdims=0)
        unsure = main.add("Less", confidence, main.squeeze(ABSTAIN_BELOW))
        main.add("Where", unsure, main.constant(-1, np.int64), best, into="class")

    def cost(self, graph: GraphWriter, thresholds: str, taken: str) -> str:
        """Write the cost up to the exit taken, (N,), without the heads that the image's own thresholds leave out.

        Args:
            graph: The graph to write to.
            thresholds: The deciding thresholds, one row per image.
            taken: The exit taken, from 1, as (N, 1).
        """
        # Exits count from 1: column 0 is never read.
        if self.always_combines:
            all_heads = graph.constant([0.0, *self.family.cost], np.float32)
            return graph.squeeze(graph.add("Gather", all_heads, taken))
        without_heads = np.array([0.0, *self.family.cost], dtype=np.float32)
        heads = np.zeros((self.family.exits - 1, self.family.exits + 1), dtype=np.float32)
        for k, head_cost in enumerate(self.family.head_cost[:-1]):
            without_heads[k + 1 :] -= head_cost
            heads[k, k + 1 :] = head_cost
        used = graph.cast(graph.add("Less", thresholds, graph.constant(NEVER, np.float32)), TensorProto.FLOAT)
        of_exits = graph.add("Gemm", used, graph.constant(heads, np.float32), graph.constant(without_heads, np.float32))
        return graph.squeeze(graph.add("GatherElements", of_exits, taken, axis=1))
