"""The form of the ONNX graphs of single stages, which every graph backend reads.

A graph holds one stage and its head: input `features`, outputs `next_features` and `logits`. Its metadata says where
the head's bytes begin, so that the stage can be run without its head and without the package onnx.
"""

from collections.abc import Mapping
from pathlib import Path

from elfnet.errors import WorkError
from elfnet.inference.bundle.protobuf import varint

FEATURES = "features"
NEXT_FEATURES = "next_features"
LOGITS = "logits"
GRAPH_FIELD = b"\x3a"
"""Tag of `ModelProto.graph` (field 7, length-delimited) in protobuf's wire format."""
PLACE = "elfnet.stage"
"""Metadata key of a model. Its value has three byte offsets: end of the header, start and end of the stage."""


def graph_bytes(graph: bytes | Path) -> bytes:
    """Return the bytes of a graph, reading its file if a path is given.

    Runtimes get bytes and never a path, so that they refuse a graph whose weights are in another file.
    """
    if isinstance(graph, bytes):
        return graph
    try:
        return graph.read_bytes()
    except OSError as error:
        raise WorkError(f"cannot read the graph {graph}: {error.strerror}; export it again") from None


def numbered(name: str, count: int) -> list[str]:
    """Return tensor names: `name` for one tensor; `name_0`, `name_1`, ... for several."""
    return [name] if count == 1 else [f"{name}_{i}" for i in range(count)]


def in_stage(k: int, name: str) -> str:
    """Return the name of a tensor of stage k in the graph that holds all stages."""
    return f"stage_{k}/{name}"


def is_stage(first_input: str, last_output: str) -> bool:
    """Return whether inputs and outputs of a graph are those of a stage, with or without the name of the stage."""
    return first_input.rpartition("/")[2].startswith(FEATURES) and last_output.rpartition("/")[2] == LOGITS


def join_parts(header: bytes, stage: bytes, head: bytes) -> tuple[bytes, str]:
    """Concatenate serialised parts to a model.

    Args:
        header: A ModelProto without a graph.
        stage: A GraphProto without the head's nodes, weights and output.
        head: A GraphProto with only these.

    Returns:
        The model, to which only further fields of ModelProto may be appended, and the value of its metadata `PLACE`.
    """
    opening = header + GRAPH_FIELD + varint(len(stage) + len(head))
    return opening + stage + head, f"{len(header)} {len(opening)} {len(opening) + len(stage)}"


def stage_alone(model: bytes, metadata: Mapping[str, str]) -> bytes:
    """Return the model without its head.

    Raises:
        KeyError, ValueError: The model was not written by `join_parts`.
    """
    header_end, start, end = (int(place) for place in metadata[PLACE].split())
    if not 0 < header_end < start < end <= len(model) or model[header_end : header_end + 1] != GRAPH_FIELD:
        raise ValueError("the offsets of the stage are wrong")
    return model[:header_end] + GRAPH_FIELD + varint(end - start) + model[start:end]
