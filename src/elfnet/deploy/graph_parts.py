"""A stage's graph as one file from which the head can be left out, without a second copy of the weights.

ONNX Runtime computes every node of a graph, also those that nobody asked for, so a stage without its head needs a
graph of its own. In protobuf a message may be written in parts, one behind the other. So the file has the graph's
stage first and its head behind, and carries the place of both: any ONNX reader sees one ordinary graph, and the stage
alone is cut out of the same bytes. Nothing of ONNX is needed for that.
"""

from collections.abc import Mapping

GRAPH_FIELD = b"\x3a"
"""`ModelProto.graph`: field 7, a length and that many bytes."""
PLACE = "elfnet.stage"
"""The entry of the model's metadata: where the header ends, the stage begins, and the stage ends."""


def join_parts(header: bytes, stage: bytes, head: bytes) -> tuple[bytes, str]:
    """The model so far, to which nothing but fields of the model may be appended, and the value for `PLACE`.

    Args:
        header: a ModelProto without a graph.
        stage: a GraphProto without the head's nodes, weights and output.
        head: a GraphProto with these only.
    """
    opening = header + GRAPH_FIELD + _varint(len(stage) + len(head))
    return opening + stage + head, f"{len(header)} {len(opening)} {len(opening) + len(stage)}"


def stage_alone(model: bytes, metadata: Mapping[str, str]) -> bytes:
    """The model without its head; `KeyError` or `ValueError` if it is not one that `join_parts` wrote."""
    header_end, start, end = (int(place) for place in metadata[PLACE].split())
    if not 0 < header_end < start < end <= len(model) or model[header_end : header_end + 1] != GRAPH_FIELD:
        raise ValueError("the place of the stage is wrong")
    return model[:header_end] + GRAPH_FIELD + _varint(end - start) + model[start:end]


def _varint(number: int) -> bytes:
    """Protobuf's integers: seven bits a byte, the lowest first, the eighth bit says that more follow."""
    groups = [number & 0x7F]
    while number := number >> 7:
        groups[-1] |= 0x80
        groups.append(number & 0x7F)
    return bytes(groups)
