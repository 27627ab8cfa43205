"""The public names of `elfnet.serve`, and what importing them loads."""

import subprocess
import sys

import pytest

import elfnet.serve


def loaded_after(code: str) -> set[str]:
    """The packages that a new interpreter has loaded after running `code`."""
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", elfnet.serve.__all__)
def test_every_public_name_exists(name: str) -> None:
    assert getattr(elfnet.serve, name).__module__.startswith("elfnet.serve.")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'elfnet\.serve' has no attribute 'nothing'"):
        _ = elfnet.serve.nothing


def test_importing_the_package_is_cheap_and_nothing_in_it_imports_torch() -> None:
    assert not loaded_after("import elfnet.serve") & {"torch", "numpy", "fastapi", "uvicorn", "pydantic"}
    everything = loaded_after("from elfnet.serve import *")
    assert {"fastapi", "uvicorn", "onnxruntime"} & everything == {"fastapi", "uvicorn"}
    assert "torch" not in everything
