"""A stage's graph, from memory or from its file."""

from pathlib import Path

from elfnet.errors import WorkError


def graph_bytes(graph: bytes | Path) -> bytes:
    """Runtimes get bytes, never a path: a graph with its weights in another file is then refused by them."""
    if isinstance(graph, bytes):
        return graph
    try:
        return graph.read_bytes()
    except OSError as error:
        raise WorkError(f"cannot read the graph {graph}: {error.strerror}; export it again") from None
