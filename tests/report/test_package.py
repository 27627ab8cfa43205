"""The public names of the package."""

import subprocess
import sys

import pytest

from elfnet import report


@pytest.mark.parametrize("name", report.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(report, name).__name__ == name


def test_names_are_sorted_and_complete() -> None:
    assert dir(report) == report.__all__ == sorted(report._MODULES)
    with pytest.raises(AttributeError, match=r"module 'elfnet\.report' has no attribute 'nothing'"):
        report.nothing  # noqa: B018


def test_torch_is_never_imported() -> None:
    """Neither by the package nor by its public names; the package alone also loads nothing else that is large."""
    code = (
        "import sys, elfnet.report\n"
        "assert not {'torch', 'matplotlib', 'pydantic', 'jinja2', 'numpy'} & set(sys.modules)\n"
        "for name in elfnet.report.__all__: getattr(elfnet.report, name)\n"
        "assert not {'torch', 'matplotlib', 'ray'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
