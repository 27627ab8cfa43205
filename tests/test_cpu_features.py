"""Processors that announce AMX without describing its tiles."""

import os
from pathlib import Path

import pytest

from elfnet import cpu_features


def _pretend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, level: int, flags: str) -> None:
    file = tmp_path / "cpuinfo"
    one = f"processor\t: 0\ncpuid level\t: {level}\nflags\t\t: fpu {flags}\nbugs\t\t:\n\n"
    file.write_text(one + one.replace(flags, "other"))
    monkeypatch.setattr(cpu_features, "CPUINFO", str(file))


@pytest.mark.parametrize(
    ("level", "flags", "unusable"),
    [(28, "avx512f amx_tile", True), (29, "avx512f amx_tile", False), (28, "avx512f", False)],
)
def test_amx_needs_the_leaf_that_describes_its_tiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, level: int, flags: str, unusable: bool
) -> None:
    _pretend(monkeypatch, tmp_path, level=level, flags=flags)
    assert cpu_features.amx_is_unusable() == unusable
    # Set first, so that the end of the test removes what is set below.
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    cpu_features.hide_unusable_amx()
    assert os.environ.get("ONEDNN_MAX_CPU_ISA") == ("AVX512_CORE_FP16" if unusable else None)


def test_a_users_choice_of_instructions_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _pretend(monkeypatch, tmp_path, level=28, flags="amx_tile")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    cpu_features.hide_unusable_amx()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"


def test_other_systems_have_no_cpuinfo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cpu_features, "CPUINFO", str(tmp_path / "missing"))
    assert not cpu_features.amx_is_unusable()
