"""Stored JSON: strict models of its content, and files with a hash: run.json, metrics.json, policy.json, log.jsonl.

The hash detects a changed byte. Files that earlier versions wrote have none and are accepted.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from elfnet import atomic
from elfnet.errors import WorkError
from elfnet.parsing import parse_json, read_limited

SHA256 = "sha256"
"""The field with the hash of all other fields."""

RESTORE = "restore it from a copy, or train again"


class Strict(BaseModel):
    """Base of the parts of a file: run.json, metrics.json, log.jsonl, policy.json and the manifest of a bundle."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    def to_json(self) -> dict[str, Any]:
        """Return the content in plain JSON types; an optional field that was not given is left out."""
        return self.model_dump(mode="json", exclude_unset=True)


Model = TypeVar("Model", bound=Strict)


def content_sha256(content: Mapping[str, Any]) -> str:
    """SHA-256 of JSON content, whatever the order of its fields and its white space."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        ValueError: the text is not one JSON object of finite numbers.
    """
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError("not an object")
    return content


def read_json(path: Path, *, way_out: str = RESTORE) -> dict[str, Any]:
    """Read a JSON object of a run, without its hash.

    Args:
        way_out: what the user can do about a damaged file.

    Raises:
        WorkError: the file is missing, damaged, or was altered after it was written.
    """
    try:
        content = parse_object(read_limited(path))
        claimed = content.pop(SHA256, None)
        altered = claimed is not None and claimed != content_sha256(content)
    except OSError as error:
        raise WorkError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise WorkError(f"{path} is damaged ({error}); {way_out}") from error
    if altered:
        raise WorkError(f"{path} was altered after it was written (its hash does not match); {way_out}")
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with its hash, atomically."""
    atomic.write_json(path, {**content, SHA256: content_sha256(content)})


def read_model(path: Path, model: type[Model], *, way_out: str = RESTORE) -> Model:
    """Read a file of a run as a model; see `read_json`."""
    content = read_json(path, way_out=way_out)
    try:
        # JSON has no tuples, so a strict model must read text.
        return model.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise WorkError(f"{path} is damaged ({first_error(error)}); {way_out}") from error


def first_error(error: ValidationError) -> str:
    """Describe the first of the errors in one line: the place, and what is wrong there."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    reason = " ".join(first["msg"].removeprefix("Value error, ").split())
    return f"{place}: {reason}" if place else reason
