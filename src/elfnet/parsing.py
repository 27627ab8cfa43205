"""Read JSON and TOML of unknown origin: limits on size, depth and digits, and one line per problem.

The libraries alone end a hostile or damaged file with a RecursionError, or accept an integer that later arithmetic
cannot represent. Every problem with the content is a `ValueError` here; a file that cannot be read is an `OSError`.
"""

import json
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

MAX_BYTES = 64 * 2**20
"""Largest file; larger ones are refused before they are read."""
MAX_DEPTH = 64
MAX_INTEGER_BITS = 63


def read_json(path: Path, *, max_bytes: int = MAX_BYTES, object_hook: Callable[[Any], Any] | None = None) -> Any:
    """Read a JSON file; see `parse_json`."""
    return parse_json(read_limited(path, max_bytes), object_hook=object_hook)


def read_toml(path: Path, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Read a TOML file; see `parse_toml`."""
    return parse_toml(read_limited(path, max_bytes).decode())


def parse_json(text: str | bytes, *, object_hook: Callable[[Any], Any] | None = None) -> Any:
    """Parse standard JSON, which has no NaN and no infinity.

    Args:
        object_hook: See `json.loads`.

    Raises:
        ValueError: The text is not JSON, or beyond the limits.
    """
    try:
        content = json.loads(
            text,
            object_hook=object_hook,
            parse_constant=_refuse_constant,
            parse_float=_parse_finite,
            parse_int=_parse_int,
        )
    except RecursionError:
        raise _too_deep() from None
    return check_plain(content)


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        ValueError: The text is not TOML, or beyond the limits.
    """
    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise _too_deep() from None
    check_plain(content)
    return content


def read_limited(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Read a file of at most `max_bytes`.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is larger.
    """
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"it has more than {max_bytes:,} bytes")
    return content


def check_plain(content: Any) -> Any:
    """Return parsed content after checking its depth and its integers.

    Raises:
        ValueError: Values are nested too deeply, or an integer has too many digits.
    """
    # Level by level and without recursion: the content may be nested as deeply as the parser allows.
    level = [content]
    for _ in range(MAX_DEPTH):
        if any(type(value) is int and value.bit_length() > MAX_INTEGER_BITS for value in level):
            raise ValueError(f"it has an integer of more than {MAX_INTEGER_BITS} bits")
        nested = [
            value.values() if isinstance(value, dict) else value for value in level if type(value) in (dict, list)
        ]
        level = [value for values in nested for value in values]
        if not level:
            return content
    raise _too_deep()


def _parse_int(digits: str) -> int:
    if len(digits) > 20:  # int() takes quadratic time
        raise ValueError(f"it has an integer of {len(digits)} digits")
    return int(digits)


def _parse_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large for a number")
    return number


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def _too_deep() -> ValueError:
    return ValueError(f"its values are nested more than {MAX_DEPTH} deep")
