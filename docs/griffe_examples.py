"""Griffe knows the section `Examples:` only; our docstrings have one example and say `Example:`."""

import re
from typing import Any

import griffe


class SingularExample(griffe.Extension):
    """Renames the section before docstrings are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
