"""The base of all stored data: strict, frozen models without unknown fields, NaN or infinity."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError


class Strict(BaseModel):
    """Base of the parts of a file: run.json, metrics.json, log.jsonl, policy.json and the manifest of a bundle."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    def to_json(self) -> dict[str, Any]:
        """Return the content in plain JSON types; an optional field that was not given is left out."""
        return self.model_dump(mode="json", exclude_unset=True)


def first_error(error: ValidationError) -> str:
    """Describe the first of the errors in one line: the place, and what is wrong there."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    reason = " ".join(first["msg"].removeprefix("Value error, ").split())
    return f"{place}: {reason}" if place else reason
