"""The size and the connections of modules, so that the source does not fall apart into crumbs again.

`python tests/test_structure.py` prints the counts and the modules behind them.

How importers are counted: every import statement of `src/elfnet` counts, wherever in a file it stands, also those of an
`__init__.py`. `from elfnet.losses import ELFLoss` imports the package, not the module that defines the name.
"""

import ast
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import elfnet

ROOT = Path(elfnet.__file__).parent
MAX_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_SINGLE_IMPORTERS = 40
MAX_MODULES = 250
MEDIAN_LINES = (120, 180)


def _name(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {_name(file): ast.parse(file.read_text()) for file in sorted(ROOT.rglob("*.py"))}
PACKAGES = {_name(file) for file in ROOT.rglob("__init__.py")}
MODULES = sorted({*TREES} - PACKAGES)
LINES = {_name(file): len(file.read_text().splitlines()) for file in ROOT.rglob("*.py")}


def _imported(module: str) -> Iterator[str]:
    """Modules and packages that one module imports."""
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                dotted = f"{node.module}.{alias.name}"
                yield dotted if dotted in TREES else node.module


def single_importers() -> dict[str, str]:
    """Modules that exactly one other file imports; with their importer."""
    importers = defaultdict(set)
    for module in TREES:
        for target in _imported(module):
            if target in MODULES and target != module:
                importers[target].add(module)
    return {module: next(iter(by)) for module, by in sorted(importers.items()) if len(by) == 1}


def test_a_helper_lives_beside_its_only_caller() -> None:
    found = single_importers()
    assert len(found) <= MAX_SINGLE_IMPORTERS, found


def test_modules_are_neither_crumbs_nor_heaps() -> None:
    assert {module: lines for module, lines in LINES.items() if lines > MAX_LINES} == {}
    assert len(MODULES) <= MAX_MODULES
    lowest, highest = MEDIAN_LINES
    assert lowest <= statistics.median(LINES[module] for module in MODULES) <= highest


def test_functions_are_short() -> None:
    """The function `parser` of a verb is a list of its arguments and may be longer."""
    long = {
        f"{module}.{node.name}": lines
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (lines := _body_lines(node)) > MAX_FUNCTION_LINES
        if not (node.name == "parser" and module.startswith("elfnet.cli."))
    }
    assert long == {}


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body, without the docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


if __name__ == "__main__":
    single = single_importers()
    median = statistics.median(LINES[module] for module in MODULES)
    sys.stdout.write(f"{len(MODULES)} modules and {len(PACKAGES)} packages; median {median:g} lines\n")
    sys.stdout.write(f"{len(single)} modules with a single importer\n")
    sys.stdout.write("".join(f"  {module} {LINES[module]} <- {by} {LINES[by]}\n" for module, by in single.items()))
