"""Wrong JSON is explained in words that say what to send."""

import pytest

from elfnet.serve.errors import Refusal
from elfnet.serve.requests import read_asked

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
