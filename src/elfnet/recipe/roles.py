"""What a setting is for, beyond its value: the role that stands on its field.

Comparisons, hashes and published records take their lists of settings from here, so that they cannot disagree.
"""

from pathlib import Path
from typing import Any, Literal, get_args

from elfnet.recipe.schema import Recipe

Role = Literal["location", "file", "machine", "tracking", "after-training", "presentation"]
"""Roles of settings; a setting without one is part of the experiment.

location: a directory. Where files are is no part of the experiment, and is not published.
file: a file. Its name is part of the experiment; its directory is not.
machine: how a run is computed.
tracking: which loggers are used.
after-training: read by evaluation and calibration only.
presentation: how training examples are shown, read or grouped; which examples there are does not depend on it.
"""


def role_of(dotted: str) -> Role | None:
    """Return the role of a setting given by its dotted name; None if it has none.

    Example:
        >>> role_of("train.threads"), role_of("train.epochs")
        ('machine', None)
    """
    section, _, name = dotted.partition(".")
    kind: Any = Recipe.model_fields[section].annotation
    extra = kind.model_fields[name].json_schema_extra
    role = extra.get("role") if isinstance(extra, dict) else None
    return next((one for one in get_args(Role) if one == role), None)


def settings_with_role(*roles: Role) -> frozenset[str]:
    """Return the dotted names of all settings with one of the roles."""
    return frozenset(
        f"{section}.{name}"
        for section, info in Recipe.model_fields.items()
        for name in getattr(info.annotation, "model_fields", {})
        if role_of(f"{section}.{name}") in roles
    )


def without_directories(content: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return settings by section for a file that others read: no location, and of files only the name."""
    copy = {section: dict(fields) for section, fields in content.items()}
    for dotted in settings_with_role("location", "file"):
        section, _, name = dotted.partition(".")
        value = copy.get(section, {}).get(name)
        if value:
            copy[section][name] = Path(value).name if role_of(dotted) == "file" else ""
    return copy
