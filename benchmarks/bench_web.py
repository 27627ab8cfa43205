"""The folder that `elfnet export --web` writes, in a real Chromium over loopback: the first answer, and time per image.

    python benchmarks/bench_web.py [FILE]

FILE is an exported file; without it, the network for CIFAR-100-LT in models/. The first answer counts from the start of
navigation: the page loads runtime and network, is given an image as soon as it takes one, and shows the class. Every
load is in a context of its own, so that nothing comes from a cache. For the time per image, the page and the engine in
Python classify the same image in turn, one thread each; ratios are taken within rounds. Needs Chromium, playwright, and
`npm ci --ignore-scripts` in examples/browser.
"""

import base64
import io
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from elfnet.export.web import read_web_runtime, write_site
from elfnet.inference.bundle.one_file import open_one_file
from elfnet.inference.model import Model, load
from elfnet.pretrained.names import find_model
from timing import write_results

PACKAGE = Path(__file__).parents[1] / "examples" / "browser" / "node_modules" / "onnxruntime-web"
LOADS, ROUNDS, CALLS = 7, 7, 20
POINTS = ("full", 0.6)
AIMS = {"first answer": "within 2 s of opening the page", "time per image": "at most 6 times the native one"}
FIRST_ANSWER = """
window.answered = new Promise((resolve) => {
  const shown = () => {
    if (!document.querySelector("#classes .name")) return requestAnimationFrame(shown);
    resolve(performance.now());
  };
  const give = () => {
    const input = document.getElementById("file");
    if (!(document.body && document.body.dataset.ready === "true" && input)) return requestAnimationFrame(give);
    const bytes = Uint8Array.from(atob(PNG), (c) => c.charCodeAt(0));
    const given = new DataTransfer();
    given.items.add(new File([bytes], "image.png", { type: "image/png" }));
    input.files = given.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
    shown();
  };
  give();
});
"""
CLASSIFY = """async ([data, point, calls]) => {
  const { openModel } = await import("./model.js");
  const model = await (window.opened ??= openModel());
  const pixels = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const began = performance.now();
  for (let i = 0; i < calls; i++) await model.classify(pixels, model.inputsOf(point));
  return (performance.now() - began) / calls;
}"""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of `python -m http.server`."""
    words = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield f"http://localhost:{process.stdout.readline().partition(' port ')[2].split()[0]}"
        process.terminate()


def first_answer(browser: Any, url: str, picture: str) -> float:
    """Milliseconds from the start of navigation to the answer on the page."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.add_init_script(FIRST_ANSWER.replace("PNG", f'"{picture}"'))
    page.goto(url, wait_until="commit")
    taken = float(page.evaluate("() => window.answered"))
    context.close()
    return taken


def time_per_image(page: Any, model: Model, pixels: np.ndarray[Any, Any], point: str) -> dict[str, float]:
    data = base64.b64encode(pixels.tobytes()).decode()
    page.evaluate(CLASSIFY, [data, point, CALLS])
    in_page, native = [], []
    for _ in range(ROUNDS):
        in_page.append(float(page.evaluate(CLASSIFY, [data, point, CALLS])))
        began = time.perf_counter()
        for _ in range(CALLS):
            model.classify(pixels, operating_point=point)
        native.append(1e3 * (time.perf_counter() - began) / CALLS)
    return {
        "page_ms": round(statistics.median(in_page), 2),
        "native_ms": round(statistics.median(native), 2),
        "page_to_native": round(statistics.median(a / b for a, b in zip(in_page, native, strict=True)), 2),
    }


def main(name: str) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if find_spec("playwright") is None or chromium is None or not PACKAGE.is_dir():
        print("bench_web: left out, it needs Chromium, playwright, and 'npm ci --ignore-scripts' in examples/browser")
        return
    from playwright.sync_api import sync_playwright

    bundle = open_one_file(Path(find_model(name)))
    model = load(bundle.path, threads=1)
    shape = model.preprocess.shape
    pixels = np.random.default_rng(0).integers(0, 256, (1, *shape), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels[0] if shape[2] == 3 else pixels[0, :, :, 0]).save(file, format="PNG")
    with TemporaryDirectory() as directory:
        write_site(bundle, Path(directory) / "site", read_web_runtime(PACKAGE), "bench")
        with served(Path(directory) / "site") as url, sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            picture = base64.b64encode(file.getvalue()).decode()
            answered = [first_answer(browser, url, picture) for _ in range(LOADS)]
            page = browser.new_page()
            page.goto(url)
            names = [
                model.engine.family.for_budget(point).name if not isinstance(point, str) else point for point in POINTS
            ]
            per_image = {point: time_per_image(page, model, pixels, point) for point in names}
            version = browser.version
            browser.close()
    times = {"median": round(statistics.median(answered)), "worst": round(max(answered))}
    about = {"what": bundle.path.name, "chromium": version, "loads": LOADS, "rounds": ROUNDS}
    load_average = [round(each, 2) for each in os.getloadavg()]
    results = {"first_answer_ms": times, "time_per_image": per_image, "load_average": load_average, "aims": AIMS}
    write_results("web", {**about, **results})


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cifar100-lt")
