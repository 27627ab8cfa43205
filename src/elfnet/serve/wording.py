"""What is wrong with a JSON body, in our words: pydantic's speak of types, not of what to send."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from elfnet.registry import unknown_name

LONGEST_NAME = 120

_MUST_BE = {
    "string_type": "text",
    "list_type": "a list",
    "model_type": "a JSON object",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "greater_than_equal": "{ge} or more",
}


def describe(error: ValidationError, model: type[BaseModel]) -> tuple[int, str]:
    """Status and one line for the first thing that is wrong with a body: 400 if it is no JSON, else 422."""
    errors = error.errors(include_url=False, include_input=False)
    # A misspelt field is unknown and leaves the right one missing; the former says what was misspelt.
    first = next((one for one in errors if one["type"] == "extra_forbidden" and len(one["loc"]) == 1), errors[0])
    kind, where = first["type"], first["loc"]
    if kind == "json_invalid":
        return 400, f"the body is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}"
    if kind == "extra_forbidden" and len(where) == 1:
        return 422, str(unknown_name("field", str(where[0])[:LONGEST_NAME], list(model.model_fields)))
    if kind == "missing" and len(where) == 1:
        name = str(where[0])
        return 422, f"field {name!r} is missing; send {name}: {model.model_fields[name].description}"
    if where[:1] == ("images",) and len(where) > 1:
        # An image may be written in two ways, so that each mistake is reported for both.
        return 422, f'image {int(where[1]) + 1} must be base64 text or {{"name": text, "data": base64 text}}'
    return 422, sentence(first)


def sentence(error: Mapping[str, Any]) -> str:
    """One line for one of pydantic's errors."""
    name = ".".join(str(part) for part in error["loc"])[:LONGEST_NAME] or "the body"
    kind, context = error["type"], error.get("ctx", {})
    if kind in _MUST_BE:
        return f"{name} must be {_MUST_BE[kind].format(**context)}"
    if kind == "too_short":
        return f"{name} is empty; send {context['min_length']} or more"
    if kind == "value_error":
        return str(context["error"])
    return f"{name}: {error['msg']}"
