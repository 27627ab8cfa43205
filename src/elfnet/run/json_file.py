"""JSON files with a hash of their content: run.json, metrics.json, policy.json, and the lines of log.jsonl.

The hash detects a changed byte. Files that earlier versions wrote have none and are accepted.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError

from elfnet import atomic
from elfnet.errors import WorkError
from elfnet.strict import Strict, first_error

SHA256 = "sha256"
"""The field with the hash of all other fields."""

RESTORE = "restore it from a copy, or train again"

Model = TypeVar("Model", bound=Strict)


def content_sha256(content: Mapping[str, Any]) -> str:
    """SHA-256 of JSON content, whatever the order of its fields and its white space."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        ValueError: the text is not one JSON object of finite numbers.
    """
    try:
        content = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("not an object")
    return content


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def read_json(path: Path, *, way_out: str = RESTORE) -> dict[str, Any]:
    """Read a JSON object of a run, without its hash.

    Args:
        way_out: what the user can do about a damaged file.

    Raises:
        WorkError: the file is missing, damaged, or was altered after it was written.
    """
    try:
        content = parse_object(path.read_bytes())
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
