"""What a prediction request asks for, whichever way it is written."""

import base64
import binascii
import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from python_multipart import MultipartParser
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import parse_options_header

from elfnet.serve.errors import LONGEST_NAME, Refusal, describe, too_large

MOST_PARTS = 1000
MOST_HEADER_BYTES = 8192


@dataclass
class FormPart:
    """One field of a form.

    Attributes:
        file_name: None for a plain field.
    """

    name: str = ""
    file_name: str | None = None
    content: bytearray = field(default_factory=bytearray)


IMAGE_FIELDS = ("image", "images", "file", "files")
DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)


@dataclass(frozen=True)
class Upload:
    """One image as it was sent."""

    name: str
    content: bytes


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A prediction request.

    Attributes:
        point: a name, a budget, or None for the point in force.
        top: how many classes to name.
        explain: run every exit as well.
    """

    uploads: tuple[Upload, ...]
    point: str | float | None = None
    top: int = 5
    explain: bool = False


class JsonImage(BaseModel):
    """An image with a name of its own."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: Annotated[str, Field(description="comes back in the answer")] = ""
    data: Annotated[str, Field(description="the file, base64 or a data URL")]


class PredictJson(BaseModel):
    """The JSON form of a prediction request."""

    model_config = ConfigDict(extra="forbid", strict=True)
    images: Annotated[list[str | JsonImage], Field(description="image files, base64 or data URLs", min_length=1)]
    operating_point: Annotated[str | None, Field(description="name of a point; default: the one in force")] = None
    budget: Annotated[
        float | None, Field(description="instead: the most accurate point within this mean cost", allow_inf_nan=False)
    ] = None
    top: Annotated[int, Field(description="classes to name, best first", ge=1)] = 5
    explain: Annotated[bool, Field(description="also the confidence at every exit; one image only")] = False


def read_asked(content_type: str, body: bytes, *, most_images: int) -> Asked:
    """Parse a body; 415, 400, 413 or 422 with one sentence if it cannot be."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        asked = _from_form(parse_multipart(content_type, body), most_images)
    elif kind == "application/json":
        asked = _from_json(body, most_images)
    else:
        raise Refusal(415, f"content type {kind[:80]!r} is not read; send multipart/form-data or application/json")
    if asked.explain and len(asked.uploads) != 1:
        raise Refusal(422, f"explain is for one image, {len(asked.uploads)} were sent; send one")
    return asked


def _from_json(body: bytes, most_images: int) -> Asked:
    # Before parsing: millions of small values, each wrong in its own way, would take gigabytes.
    most_commas = 1000 + 10 * most_images
    if body.count(b",") > most_commas:
        raise too_large(f"the JSON has more than {most_commas:,} commas; send at most {most_images} images")
    try:
        found = PredictJson.model_validate_json(body)
    except ValidationError as error:
        raise Refusal(*describe(error, PredictJson)) from None
    _require_few(len(found.images), most_images)
    uploads = []
    for number, image in enumerate(found.images, start=1):
        data, name = (image, "") if isinstance(image, str) else (image.data, image.name)
        try:
            content = base64.b64decode(_without_prefix(data), validate=True)
        except (binascii.Error, ValueError):
            raise Refusal(400, f"image {number} is not base64; encode the bytes of the file") from None
        uploads.append(Upload(_short(name) or f"image {number}", content))
    return Asked(
        uploads=tuple(uploads), point=_point(found.operating_point, found.budget), top=found.top, explain=found.explain
    )


def _from_form(parts: Sequence[FormPart], most_images: int) -> Asked:
    files = [part for part in parts if part.file_name is not None]
    _require_few(len(files), most_images)
    if not files:
        raise Refusal(400, "there is no image in the form; send one or more files in the field 'image'")
    for part in files:
        if part.name not in IMAGE_FIELDS:
            raise Refusal(400, f"field {_short(part.name)!r} is unknown; send images in the field 'image'")
    fields = {}
    for part in parts:
        if part.file_name is None:
            if part.name not in ("operating_point", "budget", "top", "explain"):
                raise Refusal(
                    400, f"field {_short(part.name)!r} is unknown; known are operating_point, budget, top, explain"
                )
            if part.name in fields:
                raise Refusal(400, f"field {part.name!r} was sent twice; send it once")
            fields[part.name] = bytes(part.content[:200]).decode(errors="replace").strip()
    uploads = tuple(
        Upload(_short(part.file_name or "") or f"image {number}", bytes(part.content))
        for number, part in enumerate(files, start=1)
    )
    budget = _number("budget", fields["budget"]) if fields.get("budget") else None
    top = _number("top", fields.get("top") or "5")
    if top != int(top) or top < 1:
        raise Refusal(422, f"top={fields['top']} must be a whole number of 1 or more")
    explain = fields.get("explain", "false").lower()
    if explain not in ("true", "false", "1", "0"):
        raise Refusal(422, f"explain={explain!r} must be true or false")
    point = _point(fields.get("operating_point") or None, budget)
    return Asked(uploads=uploads, point=point, top=int(top), explain=explain in ("true", "1"))


def _without_prefix(data: str) -> str:
    """The base64 of a data URL, as pages have it; other text as it is."""
    prefix = DATA_URL.match(data)
    return data[prefix.end() :] if prefix else data


def _point(name: str | None, budget: float | None) -> str | float | None:
    if name is not None and budget is not None:
        raise Refusal(422, "operating_point and budget both choose the point; send one of them")
    return budget if name is None else name


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise Refusal(422, f"{name}={text[:40]!r} is not a number")
    return number


def _require_few(images: int, most: int) -> None:
    if images > most:
        raise too_large(f"the request has {images} images, the limit is {most}; send several requests")


def _short(name: str) -> str:
    """A name from outside, fit for a line of text."""
    short = name[:LONGEST_NAME]
    return short if short.isprintable() else "".join(character for character in short if character.isprintable())


# It logs what it raises; the refusal says it already.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)


def parse_multipart(content_type: str, body: bytes) -> list[FormPart]:
    """All parts in their order; anything malformed is a 400."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise Refusal(400, "the multipart request names no boundary; let the HTTP library write the content type")
    parts = _Parts()
    try:
        parser = MultipartParser(boundary, parts.callbacks())  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except MultipartParseError as error:
        raise Refusal(400, f"the multipart body is malformed: {error}") from None
    if not parts.ended:
        raise Refusal(400, "the multipart body is truncated; send it again")
    return parts.found


class _Parts:
    """Collects what the parser reports; it gives pieces of one buffer with start and end."""

    def __init__(self) -> None:
        self.found: list[FormPart] = []
        self.ended = False
        self._header_name = bytearray()
        self._header_value = bytearray()

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._begin,
            "on_part_data": self._data,
            "on_header_field": self._name,
            "on_header_value": self._value,
            "on_header_end": self._header,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        if len(self.found) >= MOST_PARTS:
            raise Refusal(413, f"the form has more than {MOST_PARTS} parts; send less")
        self.found.append(FormPart())

    def _data(self, data: bytes, start: int, end: int) -> None:
        self.found[-1].content += memoryview(data)[start:end]

    def _name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]
        if len(self._header_value) > MOST_HEADER_BYTES:
            raise Refusal(400, "a part of the form has a header that is too long")

    def _header(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._header_value))
            part = self.found[-1]
            part.name = options.get(b"name", b"").decode(errors="replace")
            if b"filename" in options:
                part.file_name = options[b"filename"].decode(errors="replace")
        self._header_name.clear()
        self._header_value.clear()

    def _end(self) -> None:
        self.ended = True
