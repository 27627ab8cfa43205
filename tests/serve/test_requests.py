"""The two ways to write a request."""

import base64
import tracemalloc

import pytest

from elfnet.serve.errors import Refusal
from elfnet.serve.requests import Upload, parse_multipart, read_asked

CONTENT = bytes(range(256))
TEXT = base64.b64encode(CONTENT).decode()


@pytest.mark.parametrize(
    "prefix", ["", "data:image/png;base64,", "DATA:image/jpeg;name=a.jpg;Base64,", "data:;base64,"]
)
def test_base64_comes_bare_or_as_a_data_url(prefix: str) -> None:
    body = f'{{"images": ["{prefix}{TEXT}", {{"name": "b", "data": "{prefix}{TEXT}"}}]}}'
    asked = read_asked("application/json", body.encode(), most_images=2)
    assert asked.uploads == (Upload("image 1", CONTENT), Upload("b", CONTENT))


@pytest.mark.parametrize("data", ["data:image/svg+xml,AAAA", f"see data:image/png;base64,{TEXT}", "data:AAAA"])
def test_other_urls_are_not_base64(data: str) -> None:
    with pytest.raises(Refusal, match="image 1 is not base64"):
        read_asked("application/json", f'{{"images": ["{data}"]}}'.encode(), most_images=2)


def form(*fields: tuple[str, str]) -> bytes:
    parts = ['--b\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\nabc\r\n']
    parts += [f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields]
    return "".join([*parts, "--b--\r\n"]).encode()


def test_a_field_is_sent_once() -> None:
    kind = "multipart/form-data; boundary=b"
    assert read_asked(kind, form(("budget", "0.5"), ("top", "2")), most_images=1).point == 0.5
    for name, first, second in (("budget", "0.5", "0.9"), ("explain", "true", "true"), ("top", "", "1")):
        with pytest.raises(Refusal, match=f"field '{name}' was sent twice") as refused:
            read_asked(kind, form((name, first), (name, second)), most_images=1)
        assert refused.value.status == 400


MANY = {"values": b'{"images": [' + b"5," * 100_000 + b"5]}", "fields": b"{" + b'"a":1,' * 100_000 + b'"b":1}'}


@pytest.mark.parametrize("what", MANY)
def test_millions_of_wrong_values_take_no_memory(what: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Refusal, match="commas; send at most 32 images") as refused:
            read_asked("application/json", MANY[what], most_images=32)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert refused.value.status == 413


@pytest.mark.parametrize("body", [b"x", b"--c\r\n", b"--b\r\nno header\r\n\r\n"])
def test_the_parser_logs_nothing(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Refusal, match="the multipart body is malformed") as refused:
        parse_multipart("multipart/form-data; boundary=b", body)
    assert refused.value.status == 400
    assert caplog.records == []


AN_IMAGE = 'must be base64 text or {"name": text, "data": base64 text}'
KNOWN = "choose from: images, operating_point, budget, top, explain"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ('{"image": "AAAA"}', f"unknown field 'image'; did you mean 'images'? {KNOWN}"),
        ('{"images": ["AAAA"], "zzz": 1}', f"unknown field 'zzz'; {KNOWN}"),
        ("{}", "field 'images' is missing; send images: image files, base64 or data URLs"),
        ('{"images": []}', "images is empty; send 1 or more"),
        ('{"images": "AAAA"}', "images must be a list"),
        ('{"images": ["AAAA", 5]}', f"image 2 {AN_IMAGE}"),
        ('{"images": [null]}', f"image 1 {AN_IMAGE}"),
        ('{"images": [{"data": 5}]}', f"image 1 {AN_IMAGE}"),
        ('{"images": [{"name": "a"}]}', f"image 1 {AN_IMAGE}"),
        ('{"images": [{"data": "AAAA", "more": 1}]}', f"image 1 {AN_IMAGE}"),
        ("[]", "the body must be a JSON object"),
        ('{"images": ["AAAA"], "operating_point": 5}', "operating_point must be text"),
        ('{"images": ["AAAA"], "budget": "0.5"}', "budget must be a number"),
        ('{"images": ["AAAA"], "budget": 1e999}', "budget must be a finite number"),
        ('{"images": ["AAAA"], "budget": NaN}', "budget must be a finite number"),
        ('{"images": ["AAAA"], "top": 0}', "top must be 1 or more"),
        ('{"images": ["AAAA"], "top": 1.5}', "top must be a whole number"),
        ('{"images": ["AAAA"], "explain": "yes"}', "explain must be true or false"),
    ],
)
def test_one_sentence_says_what_to_send(body: str, sentence: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_asked("application/json", body.encode(), most_images=32)
    assert (refused.value.status, str(refused.value)) == (422, sentence)


def test_names_from_outside_are_kept_short() -> None:
    with pytest.raises(Refusal) as refused:
        read_asked("application/json", b'{"' + b"x" * 5000 + b'": 1}', most_images=32)
    assert len(str(refused.value)) < 300
