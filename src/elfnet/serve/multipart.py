"""The parts of a multipart/form-data body, in memory: nothing that is sent is written to disk."""

import logging
from dataclasses import dataclass, field

from python_multipart import MultipartParser
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import parse_options_header

from elfnet.serve.refusal import Refusal

# It logs what it raises; the refusal says it already.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)

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
