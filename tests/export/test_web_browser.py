"""The folder for browsers in a real Chromium: the answers of the Python engine, the dial, the battery, bad files.

Screenshots are kept under tests/artefacts/web, which git ignores.
"""

# Shapes: N images, H height, W width, K channels

import base64
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from elfnet.calibrate.run import calibrate_run
from elfnet.data.build import load_splits
from elfnet.data.types import LabelledImages
from elfnet.export.run import export_run
from elfnet.export.web import read_web_runtime, write_site
from elfnet.inference.bundle.one_file import open_one_file, sealed
from elfnet.inference.bundle.protobuf import MODEL_GRAPH, encode, walk
from elfnet.inference.model import load
from elfnet.inference.preprocess import Preprocess
from elfnet.recipe.load import load_recipe
from elfnet.train.run import train_recipe

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

PACKAGE = Path(__file__).parents[2] / "examples" / "browser" / "node_modules" / "onnxruntime-web"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SHOTS = Path(__file__).parents[1] / "artefacts" / "web"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
    pytest.mark.skipif(
        not PACKAGE.is_dir(), reason="no onnxruntime-web: run 'npm ci --ignore-scripts' in examples/browser"
    ),
]
LIGHT = {"viewport": {"width": 1200, "height": 900}, "color_scheme": "light"}
DARK = {**LIGHT, "color_scheme": "dark"}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "color_scheme": "light"}
NO_BATTERY = "delete Navigator.prototype.getBattery;"
LOW_BATTERY = """
  const battery = new EventTarget();
  Object.assign(battery, { level: 0.1, charging: false });
  window.battery = battery;
  Navigator.prototype.getBattery = () => Promise.resolve(battery);
"""


@pytest.fixture(scope="module")
def bundle(tiny_settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small classifier of digits, trained for ten epochs."""
    place = tmp_path_factory.mktemp("runs") / "digits"
    # float32: with bfloat16 the network depends on the processor, and so does the number of answers near a threshold.
    settings = {**tiny_settings, "data.largest": 80, "train.epochs": 10, "train.drw_start": 8}
    settings["train.precision"] = "float32"
    run = train_recipe(load_recipe("digits/elf-ce-drw", settings), place)
    calibrate_run(run)
    return export_run(run, measure_memory=None).path


@pytest.fixture(scope="module")
def root(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the server serves: the good folder, and others with bad files."""
    root = tmp_path_factory.mktemp("served")
    opened = open_one_file(bundle)
    write_site(opened, root / "good", read_web_runtime(PACKAGE), "digits")
    good = (root / "good" / "optimised.onnx").read_bytes()
    graph = _graph((root / "good" / "model.onnx").read_bytes())
    other_size = opened.manifest.preprocessing.model_copy(update={"height": 31})
    bad = {
        "no-metadata": graph,
        "changed": good[:-1] + bytes([good[-1] ^ 1]),
        "not-onnx": b"<html>not found</html>",
        "newer": sealed(graph, opened.manifest.model_copy(update={"format_version": 2})),
        "other-shape": sealed(graph, opened.manifest.model_copy(update={"preprocessing": other_size})),
    }
    for name, content in bad.items():
        shutil.copytree(root / "good", root / name, copy_function=os.link)
        (root / name / "optimised.onnx").unlink()
        (root / name / "optimised.onnx").write_bytes(content)
    return root


def _graph(content: bytes) -> bytes:
    """The file without its metadata."""
    parts = walk(content, where="the file")
    return parts.header + encode(MODEL_GRAPH, bytes(parts.graph))


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[str]:
    """The server that everybody has: `python -m http.server`."""
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().partition(" port ")[2].split()[0]
        yield f"http://localhost:{port}"
        process.terminate()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        args = ["--no-sandbox", "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
        browser = driver.chromium.launch(executable_path=BROWSER, args=args)
        yield browser
        browser.close()


@pytest.fixture
def open_page(server: str, chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens the page in a new context; an error in it or a request to another place fails the test."""
    problems: list[str] = []
    contexts = []

    def open_with(context: dict[str, Any], folder: str = "good", script: str = "", ready: str = "true") -> Any:
        contexts.append(chromium.new_context(**context, reduced_motion="reduce"))
        page = contexts[-1].new_page()
        # The machine may be busy.
        page.set_default_timeout(120_000)
        page.add_init_script(script)
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("request", lambda sent: problems.append(sent.url) if is_foreign(sent.url, server) else None)
        page.goto(f"{server}/{folder}/")
        page.locator(f"body[data-ready='{ready}']").wait_for()
        return page

    yield open_with
    for context in contexts:
        context.close()
    assert problems == []


def is_foreign(url: str, own: str) -> bool:
    return not url.startswith((own, "blob:" + own))


@pytest.fixture(scope="module")
def digits() -> NDArray[np.uint8]:
    """200 digits as the network reads them."""
    splits = load_splits(load_recipe("digits/elf-ce-drw").data)
    parts = [part for part in (splits.test, splits.train) if isinstance(part, LabelledImages)]
    return np.concatenate([part.images_NHWC for part in parts])[:200]


def test_pixels_get_the_answers_of_the_python_engine(
    open_page: Callable[..., Any], bundle: Path, digits: NDArray[np.uint8]
) -> None:
    model = load(bundle, threads=1)
    page = open_page(LIGHT)
    by_cost = sorted(model.operating_points.values(), key=lambda point: point.expected.mean_cost)
    exits = set()
    for point in (by_cost[0].name, by_cost[len(by_cost) // 3].name, by_cost[len(by_cost) // 2].name, "full"):
        found = page.evaluate(
            """async ([data, point]) => {
                const { openModel } = await import("./model.js");
                const model = await (window.opened ??= openModel());
                const pixels = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
                const answers = await model.classify(pixels, model.inputsOf(point));
                return answers.map(({ probabilities, ...answer }) => answer);
            }""",
            [base64.b64encode(digits.tobytes()).decode(), point],
        )
        expected = model.classify(digits, operating_point=point)
        assert len(found) == 200
        assert [one["classIndex"] for one in found] == expected.prediction_N.tolist()
        assert [one["exit"] - 1 for one in found] == expected.exit_N.tolist()
        assert [one["confidence"] for one in found] == pytest.approx(expected.confidence_N.tolist(), abs=1e-4)
        assert [one["cost"] for one in found] == pytest.approx(expected.cost_N.tolist(), abs=1e-5)
        exits |= set(expected.exit_N.tolist())
    assert len(exits) > 1


def test_files_that_need_resizing_get_the_answers_of_python(
    open_page: Callable[..., Any], bundle: Path, digits: NDArray[np.uint8]
) -> None:
    """Digits enlarged to photos of many sizes, every other one a JPEG."""
    model = load(bundle, threads=1)
    rng = np.random.default_rng(0)
    files = []
    for i, pixels in enumerate(digits):
        width, height = rng.integers(20, 500, 2).tolist()
        files.append(
            encoded(Image.fromarray(pixels[:, :, 0]).resize((width, height)).convert("RGB"), "JPEG" if i % 2 else "PNG")
        )
    page = open_page(LIGHT)
    found = page.evaluate(
        """async ([files, point]) => {
            const { openModel } = await import("./model.js");
            const { readFile } = await import("./read_image.js");
            const { networkPixels } = await import("./resize.js");
            const model = await openModel();
            const answers = [];
            for (const data of files) {
                const file = new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], "digit");
                const pixels = networkPixels(await readFile(file), model.preprocessing);
                const [{ classIndex, exit }] = await model.classify(pixels, model.inputsOf(point));
                answers.push([classIndex, exit]);
            }
            return answers;
        }""",
        [[base64.b64encode(file).decode() for file in files], "accurate"],
    )
    expected = [[one.class_index, one.exit] for one in model.predict(files, operating_point="accurate")]
    same = sum(ours == theirs for ours, theirs in zip(expected, found, strict=True))
    assert same >= 0.99 * len(files)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_resizing_is_that_of_python(open_page: Callable[..., Any], mode: str) -> None:
    """Enlarged, reduced, reduced much, cropped on either side: the same bytes, or 1 of 255 away."""
    rng = np.random.default_rng(1)
    page = open_page(LIGHT)
    for width, height, share, rule in (
        (32, 32, 1.0, "centre-bilinear"),
        (20, 17, 1.0, "centre-bilinear"),
        (61, 40, 1.0, "squash-bilinear"),
        (300, 200, 0.875, "centre-bilinear"),
        (300, 200, 0.875, "squash-bilinear"),
        (333, 999, 1.0, "centre-bilinear"),
    ):
        image = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        squash = rule == "squash-bilinear"
        preprocess = Preprocess(
            mode=mode, height=32, width=32, mean=(0.0,), std=(1.0,), crop_share=share, squash=squash
        )
        found = page.evaluate(
            """async ([data, preprocessing]) => {
                const { readFile } = await import("./read_image.js");
                const { networkPixels } = await import("./resize.js");
                const file = new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], "noise.png");
                return [...networkPixels(await readFile(file), preprocessing)];
            }""",
            [
                base64.b64encode(encoded(image, "PNG")).decode(),
                {"mode": mode, "height": 32, "width": 32, "crop_share": share, "resize": rule},
            ],
        )
        difference = np.abs(np.array(found) - preprocess.pixels(image).ravel().astype(int))
        assert difference.max() <= 1
        assert (difference == 0).mean() > 0.99, (width, height)


def encoded(image: Image.Image, kind: str) -> bytes:
    file = io.BytesIO()
    image.save(file, format=kind, **({"quality": 95} if kind == "JPEG" else {}))
    return file.getvalue()


def choose(page: Any, files: dict[str, bytes]) -> None:
    """Choose files as in the file dialogue."""
    page.evaluate(
        """(files) => {
            const transfer = new DataTransfer();
            for (const [name, data] of Object.entries(files)) {
                transfer.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name));
            }
            const input = document.getElementById("file");
            input.files = transfer.files;
            input.dispatchEvent(new Event("change"));
        }""",
        {name: base64.b64encode(content).decode() for name, content in files.items()},
    )


def give(page: Any, *pixels: NDArray[np.uint8]) -> None:
    """Choose digits as files, and wait until they are counted."""
    before = int(page.locator("#figures dd").first.inner_text())
    choose(page, {f"{i}.png": encoded(Image.fromarray(one[:, :, 0]), "PNG") for i, one in enumerate(pixels)})
    page.wait_for_function(
        "(images) => document.querySelector('#figures dd').textContent === String(images)", arg=before + len(pixels)
    )


def dialled(page: Any) -> int:
    return int(page.locator(".handle").get_attribute("aria-valuenow"))


@pytest.mark.parametrize(("name", "context"), [("light", LIGHT), ("dark", DARK), ("phone", PHONE)])
def test_an_image_and_the_dial(
    open_page: Callable[..., Any], digits: NDArray[np.uint8], name: str, context: dict[str, Any]
) -> None:
    page = open_page(context)
    give(page, *digits[:12])
    assert "Exit " in page.locator("#result").inner_text()
    assert " ms" in page.locator("#figures").inner_text()
    assert page.locator(".stage.left").count() == 1
    assert page.locator("#classes li").count() == 5
    SHOTS.mkdir(parents=True, exist_ok=True)
    (SHOTS / f"{name}.png").write_bytes(page.screenshot(full_page=True))
    # The page must not scroll sideways.
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.locator(".handle").press("Home")
    assert dialled(page) == 1
    assert not page.locator("#follow").is_checked()
    page.wait_for_function("() => document.querySelector('.stage.left b').textContent === 'Exit 1'")
    # Moving the dial shows the same image again, and counts no image.
    assert page.locator("#figures dd").first.inner_text() == "12"
    page.locator("#clear").click()
    assert page.locator("#figures dd").first.inner_text() == "0"


def test_the_dial_follows_the_battery(open_page: Callable[..., Any]) -> None:
    page = open_page(LIGHT, script=LOW_BATTERY)
    assert page.locator("#follow").is_checked()
    assert page.locator("#battery-text").inner_text() == "10 %"
    assert dialled(page) == 1
    page.evaluate("battery.level = 0.9; battery.dispatchEvent(new Event('levelchange'))")
    assert dialled(page) == int(page.locator(".handle").get_attribute("aria-valuemax"))
    page.locator(".handle").press("Home")
    page.evaluate("battery.level = 0.85; battery.dispatchEvent(new Event('levelchange'))")
    assert dialled(page) == 1


def test_a_slider_takes_the_place_of_the_battery(open_page: Callable[..., Any]) -> None:
    page = open_page(PHONE, script=NO_BATTERY)
    assert "This browser does not give pages the battery level" in page.locator("#battery-note").inner_text()
    assert not page.locator("#follow").is_checked()
    slider = page.locator("#battery-slider")
    slider.focus()
    slider.press("Home")
    assert page.locator("#battery-text").inner_text() == "0 %"
    assert page.locator("#follow").is_checked()
    assert dialled(page) == 1


def test_the_camera(open_page: Callable[..., Any]) -> None:
    page = open_page(LIGHT)
    page.locator("#camera").click()
    page.wait_for_function("() => Number(document.querySelector('#figures dd').textContent) >= 3")
    page.locator("#camera").click()
    assert page.locator("#camera").inner_text() == "Use the camera"
    assert page.locator("#video").is_hidden()


def test_without_a_secure_context_the_page_says_what_is_missing(open_page: Callable[..., Any]) -> None:
    insecure = "Object.defineProperty(window, 'isSecureContext', { value: false });"
    insecure += "Object.defineProperty(Navigator.prototype, 'mediaDevices', { value: undefined });" + NO_BATTERY
    page = open_page(PHONE, script=insecure)
    assert page.locator("#camera").is_disabled()
    for note in ("#camera-note", "#battery-note"):
        assert "only over HTTPS or on localhost" in page.locator(note).inner_text()


def test_a_file_that_is_no_image(open_page: Callable[..., Any], digits: NDArray[np.uint8]) -> None:
    page = open_page(LIGHT)
    choose(page, {"a.txt": b"hello"})
    page.wait_for_function("() => document.getElementById('error').textContent !== ''")
    assert page.locator("#error").inner_text() == (
        "a.txt is not an image that this browser can read; give a PNG, JPEG or WebP file"
    )
    give(page, digits[0])
    assert page.locator("#error").inner_text() == ""


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("no-metadata", "optimised.onnx is an ONNX file without elfnet's metadata; make one with 'elfnet export RUN"),
        ("changed", "optimised.onnx is damaged or was altered (its hash does not match); copy the folder again"),
        ("not-onnx", "optimised.onnx is not an ONNX file, or it is damaged"),
        ("newer", "optimised.onnx has file format version 2, this page reads 1; export the folder again"),
        ("other-shape", "optimised.onnx does not run in this browser ("),
    ],
)
def test_bad_files(server: str, chromium: Any, folder: str, message: str) -> None:
    # ONNX Runtime Web also writes its own errors to the console.
    with chromium.new_context() as context:
        page = context.new_page()
        page.goto(f"{server}/{folder}/")
        page.locator("body[data-ready='broken']").wait_for(timeout=120_000)
        assert page.locator("#broken").inner_text().startswith(message)
        assert page.locator("#page").is_hidden()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("model.classify(new Uint8Array(7), good)", "the images have 7 bytes; give 1024 (32 x 32 x 1) for each"),
        ("model.classify(new Float32Array(1024), good)", "images must be a Uint8Array"),
        ("model.classify(one, {...good, thresholds: [0.5]})", "thresholds has 1 numbers; give 3, or 3 for each of 1"),
        ("model.classify(one, {...good, thresholds: [0.5, 1.5, 0.5]})", "a threshold is not between 0 and 1"),
        ("model.classify(one, {...good, thresholds: [0.5, NaN, 0.5]})", "a threshold is not between 0 and 1"),
        ("(async () => model.inputsOf('furst'))()", "there is no operating point 'furst'; choose from: full"),
    ],
)
def test_bad_arrays(open_page: Callable[..., Any], call: str, message: str) -> None:
    page = open_page(LIGHT)
    script = """async () => {
        const { openModel } = await import("./model.js");
        const model = await openModel();
        const [good, one] = [model.inputsOf("full"), new Uint8Array(1024)];
        try { await CALL; return "accepted"; } catch (error) { return error.message; }
    }"""
    found = page.evaluate(script.replace("CALL", call))
    assert found.startswith(message)


def test_a_page_opened_as_a_file_says_so(chromium: Any, root: Path) -> None:
    with chromium.new_context() as context:
        page = context.new_page()
        page.goto((root / "good" / "index.html").as_uri())
        page.locator("#broken").wait_for()
        assert "python -m http.server" in page.locator("#broken").inner_text()
