"""The public names of the package."""

import subprocess
import sys

import pytest

from elfnet import sweep


@pytest.mark.parametrize("name", sweep.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(sweep, name).__name__ == name


def test_names_are_sorted_and_complete() -> None:
    assert dir(sweep) == sweep.__all__ == sorted(sweep._MODULES)
    with pytest.raises(AttributeError, match=r"module 'elfnet\.sweep' has no attribute 'nothing'"):
        sweep.nothing  # noqa: B018


def test_torch_is_never_imported() -> None:
    """Neither by the package nor by its public names; the package alone also loads nothing else that is large."""
    code = (
        "import sys, elfnet.sweep\n"
        "assert not {'torch', 'matplotlib', 'pydantic', 'jinja2', 'numpy'} & set(sys.modules)\n"
        "for name in elfnet.sweep.__all__: getattr(elfnet.sweep, name)\n"
        "assert not {'torch', 'matplotlib', 'ray'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
