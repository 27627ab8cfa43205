"""What inputs and outputs of a stage's graph are called: the agreement between export and runtimes.

ONNX allows a name only once in a graph, so what comes out cannot also be called `features`.
"""

FEATURES = "features"
NEXT_FEATURES = "next_features"
LOGITS = "logits"


def numbered(name: str, count: int) -> list[str]:
    """The name itself where a stage passes on one tensor; `name_0`, `name_1` and so on where it passes on several."""
    return [name] if count == 1 else [f"{name}_{i}" for i in range(count)]


def in_stage(k: int, name: str) -> str:
    """The name while all stages are still in one graph."""
    return f"stage_{k}/{name}"
