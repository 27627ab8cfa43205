"""Parsing prediction requests: JSON, multipart forms, and messages for bad ones."""

import base64
import random
import tracemalloc

import pytest
from starlette.testclient import TestClient

from elfnet.serve import requests
from elfnet.serve.errors import ApiError
from elfnet.serve.requests import Upload, parse_multipart, parse_request

CONTENT = bytes(range(256))
TEXT = base64.b64encode(CONTENT).decode()


@pytest.mark.parametrize(
    "prefix", ["", "data:image/png;base64,", "DATA:image/jpeg;name=a.jpg;Base64,", "data:;base64,"]
)
def test_images_are_base64_or_data_urls(prefix: str) -> None:
    body = f'{{"images": ["{prefix}{TEXT}", {{"name": "b", "data": "{prefix}{TEXT}"}}]}}'
    parsed = parse_request("application/json", body.encode(), max_images=2)
    assert parsed.uploads == (Upload("image 1", CONTENT), Upload("b", CONTENT))


@pytest.mark.parametrize("data", ["data:image/svg+xml,AAAA", f"see data:image/png;base64,{TEXT}", "data:AAAA"])
def test_other_urls_are_refused(data: str) -> None:
    with pytest.raises(ApiError, match="image 1 is not base64"):
        parse_request("application/json", f'{{"images": ["{data}"]}}'.encode(), max_images=2)


def form(*fields: tuple[str, str]) -> bytes:
    parts = ['--b\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\nabc\r\n']
    parts += [f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields]
    return "".join([*parts, "--b--\r\n"]).encode()


def test_a_repeated_field_is_refused() -> None:
    kind = "multipart/form-data; boundary=b"
    assert parse_request(kind, form(("budget", "0.5"), ("top", "2")), max_images=1).point == 0.5
    for name, first, second in (("budget", "0.5", "0.9"), ("explain", "true", "true"), ("top", "", "1")):
        with pytest.raises(ApiError, match=f"field '{name}' was sent twice") as refused:
            parse_request(kind, form((name, first), (name, second)), max_images=1)
        assert refused.value.status == 400


@pytest.mark.parametrize("value", ["1", "0", "True", "yes", ""])
def test_a_form_has_booleans_as_documented(value: str) -> None:
    kind = "multipart/form-data; boundary=b"
    assert parse_request(kind, form(("explain", "true")), max_images=1).explain
    with pytest.raises(ApiError, match=f"explain='{value}' must be true or false"):
        parse_request(kind, form(("explain", value)), max_images=1)


MANY = {"values": b'{"images": [' + b"5," * 100_000 + b"5]}", "fields": b"{" + b'"a":1,' * 100_000 + b'"b":1}'}


@pytest.mark.parametrize("what", MANY)
def test_many_invalid_values_take_no_memory(what: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ApiError, match="commas; send at most 32 images") as refused:
            parse_request("application/json", MANY[what], max_images=32)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert refused.value.status == 413


def test_a_long_boundary_is_refused(client: TestClient) -> None:
    for length, message in ((256, "the form has no image"), (257, "the multipart boundary has more than 256 bytes")):
        boundary = "b" * length
        response = client.post(
            "/v1/predict",
            content=f"--{boundary}--\r\n".encode(),
            headers={"content-type": f"multipart/form-data; boundary={boundary}"},
        )
        assert response.status_code == 400
        assert response.json()["error"].startswith(message)


@pytest.mark.parametrize("body", [b"x", b"--c\r\n", b"--b\r\nno header\r\n\r\n"])
def test_a_malformed_form_is_refused_without_a_log_line(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ApiError, match="the multipart body is malformed") as refused:
        parse_multipart("multipart/form-data; boundary=b", body)
    assert refused.value.status == 400
    assert caplog.records == []


KIND = "multipart/form-data; boundary=b"
FILE = b'--b\r\nContent-Disposition: form-data; name="image"; filename="a b;.png"\r\nContent-Type: image/png\r\n\r\n'
FIELD = b'\r\n--b\r\ncontent-disposition: form-data; name="top"\r\n\r\n2'
PLAIN = FILE + b"\x89PNG\r\n-\r\n--\0" + FIELD + b"\r\n--b--\r\n"
PIECES = (
    b"--b",
    b"\r\n--b\r\n",
    b"\r\n--b--",
    b"\r\n",
    b"\r",
    b"\n",
    b"-",
    b'"',
    b"\\",
    b";",
    b"\0",
    b"\xff",
    b": ",
    b"x" * 300,
)


def outcome(body: bytes, kind: str = KIND) -> object:
    try:
        return [(part.name, part.file_name, bytes(part.content)) for part in parse_multipart(kind, body)]
    except ApiError as error:
        return error.status, str(error)


def test_plain_forms_are_split_as_the_complete_parser_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)
    bodies = [PLAIN, PLAIN[:-2], PLAIN + b"more", FILE + b"\r\n--b--\r\n", b"--b--\r\n", b"--b\r\n--b--\r\n", b""]
    bodies.append((FILE + b"\r\n") * 1001 + b"--b--\r\n")
    for _ in range(2000):
        changed = bytearray(PLAIN)
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(changed))
            changed[place : place + rng.randint(0, 3)] = rng.choice(PIECES)
        bodies.append(bytes(changed))
    quick = [outcome(body) for body in bodies]
    split = [requests._split_plain(b"b", body) is not None for body in bodies]
    monkeypatch.setattr(requests, "_split_plain", lambda *_: None)
    assert quick == [outcome(body) for body in bodies]
    assert split[:3] == [True, True, False]
    assert 100 < sum(split) < 1900


AN_IMAGE = 'must be a base64 string or {"name": string, "data": base64 string}'
BUDGET = "budget must be a finite number, or a time per image as text, such as 5ms"
KNOWN = "choose from: images, operating_point, budget, top, explain"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"image": "AAAA"}', f"unknown field 'image'; did you mean 'images'? {KNOWN}"),
        ('{"images": ["AAAA"], "zzz": 1}', f"unknown field 'zzz'; {KNOWN}"),
        ("{}", "field 'images' is missing; send images: image files, as base64 or data URLs"),
        ('{"images": []}', "images is empty; send 1 or more"),
        ('{"images": "AAAA"}', "images must be a list"),
        ('{"images": ["AAAA", 5]}', f"image 2 {AN_IMAGE}"),
        ('{"images": [null]}', f"image 1 {AN_IMAGE}"),
        ('{"images": [{"data": 5}]}', f"image 1 {AN_IMAGE}"),
        ('{"images": [{"name": "a"}]}', f"image 1 {AN_IMAGE}"),
        ('{"images": [{"data": "AAAA", "more": 1}]}', f"image 1 {AN_IMAGE}"),
        ("[]", "the body must be a JSON object"),
        ('{"images": ["AAAA"], "operating_point": 5}', "operating_point must be a string"),
        (
            '{"images": ["AAAA"], "budget": "0.5"}',
            BUDGET,
        ),
        (
            '{"images": ["AAAA"], "budget": 1e999}',
            BUDGET,
        ),
        (
            '{"images": ["AAAA"], "budget": NaN}',
            BUDGET,
        ),
        ('{"images": ["AAAA"], "top": 0}', "top must be 1 or more"),
        ('{"images": ["AAAA"], "top": 1.5}', "top must be an integer"),
        ('{"images": ["AAAA"], "explain": "yes"}', "explain must be true or false"),
    ],
)
def test_the_message_says_what_to_send(body: str, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_request("application/json", body.encode(), max_images=32)
    assert (refused.value.status, str(refused.value)) == (422, message)


def test_long_names_are_shortened_in_messages() -> None:
    with pytest.raises(ApiError) as refused:
        parse_request("application/json", b'{"' + b"x" * 5000 + b'": 1}', max_images=32)
    assert len(str(refused.value)) < 300
