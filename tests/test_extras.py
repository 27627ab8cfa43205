"""The map from optional packages to extras agrees with pyproject.toml."""

import re
import tomllib
from pathlib import Path

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


def test_the_message_names_feature_package_and_command() -> None:
    assert missing_package("serving", "httptools") == "serving needs httptools: pip install 'elfnet[serve]'"
