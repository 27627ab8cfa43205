"""The public names of `elfnet.reproduce`, and what importing them loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import elfnet.reproduce


@pytest.mark.parametrize("name", elfnet.reproduce.__all__)
def test_every_public_name_exists(name: str) -> None:
    assert getattr(elfnet.reproduce, name) is not None


def test_type_checkers_see_the_names_of_the_lazy_import() -> None:
    tree = ast.parse(Path(elfnet.reproduce.__file__).read_text())
    typed = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == elfnet.reproduce._HOME
    assert sorted(typed) == sorted(elfnet.reproduce.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'elfnet\.reproduce' has no attribute 'nothing'"):
        _ = elfnet.reproduce.nothing


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import elfnet.reproduce", {"torch", "pydantic"}),
        ("from elfnet.reproduce import TABLES, TIERS, load_table, write_table", {"torch"}),
        ("import elfnet.cli.reproduce", {"torch"}),
    ],
)
def test_torch_is_loaded_only_where_it_is_needed(statement: str, absent: set[str]) -> None:
    code = f"{statement}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not absent & set(done.stdout.split())
