"""Every row of table 2 states what it follows, and names a test that exists."""

from pathlib import Path

import pytest

from elfnet.recipe.load import shipped_methods
from elfnet.reproduce.paper_table import load_table

ROOT = Path(__file__).parents[2]
METHODS = sorted({row.method for row in load_table("table2").rows if row.method is not None})


@pytest.mark.parametrize("method", METHODS)
def test_the_statement_and_its_test(method: str) -> None:
    about = shipped_methods()[method]
    assert about.follows.startswith(("follows", "ours", "standard", "as "))
    file, _, name = about.tested.partition("::")
    assert (ROOT / file).is_file()
    assert not name or f"def {name}(" in (ROOT / file).read_text()
