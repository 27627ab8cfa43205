"""Settings that had another name once.

A user's recipe file or flag with an old name is refused, and the message tells the new one. What elfnet stored itself
(the recipe of a run, the record of a table) is translated when it is read, so that a run begun with an earlier version
resumes and its record is recognised.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Renamed:
    """A setting and what became of it.

    Attributes:
        new: the setting that replaces it, by dotted name.
        convert: from the stored value to the settings that mean the same, by dotted name; None: the value is kept.
    """

    new: str
    convert: Callable[[Any], dict[str, Any]] | None = None

    def settings(self, value: Any) -> dict[str, Any]:
        """The settings that mean what the old one meant with this value."""
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
"""By the old dotted name."""


def new_name(dotted: str) -> str | None:
    """The present name of a setting that was renamed; None for any other name."""
    found = RENAMED.get(dotted)
    return None if found is None else found.new


def translate_stored(content: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings by section, with every old name replaced by the present one."""
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
