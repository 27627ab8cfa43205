"""The tutorial notebook runs from top to bottom."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "tutorial.ipynb"


def _cells() -> list[str]:
    content = json.loads(NOTEBOOK.read_text())
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


def test_no_output_is_stored() -> None:
    content = json.loads(NOTEBOOK.read_text())
    assert all(not cell.get("outputs") for cell in content["cells"])


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path) -> None:
    """In a kernel where nbclient is installed, else cell after cell in one process."""
    try:
        import nbformat
        from nbclient import NotebookClient
    except ImportError:
        script = tmp_path / "cells.py"
        script.write_text("\n\n".join(_cells()))
        command = [sys.executable, "-W", "ignore", str(script)]
        done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        printed = done.stdout
    else:
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(tmp_path)}}).execute()
        outputs = [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]
        printed = "".join(out.get("text", "") for out in outputs)
    assert printed.count("cost") >= 13
    assert "images per exit" in printed
    assert (tmp_path / "tutorial.onnx").is_file()
