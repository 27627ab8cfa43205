"""The map from optional packages to extras agrees with pyproject.toml."""

import json
import re
import tomllib
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from elfnet.extras import EXTRA_OF_PACKAGE, missing_package

DISTRIBUTION = {"sklearn": "scikit-learn", "imblearn": "imbalanced-learn"}
"""Packages that are installed under another name than they are imported by."""
INDIRECT = {"starlette"}
"""Packages that come with another package of the same extra."""
NOT_FOR_USERS = {"docs", "dev", "torture", "all"}


def test_every_package_of_an_extra_is_in_the_map() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    declared = {
        (re.split(r"[<>=~!\[ ]", requirement)[0], extra)
        for extra, requirements in project["optional-dependencies"].items()
        if extra not in NOT_FOR_USERS
        for requirement in requirements
    }
    mapped = {
        (DISTRIBUTION.get(package, package.replace("_", "-")), extra)
        for package, extra in EXTRA_OF_PACKAGE.items()
        if package not in INDIRECT
    }
    assert mapped == declared


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'elfnet[serve]'"),
        ({"url": "file:///wheels/elfnet.whl", "archive_info": {}}, "pip install 'elfnet[serve]'"),
        (
            {"url": "file:///my%20code/elfnet", "dir_info": {}},
            "cd '/my code/elfnet' && pip install -c constraints.txt '.[serve]'",
        ),
        (
            {"url": "file:///code/elfnet", "dir_info": {"editable": True}},
            "cd /code/elfnet && pip install -c constraints.txt -e '.[serve]'",
        ),
    ],
)
def test_the_message_names_feature_package_and_command(
    monkeypatch: pytest.MonkeyPatch, origin: dict[str, object] | None, command: str
) -> None:
    stored = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(metadata, "distribution", lambda _: SimpleNamespace(read_text={"direct_url.json": stored}.get))
    assert missing_package("serving", "httptools") == f"serving needs httptools: {command}"


def test_code_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def distribution(name: str) -> object:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", distribution)
    assert missing_package("serving", "httptools") == "serving needs httptools: pip install 'elfnet[serve]'"


@pytest.mark.parametrize(
    ("package", "name", "missing"), [("elfnet", "ELFClassifier", "sklearn"), ("elfnet.losses", "ELFLoss", "torch")]
)
def test_a_public_name_says_which_extra_it_needs(
    monkeypatch: pytest.MonkeyPatch, package: str, name: str, missing: str
) -> None:
    public = import_module(package)
    not_there = Mock(side_effect=ModuleNotFoundError(name=missing))
    monkeypatch.setattr("elfnet.lazy.import_module", not_there)
    with pytest.raises(ModuleNotFoundError, match=rf"^{package}\.{name} needs {missing}: .*train") as caught:
        getattr(public, name)
    assert caught.value.name == missing
