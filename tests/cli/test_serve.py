"""elfnet serve: errors before it listens."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from point_families import family_of, point

from elfnet import serve as serve_package
from elfnet.cli.serve import _start_point
from elfnet.extras import install_command

Call = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["none.elfnet"], 2, "none.elfnet"),
        (["none.elfnet", "--operating-point", "full", "--budget", "0.6"], 2, "give one of them"),
        (["none.elfnet", "--max-batch", "0"], 2, "max_batch=0 must be 1 or more"),
        (["none.elfnet", "--allow-host", "a.example:80"], 2, "'a.example:80', which is not a host name; give a name"),
        (["none.elfnet", "--max-held-pixels", "9"], 2, "is more than max_held_pixels=9; lower the first or raise"),
        (["none.elfnet", "--samples", "nowhere"], 2, "--samples nowhere is not a folder"),
        (["none.elfnet", "--token-file", "nowhere"], 1, "cannot read the token in nowhere"),
        (["none.elfnet", "--prot", "1"], 2, "did you mean --port?"),
    ],
)
def test_refused_in_one_line(
    elfnet: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    found, out, error = elfnet("serve", *words)
    assert (found, out) == (code, "")
    assert error.startswith("elfnet: ")
    assert reason in error
    assert error.count("\n") == 1


def test_the_service_starts_at_the_default_point() -> None:
    full, accurate, cheap = point("full", 0.8, 1.0), point("accurate", 0.9, 0.7), point("s=0.5", 0.6, 0.4)
    family = family_of(full, accurate, cheap)
    assert _start_point(family, None, None, None) == accurate
    assert _start_point(family, "full", None, None) == full
    assert _start_point(family, None, 0.5, None) == cheap


@pytest.mark.parametrize("package", ["fastapi", "httptools", "prometheus_client", "python_multipart", "uvicorn"])
def test_a_missing_extra_is_named(elfnet: Call, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    for module in [name for name in sys.modules if name.startswith(("elfnet.serve.", "uvicorn", f"{package}."))]:
        monkeypatch.delitem(sys.modules, module)
        monkeypatch.delattr(serve_package, module.rpartition(".")[2], raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    code, _, error = elfnet("serve", "x.elfnet")
    assert code == 1
    assert f"'elfnet serve' needs {package}: {install_command('serve')}" in error
