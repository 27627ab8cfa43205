"""Read and write protobuf's wire format, and walk through an ONNX model without the package onnx.

The walk refuses what a bundle must not contain, before a runtime parses anything: weights in other files, operators of
other domains, functions. Every other field is passed over.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

from elfnet.errors import WorkError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_DEPTH = 40
"""Deepest nesting of graphs. Runtimes stop at 100 nested messages, three for each graph."""
DOMAINS = frozenset({"", "ai.onnx"})
"""The domain of the standard operators has two names."""

# Numbers of fields in onnx.proto.
MODEL_OPSET, MODEL_GRAPH, MODEL_METADATA, MODEL_TRAINING, MODEL_FUNCTIONS = 8, 7, 14, 20, 25
GRAPH_NODE, GRAPH_NAME, GRAPH_WEIGHT, GRAPH_INPUT, GRAPH_OUTPUT, GRAPH_VALUE, GRAPH_SPARSE = 1, 2, 5, 11, 12, 13, 15
NODE_NAME, NODE_OPERATOR, NODE_ATTRIBUTE, NODE_DOMAIN = 3, 4, 5, 7
ATTRIBUTE_TENSOR, ATTRIBUTE_GRAPH, ATTRIBUTE_TENSORS, ATTRIBUTE_GRAPHS, ATTRIBUTE_SPARSE = 5, 6, 10, 11, (22, 23)
TENSOR_NAME, TENSOR_EXTERNAL, TENSOR_LOCATION = 8, 13, 14
VALUE_NAME = 1


class WireError(ValueError):
    """The bytes are not in protobuf's wire format."""


@dataclass(frozen=True)
class Field:
    """One field of a message.

    Attributes:
        number: Number of the field.
        value: An integer for a varint, else the bytes.
        start, end: Where the whole field is in the message, with its tag.
        value_start: Where its value begins.
    """

    number: int
    value: int | memoryview
    start: int
    end: int
    value_start: int

    @property
    def content(self) -> memoryview:
        """The bytes of a text or message."""
        if isinstance(self.value, int):
            raise WireError(f"field {self.number} is a number")
        return self.value

    @property
    def text(self) -> str:
        return bytes(self.content).decode()


def read_fields(message: memoryview) -> Iterator[Field]:
    """Yield the fields of a message in order.

    Raises:
        WireError: The message is truncated, or not a message.
    """
    position = 0
    while position < len(message):
        start = position
        tag, position = _read_varint(message, position)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            begin = position
            value, position = _read_varint(message, position)
            yield Field(number, value, start, position, begin)
            continue
        if kind == BYTES:
            size, position = _read_varint(message, position)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise WireError(f"unknown wire type {kind}")
        if number == 0 or position + size > len(message):
            raise WireError("truncated")
        yield Field(number, message[position : position + size], start, position + size, position)
        position += size


def _read_varint(message: memoryview, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            raise WireError("truncated")
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise WireError("a number is too long")


def varint(number: int) -> bytes:
    """Encode a varint: 7 bits per byte, lowest first; the eighth bit says that another byte follows."""
    groups = [number & 0x7F]
    while number := number >> 7:
        groups[-1] |= 0x80
        groups.append(number & 0x7F)
    return bytes(groups)


def encode(number: int, value: bytes | memoryview) -> bytes:
    """Encode a field with a text or message."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def first_text(message: memoryview, number: int) -> str:
    """Return the text of a field; empty if it is missing."""
    return next((found.text for found in read_fields(message) if found.number == number), "")


@dataclass(eq=False)
class ModelParts:
    """What the walk found.

    Attributes:
        header: The fields of the model besides graph and metadata, encoded.
        metadata: Metadata by key.
        metadata_at: Where each value begins in the file.
        graph: The main graph.
        nodes: Every node of all graphs by name, encoded without a tag.
        weights: Every initialiser of all graphs by name.
        values: The type and shape of values of all graphs, by name.
    """

    header: bytes = b""
    metadata: dict[str, str] = field(default_factory=dict)
    metadata_at: dict[str, int] = field(default_factory=dict)
    graph: memoryview = field(default_factory=lambda: memoryview(b""))
    nodes: dict[str, memoryview] = field(default_factory=dict)
    weights: dict[str, memoryview] = field(default_factory=dict)
    values: dict[str, memoryview] = field(default_factory=dict)


def walk(content: bytes, *, where: str) -> ModelParts:
    """Walk through an ONNX model.

    Args:
        content: The bytes of the file.
        where: Name of the file in error messages.

    Raises:
        WorkError: The file is not an ONNX model, or contains what a bundle must not.
    """
    parts = ModelParts()
    try:
        for found in read_fields(memoryview(content)):
            if found.number == MODEL_METADATA:
                _read_metadata(found, parts, where)
            elif found.number == MODEL_GRAPH:
                if parts.graph:
                    raise WireError("two graphs")
                parts.graph = found.content
            elif found.number in (MODEL_FUNCTIONS, MODEL_TRAINING):
                raise WorkError(f"{where} holds functions or training information; a bundle holds one plain graph")
            else:
                if found.number == MODEL_OPSET:
                    _require_domain(first_text(found.content, 1), where)
                parts.header += content[found.start : found.end]
        _walk_graph(parts.graph, parts, where, 0)
    except (WireError, UnicodeDecodeError) as error:
        raise WorkError(f"{where} is not an ONNX file, or is damaged ({error}); export the run again") from error
    if not parts.graph:
        raise WorkError(f"{where} is not an ONNX file: it has no graph; make one with 'elfnet export RUN'")
    return parts


def _read_metadata(found: Field, parts: ModelParts, where: str) -> None:
    entry = {part.number: part for part in read_fields(found.content)}
    if set(entry) != {1, 2}:
        raise WireError("a metadata entry without key and value")
    key = entry[1].text
    if key in parts.metadata:
        raise WorkError(f"{where} has the metadata {key!r} twice; export the run again")
    parts.metadata[key] = entry[2].text
    parts.metadata_at[key] = found.value_start + entry[2].value_start


def _walk_graph(graph: memoryview, parts: ModelParts, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise WorkError(f"{where} has graphs nested more than {MAX_DEPTH} deep; export the run again")
    for found in read_fields(graph):
        if found.number == GRAPH_NODE:
            _walk_node(found.content, parts, where, depth)
        elif found.number == GRAPH_WEIGHT:
            parts.weights[_checked_tensor(found.content, where)] = found.content
        elif found.number == GRAPH_SPARSE:
            _check_sparse(found.content, where)
        elif found.number == GRAPH_VALUE:
            parts.values[first_text(found.content, VALUE_NAME)] = found.content


def _walk_node(node: memoryview, parts: ModelParts, where: str, depth: int) -> None:
    for found in read_fields(node):
        if found.number == NODE_NAME:
            parts.nodes[found.text] = node
        elif found.number == NODE_DOMAIN:
            _require_domain(found.text, where)
        elif found.number == NODE_ATTRIBUTE:
            for part in read_fields(found.content):
                if part.number in (ATTRIBUTE_GRAPH, ATTRIBUTE_GRAPHS):
                    _walk_graph(part.content, parts, where, depth + 1)
                elif part.number in (ATTRIBUTE_TENSOR, ATTRIBUTE_TENSORS):
                    _checked_tensor(part.content, where)
                elif part.number in ATTRIBUTE_SPARSE:
                    _check_sparse(part.content, where)


def _require_domain(domain: str, where: str) -> None:
    if domain not in DOMAINS:
        raise WorkError(f"{where} has operators of the domain {domain!r}; a bundle uses standard ONNX operators only")


def _checked_tensor(tensor: memoryview, where: str) -> str:
    """Return the name of a tensor, and refuse one whose values are in another file."""
    name = ""
    for found in read_fields(tensor):
        if found.number == TENSOR_EXTERNAL or (found.number == TENSOR_LOCATION and found.value != 0):
            raise WorkError(f"{where} keeps weights in another file; a bundle holds all of its weights")
        if found.number == TENSOR_NAME:
            name = found.text
    return name


def _check_sparse(tensor: memoryview, where: str) -> None:
    for found in read_fields(tensor):
        if found.number in (1, 2):
            _checked_tensor(found.content, where)


def graph_without(
    graph: memoryview,
    *,
    prefix: str | None = None,
    weights: Container[str] = (),
    inputs: Mapping[str, tuple[str, bytes]] | None = None,
) -> bytes:
    """Return a graph without some nodes and weights, and with other inputs.

    Args:
        graph: The graph.
        prefix: Nodes and weights whose names begin so are left out; None for none.
        weights: Names of other weights that are left out.
        inputs: The new input by the name of the old one, as its name and its encoded type and shape.
    """
    replaced = inputs or {}
    new_names = {name for name, _ in replaced.values()}
    kept = []
    for found in read_fields(graph):
        name = first_text(found.content, _NAME_OF[found.number]) if found.number in _NAME_OF else ""
        if found.number in (GRAPH_NODE, GRAPH_WEIGHT) and prefix is not None and name.startswith(prefix):
            continue
        if (found.number == GRAPH_WEIGHT and name in weights) or (found.number == GRAPH_VALUE and name in new_names):
            continue
        if found.number == GRAPH_INPUT and name in replaced:
            kept.append(encode(GRAPH_INPUT, replaced[name][1]))
        else:
            kept.append(bytes(graph[found.start : found.end]))
    return b"".join(kept)


_NAME_OF = {GRAPH_NODE: NODE_NAME, GRAPH_WEIGHT: TENSOR_NAME, GRAPH_INPUT: VALUE_NAME, GRAPH_VALUE: VALUE_NAME}
"""The field of the name, by kind of field of a graph."""
