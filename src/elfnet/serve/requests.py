"""Parsing prediction requests: multipart forms and JSON bodies."""

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
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from elfnet.calibrate.measured_cost import parse_budget
from elfnet.errors import RequestError
from elfnet.serve.errors import MAX_NAME, ApiError, describe_validation_error, too_large

# It logs every error that it raises; the response reports the error already.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)

IMAGE_FIELDS = ("image", "images", "file", "files")
OTHER_FIELDS = ("operating_point", "budget", "top", "explain")
DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
MAX_PARTS = 1000
MAX_BOUNDARY_BYTES = 256
MAX_PART_HEADER_BYTES = 8192
_PLAIN_BOUNDARY = re.compile(r"multipart/form-data; ?boundary=([0-9A-Za-z_-]+)")
_PLAIN_PART_HEADER = re.compile(
    rb'\r\nContent-Disposition: form-data; name="([^"\\\r\n]{0,200})"(?:; filename="([^"\\\r\n]{0,200})")?'
    rb"(?:\r\nContent-Type: [^\r\n]{1,200})?\r\n\r\n",
    re.IGNORECASE,
)
"""What browsers, curl, httpx and requests send; anything else is left to the complete parser."""


@dataclass(frozen=True)
class Upload:
    """One image file of a request.

    Attributes:
        name: the file name; repeated in the response.
        content: the bytes of the file.
    """

    name: str
    content: bytes


@dataclass(frozen=True, kw_only=True)
class PredictRequest:
    """A parsed prediction request.

    Attributes:
        uploads: the image files, at least one.
        point: name of an operating point, a budget (in milliseconds: text such as `5ms`), or None for the service's
            point.
        top: how many of the best classes to return per image.
        explain: also return what every exit predicts.
    """

    uploads: tuple[Upload, ...]
    point: str | float | None = None
    top: int = 5
    explain: bool = False


Budget = Annotated[float, Field(allow_inf_nan=False)] | Annotated[str, Field(pattern=r"^[0-9.eE+-]{1,20} ?ms$")]
BUDGET_DESCRIPTION = (
    "instead of a name: use the most accurate point within this mean cost, or within a mean time per image, such as 5ms"
)


class JsonImage(BaseModel):
    """An image with a name."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: Annotated[str, Field(description="repeated in the response")] = ""
    data: Annotated[str, Field(description="the image file, as base64 or a data URL")]


class PredictBody(BaseModel):
    """The JSON body of a prediction request."""

    model_config = ConfigDict(extra="forbid", strict=True)
    images: Annotated[list[str | JsonImage], Field(description="image files, as base64 or data URLs", min_length=1)]
    operating_point: Annotated[
        str | None, Field(description="name of an operating point; default: the service's operating point")
    ] = None
    budget: Annotated[Budget | None, Field(description=BUDGET_DESCRIPTION)] = None
    top: Annotated[int, Field(description="how many of the best classes to return per image", ge=1)] = 5
    explain: Annotated[bool, Field(description="also return what every exit predicts; for one image only")] = False


def parse_request(content_type: str, body: bytes, *, max_images: int) -> PredictRequest:
    """Parse the body of a prediction request.

    Raises:
        ApiError: 400, 413, 415 or 422.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == "multipart/form-data":
        parsed = _parse_form(parse_multipart(content_type, body), max_images)
    elif media_type == "application/json":
        parsed = _parse_json(body, max_images)
    else:
        raise ApiError(
            415,
            f"content type {media_type[:80]!r} is not supported; send multipart/form-data or application/json",
        )
    if parsed.explain and len(parsed.uploads) != 1:
        raise ApiError(422, f"explain takes one image, the request has {len(parsed.uploads)}; send one image")
    return parsed


def _parse_json(body: bytes, max_images: int) -> PredictRequest:
    # Checked before parsing: pydantic would need gigabytes to report millions of invalid values.
    max_commas = 1000 + 10 * max_images
    if body.count(b",") > max_commas:
        raise too_large(f"the JSON body has more than {max_commas:,} commas; send at most {max_images} images")
    try:
        parsed = PredictBody.model_validate_json(body)
    except ValidationError as error:
        raise ApiError(*describe_validation_error(error, PredictBody)) from None
    _check_image_count(len(parsed.images), max_images)
    uploads = []
    for number, image in enumerate(parsed.images, start=1):
        data, name = (image, "") if isinstance(image, str) else (image.data, image.name)
        try:
            content = base64.b64decode(_strip_data_url(data), validate=True)
        except (binascii.Error, ValueError):
            raise ApiError(400, f"image {number} is not base64; encode the bytes of the file") from None
        uploads.append(Upload(_clean_name(name) or f"image {number}", content))
    return PredictRequest(
        uploads=tuple(uploads),
        point=_choose_point(parsed.operating_point, parsed.budget),
        top=parsed.top,
        explain=parsed.explain,
    )


def _parse_form(parts: "Sequence[FormPart]", max_images: int) -> PredictRequest:
    files = [part for part in parts if part.file_name is not None]
    _check_image_count(len(files), max_images)
    if not files:
        raise ApiError(400, "the form has no image; send one or more files in the field 'image'")
    for part in files:
        if part.name not in IMAGE_FIELDS:
            raise ApiError(400, f"unknown file field {_clean_name(part.name)!r}; send images in the field 'image'")
    fields = {}
    for part in parts:
        if part.file_name is None:
            if part.name not in OTHER_FIELDS:
                raise ApiError(
                    400, f"unknown field {_clean_name(part.name)!r}; choose from: image, {', '.join(OTHER_FIELDS)}"
                )
            if part.name in fields:
                raise ApiError(400, f"field {part.name!r} was sent twice; send it once")
            fields[part.name] = bytes(part.content[:200]).decode(errors="replace").strip()
    uploads = tuple(
        Upload(_clean_name(part.file_name or "") or f"image {number}", bytes(part.content))
        for number, part in enumerate(files, start=1)
    )
    budget = _parse_budget(fields["budget"]) if fields.get("budget") else None
    top = _parse_number("top", fields.get("top") or "5")
    if top != int(top) or top < 1:
        raise ApiError(422, f"top={fields['top']} must be an integer of 1 or more")
    explain = fields.get("explain", "false")
    if explain not in ("true", "false"):
        raise ApiError(422, f"explain={explain!r} must be true or false")
    point = _choose_point(fields.get("operating_point") or None, budget)
    return PredictRequest(uploads=uploads, point=point, top=int(top), explain=explain == "true")


def _strip_data_url(data: str) -> str:
    """Return the base64 part of a data URL; other text is returned unchanged."""
    prefix = DATA_URL.match(data)
    return data[prefix.end() :] if prefix else data


def _choose_point(name: str | None, budget: float | str | None) -> str | float | None:
    if name is not None and budget is not None:
        raise ApiError(422, "operating_point and budget both choose the point; send one of them")
    return budget if name is None else name


def _parse_budget(text: str) -> float | str:
    try:
        budget = parse_budget(text[:40])
    except RequestError as error:
        raise ApiError(422, str(error)) from None
    return budget if isinstance(budget, float) else text


def _parse_number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ApiError(422, f"{name}={text[:40]!r} is not a number")
    return number


def _check_image_count(images: int, max_images: int) -> None:
    if images > max_images:
        raise too_large(f"the request has {images} images, the limit is {max_images}; send several requests")


def _clean_name(name: str) -> str:
    """Shorten a name from a request and remove what cannot be printed."""
    short = name[:MAX_NAME]
    return short if short.isprintable() else "".join(character for character in short if character.isprintable())


@dataclass
class FormPart:
    """One part of a multipart form.

    Attributes:
        file_name: None if the part is not a file.
    """

    name: str = ""
    file_name: str | None = None
    content: bytes | bytearray = field(default_factory=bytearray)


def parse_multipart(content_type: str, body: bytes) -> list[FormPart]:
    """Parse a multipart/form-data body in memory; nothing is written to disk.

    Raises:
        ApiError: 400 if the body is malformed, 413 if it has too many parts.
    """
    plain = _PLAIN_BOUNDARY.fullmatch(content_type)
    if plain is not None and (parts := _split_plain(plain[1].encode(), body)) is not None:
        return parts
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise ApiError(400, "the multipart content type has no boundary; let the HTTP library set the content type")
    if len(boundary) > MAX_BOUNDARY_BYTES:
        raise ApiError(400, f"the multipart boundary has more than {MAX_BOUNDARY_BYTES} bytes; use a shorter one")
    collector = _PartCollector()
    try:
        parser = MultipartParser(boundary, collector.callbacks())  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise ApiError(400, f"the multipart body is malformed: {error}") from None
    if not collector.complete:
        raise ApiError(400, "the multipart body is truncated; send it again")
    return collector.parts


def _split_plain(boundary: bytes, body: bytes) -> list[FormPart] | None:
    """Split a body of the plain form; None if it has any other form, or a mistake.

    For a small image the complete parser, with a callback for everything that it finds, takes several times as long.
    """
    delimiter, end = b"\r\n--" + boundary, len(body) - (2 if body.endswith(b"\r\n") else 0)
    if len(boundary) > MAX_BOUNDARY_BYTES or body.count(delimiter) > MAX_PARTS:
        return None
    if not body.startswith(delimiter[2:] + b"\r\n") or not body.endswith(delimiter + b"--", 0, end):
        return None
    parts: list[FormPart] = []
    start = len(delimiter) - 2
    while start != end - 2:
        stop = body.find(delimiter, start)
        header = _PLAIN_PART_HEADER.match(body, start, stop)
        if header is None:
            return None
        name, file_name = header[1].decode(errors="replace"), header[2]
        file_name = None if file_name is None else file_name.decode(errors="replace")
        parts.append(FormPart(name, file_name, body[header.end() : stop]))
        start = stop + len(delimiter)
    return parts


class _PartCollector:
    """Builds the parts from the parser's callbacks, which get a buffer with start and end."""

    def __init__(self) -> None:
        self.parts: list[FormPart] = []
        self.complete = False
        self._header_name = bytearray()
        self._header_value = bytearray()

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._on_part_begin,
            "on_part_data": self._on_part_data,
            "on_header_field": self._on_header_field,
            "on_header_value": self._on_header_value,
            "on_header_end": self._on_header_end,
            "on_end": self._on_end,
        }

    def _on_part_begin(self) -> None:
        if len(self.parts) >= MAX_PARTS:
            raise too_large(f"the form has more than {MAX_PARTS} parts; send fewer")
        self.parts.append(FormPart())

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        content = self.parts[-1].content
        assert isinstance(content, bytearray)
        content += memoryview(data)[start:end]

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]
        if len(self._header_value) > MAX_PART_HEADER_BYTES:
            raise ApiError(400, f"a header of a form part has more than {MAX_PART_HEADER_BYTES:,} bytes; send less")

    def _on_header_end(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._header_value))
            part = self.parts[-1]
            part.name = options.get(b"name", b"").decode(errors="replace")
            if b"filename" in options:
                part.file_name = options[b"filename"].decode(errors="replace")
        self._header_name.clear()
        self._header_value.clear()

    def _on_end(self) -> None:
        self.complete = True
