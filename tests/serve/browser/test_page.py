"""The web page in a real Chromium: drop an image, move the operating point, see the numbers change.

Screenshots are kept under tests/artefacts/page, which git ignores.
"""

import base64
import io
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from elfnet.inference.model import Model
from elfnet.serve.service import Sample

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
]

SHOTS = Path(__file__).parents[2] / "artefacts" / "page"
LIGHT = {"viewport": {"width": 1200, "height": 900}, "color_scheme": "light"}
DARK = {**LIGHT, "color_scheme": "dark"}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "color_scheme": "light"}


@pytest.fixture
def enlarged(digit_pixels: NDArray[np.uint8], png: Callable[[NDArray[np.uint8]], bytes]) -> list[bytes]:
    """Digits of 64 x 64 pixels, for the screenshots; the network sees 8 x 8 again."""
    return [png(np.kron(pixels, np.ones((8, 8), dtype=np.uint8))) for pixels in digit_pixels[:16]]


@pytest.fixture
def service(live: Callable[..., Any], enlarged: list[bytes]) -> Any:
    samples = [Sample(f"<img src=x onerror=alert(1)> {i}.png", file, "image/png") for i, file in enumerate(enlarged)]
    # A file above the limit is copied into the browser byte by byte, so the limit is low.
    return live(samples=tuple(samples), token="t", max_body_bytes=1_000_000)


@pytest.fixture
def open_page(service: Any) -> Iterator[Callable[[dict[str, Any]], Any]]:
    """Opens the page in a new context; an error in it or a request to another host fails the test."""
    problems: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])

        def open_with(context: dict[str, Any]) -> Any:
            page = browser.new_context(**context, reduced_motion="reduce").new_page()
            # The machine may be busy.
            page.set_default_timeout(120_000)
            page.on("pageerror", lambda error: problems.append(f"error: {error}"))
            page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
            page.on("dialog", lambda dialog: problems.append(f"a dialog: {dialog.message}"))
            page.on("request", lambda sent: problems.append(sent.url) if is_foreign(sent.url, service.url) else None)
            page.goto(service.url)
            page.locator("body[data-ready]").wait_for()
            return page

        yield open_with
        browser.close()
    # Chromium logs a response with status 422 as an error.
    assert [text for text in problems if "422 (Unprocessable" not in text] == []


def is_foreign(url: str, own: str) -> bool:
    return not url.startswith((own, "blob:" + own))


def drop(page: Any, name: str, content: bytes) -> None:
    """Drop a file onto the page, with the events of a real drag."""
    transfer = page.evaluate_handle(
        """([name, data]) => {
            const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
            const transfer = new DataTransfer();
            transfer.items.add(new File([bytes], name, { type: "image/png" }));
            return transfer;
        }""",
        [name, base64.b64encode(content).decode()],
    )
    for event in ("dragenter", "dragover", "drop"):
        page.dispatch_event("#drop", event, {"dataTransfer": transfer})


def screenshot(page: Any, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def result_of(page: Any) -> tuple[str, int, str]:
    """Return (label, exit, cost) as shown on the page."""
    text = page.locator("#result").inner_text()
    found = re.fullmatch(r"(.*), \d+ % sure\. Exit (\d) of 3, cost (\d\.\d+).*\.", text)
    assert found, text
    return found[1], int(found[2]), found[3]


def expected(model: Model, file: bytes, point: str) -> tuple[str | None, int, str]:
    (answer,) = model.predict(Image.open(io.BytesIO(file)), operating_point=point)
    return answer.label, answer.exit, f"{answer.cost:.2f}"


def test_drop_an_image_and_move_the_point(
    open_page: Callable[[dict[str, Any]], Any], enlarged: list[bytes], model: Model
) -> None:
    page = open_page(LIGHT)
    drop(page, "<b>markup</b>.png", enlarged[1])
    page.locator(".stage.left").wait_for()
    assert page.locator("#drop-hint").inner_text() == "<b>markup</b>.png"
    assert result_of(page) == expected(model, enlarged[1], "full")
    slider = page.get_by_role("slider", name="Operating point")
    slider.focus()
    seen = set()
    for _ in range(int(slider.get_attribute("aria-valuemax") or 0)):
        point = str(slider.get_attribute("aria-valuetext")).partition(":")[0]
        assert page.locator("#dial-text strong").inner_text().startswith(f"{point}, ")
        assert result_of(page) == expected(model, enlarged[1], point)
        taken = result_of(page)[1]
        assert page.locator(".stage.left b").inner_text() == f"Exit {taken}"
        assert page.locator(".gallery > div").nth(taken - 1).locator("button").count() == 1
        seen.add(taken)
        page.keyboard.press("ArrowLeft")
    assert len(seen) > 1
    assert slider.get_attribute("aria-valuenow") == "1"
    page.keyboard.press("End")
    assert slider.get_attribute("aria-valuenow") == slider.get_attribute("aria-valuemax")
    screenshot(page, "light")
    page.get_by_role("button", name="Reset").click()
    assert "the service" in page.locator("#dial-text strong").inner_text()


def test_a_dragged_point_is_sent_with_the_next_image(open_page: Callable[[dict[str, Any]], Any]) -> None:
    page = open_page(DARK)
    box = page.locator("#curve svg").bounding_box()
    handle = page.locator(".handle").bounding_box()
    page.mouse.move(handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 5, box["y"] + 50, steps=4)
    page.mouse.up()
    slider = page.get_by_role("slider")
    assert slider.get_attribute("aria-valuenow") == "1"
    cheapest = str(slider.get_attribute("aria-valuetext")).partition(":")[0]
    with page.expect_response("**/v1/predict") as answered:
        page.locator("#samples button").nth(3).click()
    assert answered.value.json()["operating_point"] == cheapest
    for i in range(16):
        page.locator("#samples button").nth(i).click()
        page.locator("#gallery button").nth(i + 1).wait_for()
    screenshot(page, "dark")
    page.get_by_role("button", name="Clear").click()
    assert page.locator("#gallery button").count() == 0


def test_the_page_fits_a_phone(open_page: Callable[[dict[str, Any]], Any], enlarged: list[bytes]) -> None:
    page = open_page(PHONE)
    drop(page, "n" * 200 + ".png", enlarged[2])
    page.locator(".stage.left").wait_for()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    page.locator("#curve svg").scroll_into_view_if_needed()
    box = page.locator("#curve svg").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] * 0.2, box["y"] + box["height"] / 2)
    assert page.locator("#dial-text strong").inner_text().endswith(", for this page")
    screenshot(page, "phone")


def test_an_error_is_shown_and_the_page_continues(
    open_page: Callable[[dict[str, Any]], Any], enlarged: list[bytes]
) -> None:
    page = open_page(LIGHT)
    drop(page, "notes.txt", b"this is not an image")
    alert = page.get_by_role("alert").filter(has_text="notes.txt is not an image")
    alert.wait_for()
    drop(page, "good.png", enlarged[0])
    page.locator(".stage.left").wait_for()
    assert page.get_by_role("alert").inner_text() == ""


def test_a_file_over_the_limit_is_named_and_not_sent(
    open_page: Callable[[dict[str, Any]], Any], service: Any, enlarged: list[bytes]
) -> None:
    page = open_page(LIGHT)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if "predict" in request.url else None)
    limit = service.service.settings.max_body_bytes
    drop(page, "<i>photo</i>.jpg", bytes(limit + 1_234_567))
    page.get_by_role("alert").filter(has_text="<i>photo</i>.jpg has 2.24 MB, the limit is 1 MB").wait_for()
    assert sent == []
    drop(page, "good.png", enlarged[0])
    page.locator(".stage.left").wait_for()
    assert page.get_by_role("alert").inner_text() == ""


def test_the_keyboard_reaches_everything(open_page: Callable[[dict[str, Any]], Any]) -> None:
    page = open_page(LIGHT)
    reached = []
    for _ in range(24):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("() => document.activeElement.id || document.activeElement.getAttribute('role')"))
    assert {"file", "slider"} <= set(reached)
    page.locator("#samples button").first.focus()
    page.keyboard.press("Enter")
    page.locator(".stage.left").wait_for()


def test_traffic_is_live(open_page: Callable[[dict[str, Any]], Any], service: Any) -> None:
    page = open_page(LIGHT)
    page.locator("#samples button").first.click()
    page.locator(".share", has_text="100 %, expected 100 %").first.wait_for()
    assert page.eval_on_selector_all(".share", "rows => rows.every(row => row.scrollWidth <= row.clientWidth)")
    service.service.model.set_operating_point("s=0.4")
    page.locator("#traffic", has_text="s=0.4").wait_for()
    assert page.locator("#dial-text strong").inner_text().startswith("s=0.4, the service")
