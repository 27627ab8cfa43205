"""Renamed settings.

An old name in a user's recipe file or flag is refused, and the message names the new one. Files that elfnet wrote (the
recipe of a run, the record of a table) are translated on reading, so that a run of an earlier version can be resumed
and its record is recognised.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Renamed:
    """The replacement of an old setting.

    Attributes:
        new: Dotted name of the setting that replaces it.
        convert: Turns a stored value into the equivalent settings by dotted name; None keeps the value.
    """

    new: str
    convert: Callable[[Any], dict[str, Any]] | None = None

    def settings(self, value: Any) -> dict[str, Any]:
        """The new settings, by dotted name, that are equivalent to the old one with this value."""
        return {self.new: value} if self.convert is None else self.convert(value)


def _policy_of_randaugment(operations: int) -> dict[str, Any]:
    if operations == 0:
        return {"data.policy": "none"}
    return {"data.policy": "randaugment", "data.randaugment_operations": operations}


RENAMED: dict[str, Renamed] = {
    "criterion.ldam_scale": Renamed("criterion.cosine_scale"),
    "data.most_megabytes": Renamed("data.max_megabytes"),
    "data.most_megapixels": Renamed("data.max_megapixels"),
    "data.randaugment": Renamed("data.policy", _policy_of_randaugment),
    "data.smallest_share": Renamed("data.min_crop_area"),
    "exits.left": Renamed("exits.after_exit"),
    "refit.how": Renamed("refit.method"),
}
"""Replacements by old dotted name."""


def new_name(dotted: str) -> str | None:
    """The current name of a renamed setting; None if the name was not renamed."""
    found = RENAMED.get(dotted)
    return None if found is None else found.new


def translate_stored(content: Mapping[str, Any]) -> dict[str, Any]:
    """Replace old names in stored settings (by section and field) by the current ones."""
    sections = {section: dict(fields) if isinstance(fields, Mapping) else fields for section, fields in content.items()}
    for old, renamed in RENAMED.items():
        section, _, name = old.partition(".")
        fields = sections.get(section)
        if not isinstance(fields, dict) or name not in fields:
            continue
        for dotted, value in renamed.settings(fields.pop(name)).items():
            new_section, _, new_field = dotted.partition(".")
            sections.setdefault(new_section, {})[new_field] = value
    return sections
