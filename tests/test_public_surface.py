"""What users may rely on, and what importing it costs."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules, walk_packages
from types import ModuleType
from typing import Any

import pytest

import elfnet

HEAVY = ("torch", "matplotlib", "sklearn", "pydantic", "lightning_fabric", "safetensors", "tensorboard", "wandb")


def _loaded_after(statements: str, names: tuple[str, ...]) -> list[str]:
    """Which of the modules are loaded in a fresh interpreter after running the statements."""
    code = f"{statements}\nimport sys\nfor name in {names!r}:\n    if name in sys.modules: print(name)"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("name", elfnet.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(elfnet, name) is not None


def test_the_surface_is_what_it_says() -> None:
    assert dir(elfnet) == sorted(elfnet.__all__)
    assert len(set(elfnet.__all__)) == len(elfnet.__all__)
    assert elfnet.__version__.count(".") == 2


def test_type_checkers_see_the_same_names_from_the_same_places() -> None:
    """The names are written twice: once for type checkers, once for the lazy import."""
    tree = ast.parse(Path(elfnet.__file__).read_text())
    typed = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == elfnet._HOME
    assert set(typed) | {"__version__"} == set(elfnet.__all__)


def test_no_public_name_is_hidden_by_a_module() -> None:
    """Python sets an imported module as attribute of its package, where it would hide a lazy name."""
    packages = [elfnet, *(import_module(m.name) for m in walk_packages(elfnet.__path__, "elfnet.") if m.ispkg)]
    hidden = {
        package.__name__: names
        for package in packages
        if (names := {*getattr(package, "__all__", ())} & {module.name for module in iter_modules(package.__path__)})
    }
    assert hidden == {}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'elfnet' has no attribute 'trane'"):
        elfnet.trane  # noqa: B018


def test_importing_the_package_is_cheap() -> None:
    assert _loaded_after("import elfnet", HEAVY) == []


def test_recipes_and_tables_need_no_torch() -> None:
    assert _loaded_after("from elfnet import load_recipe, ExitTable, Family, replay", ("torch", "matplotlib")) == []


def test_deciding_tables_and_reports_need_no_torch() -> None:
    root = Path(elfnet.__file__).parent
    files = sorted((root / "report").rglob("*.py"))
    reports = [".".join(("elfnet", *file.relative_to(root).with_suffix("").parts)) for file in files]
    modules = [
        "elfnet.exits.policy",
        "elfnet.evaluate.exit_table",
        *(name.removesuffix(".__init__") for name in reports),
    ]
    assert _loaded_after("\n".join(f"import {module}" for module in modules), ("torch",)) == []


ROOT = Path(__file__).parents[1]
DOTTED = re.compile(r"\belfnet((?:\.[A-Za-z_]\w*)+)")


def _messages(file: Path) -> Iterator[str]:
    """The string literals of a module that are prose: not its docstrings, and not single words."""
    tree = ast.parse(file.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            text = node.value if isinstance(node.value, str) else ""
            if " " in text.strip():
                yield text


def _named_paths() -> set[str]:
    """Every dotted path of the package that documentation, examples or messages name."""
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.py"),
    ]
    texts = [page.read_text() for page in pages]
    for file in Path(elfnet.__file__).parent.rglob("*.py"):
        texts.extend(_messages(file))
    return {f"elfnet{path}" for text in texts for path in DOTTED.findall(text)}


def _is_public(path: str) -> bool:
    """Whether the path is a package with public names, or one of its names, or an attribute of such a name."""
    holder: Any = elfnet
    for number, part in enumerate(path.split(".")[1:], start=1):
        if isinstance(holder, ModuleType):
            if part in getattr(holder, "__all__", ()):
                holder = getattr(holder, part)
                continue
            try:
                holder = import_module(".".join(path.split(".")[: number + 1]))
            except ModuleNotFoundError:
                return False
            if not hasattr(holder, "__all__"):
                return False
        elif not hasattr(holder, part):
            return False
    return True


def test_documentation_and_messages_name_public_paths_only() -> None:
    private = sorted(path for path in _named_paths() if not _is_public(path))
    assert not private


@pytest.mark.parametrize(
    ("path", "public"),
    [
        ("elfnet.exits.TrainingRule", True),
        ("elfnet.inference", True),
        ("elfnet.models.heads.CosineClassifier", False),
        ("elfnet.nothing", False),
        ("elfnet.Model.predict", True),
        ("elfnet.Model.nothing", False),
    ],
)
def test_what_counts_as_public(path: str, public: bool) -> None:
    assert _is_public(path) is public
