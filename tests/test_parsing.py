"""JSON and TOML of unknown origin: every problem is a ValueError of one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elfnet.parsing import MAX_DEPTH, parse_json, parse_toml, read_json, read_toml

DEEP = 100_000
HOSTILE_JSON = {
    "nested lists": "[" * DEEP + "]" * DEEP,
    "nested objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "nested just too deep": "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
    "10**400": '{"a": 1' + "0" * 400 + "}",
    "2**63": '{"a": [9223372036854775808]}',
    "5,000 digits": "9" * 5000,
    "1e400": "[1e400]",
    "NaN": '{"a": NaN}',
    "infinity": "-Infinity",
    "truncated": '{"a": ',
    "not UTF-8": b'{"a": "\xff"}',
    "nothing": "",
}
HOSTILE_TOML = {
    "nested lists": "a = " + "[" * DEEP + "]" * DEEP,
    "nested tables": "[" + ".".join("a" * (MAX_DEPTH + 1)) + "]",
    "10**400": "a = 1" + "0" * 400,
    "5,000 digits": "a = " + "9" * 5000,
    "not TOML": "a = ",
}


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *(pytest.param(parse_json, text, id=f"json {name}") for name, text in HOSTILE_JSON.items()),
        *(pytest.param(parse_toml, text, id=f"toml {name}") for name, text in HOSTILE_TOML.items()),
    ],
)
def test_hostile_text_is_a_value_error(parse: Callable[[Any], Any], text: str | bytes) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_ordinary_content_is_unchanged() -> None:
    text = '{"a": [1, -2, 9223372036854775807, 1.5, 1e-400, true, null, "\\u00e9"], "b": {}}'
    assert parse_json(text) == {"a": [1, -2, 2**63 - 1, 1.5, 0.0, True, None, "é"], "b": {}}
    assert parse_json(text.encode()) == parse_json(text)
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert parse_toml("a = 1\n[b]\nc = [1.5, inf]") == {"a": 1, "b": {"c": [1.5, float("inf")]}}


def test_files_have_a_largest_size(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("[1234567]")
    assert read_json(file, max_bytes=9) == [1234567]
    with pytest.raises(ValueError, match="it has more than 8 bytes"):
        read_json(file, max_bytes=8)
    with pytest.raises(ValueError, match="it has more than 8 bytes"):
        read_toml(file, max_bytes=8)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "b")
