"""Packages import only from packages to their left, so that the import path reads as the pipeline."""

import ast
from collections.abc import Iterator
from pathlib import Path

import elfnet

ROOT = Path(elfnet.__file__).parent
ORDER = (
    "recipe",
    "data",
    "models",
    "exits",
    "losses",
    "run",
    "evaluate",
    "calibrate",
    "methods",
    "pretrained",
    "inference",
    "export",
    "hub",
    "train",
    "estimator",
    "report",
    "sweep",
    "reproduce",
    "serve",
    "cli",
)
FOUNDATION = {
    "atomic",
    "cpu_features",
    "errors",
    "extras",
    "interrupts",
    "lazy",
    "parsing",
    "progress",
    "ray_cluster",
    "registry",
    "version",
}
# The package itself and `python -m elfnet` stand above all others.
FILES = sorted({*ROOT.rglob("*.py")} - {ROOT / "__init__.py", ROOT / "__main__.py"})


def _imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, module) of every import of this package, wherever in the file it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            # `from elfnet import atomic` imports the module elfnet.atomic.
            yield from ((node.lineno, f"elfnet.{alias.name}" if module == "elfnet" else module) for alias in node.names)


def _violations(package: str, source: str) -> list[str]:
    found = []
    for line, module in _imported(ast.parse(source)):
        top, _, rest = module.partition(".")
        if top != "elfnet" and not module.startswith("."):
            continue
        target = rest.partition(".")[0]
        if module.startswith("."):
            found.append(f"line {line}: relative import {module}")
        elif target in FOUNDATION:
            continue
        elif target not in ORDER:
            found.append(f"line {line}: {module} is not a known package")
        elif package not in ORDER:
            found.append(f"line {line}: the foundation imports {module}")
        elif ORDER.index(target) > ORDER.index(package):
            found.append(f"line {line}: {package} imports {module}, which is to its right")
    return found


def test_imports_go_to_the_left() -> None:
    found = {}
    for file in FILES:
        package = file.relative_to(ROOT).parts[0].removesuffix(".py")
        assert package in {*ORDER, *FOUNDATION}, f"{package} has no place in the order"
        if violations := _violations(package, file.read_text()):
            found[str(file.relative_to(ROOT))] = violations
    assert found == {}


def test_a_violation_would_be_found() -> None:
    """The test itself, on imports of every form."""
    assert (
        _violations("data", "from elfnet.errors import WorkError\nimport torch\nfrom elfnet.data import digits") == []
    )
    for wrong in (
        "import elfnet.models.build",
        "from elfnet.models import build",
        "from elfnet import models",
        "def f():\n    from elfnet.train.run import train_recipe",
        "from . import splits",
        "from elfnet.helpers import anything",
    ):
        assert len(_violations("data", wrong)) == 1, wrong
    assert _violations("cli", "from elfnet.train.run import train_recipe") == []
    assert len(_violations("atomic", "from elfnet.data import digits")) == 1


def test_every_package_says_what_it_is() -> None:
    for package in {file.parent for file in FILES if file.parent != ROOT}:
        opening = package / "__init__.py"
        assert opening.is_file(), f"{package.name} has no __init__.py"
        assert ast.get_docstring(ast.parse(opening.read_text())), f"{package.name} has no docstring"
