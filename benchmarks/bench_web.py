"""The folder that `elfnet export --web` writes, in a real Chromium over loopback: the first answer, and time per image.

    python benchmarks/bench_web.py [FILE PHOTOS]

FILE is an exported file, PHOTOS a folder of images for it; without them, the clothing network of the package and its
sample photos. The first answer counts from the start of navigation: the page loads runtime and network, is given a
photo as soon as it takes one, and shows the class. Every load is in a context of its own, so that nothing comes from a
cache. For the time per image, the page and the engine in Python classify the same photos one by one, one thread each;
ratios are taken within rounds. Needs Chromium, playwright, and `npm ci --ignore-scripts` in examples/browser.
"""

import base64
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
from numpy.typing import NDArray

from elfnet.export.web import read_web_runtime, write_site
from elfnet.inference.bundle.one_file import open_one_file
from elfnet.inference.model import Model, load
from elfnet.pretrained.names import find_model
from timing import write_results

PHOTOS = Path(__file__).parents[1] / "src" / "elfnet" / "pretrained" / "networks" / "clothing"
PACKAGE = Path(__file__).parents[1] / "examples" / "browser" / "node_modules" / "onnxruntime-web"
LOADS, ROUNDS, CALLS = 7, 7, 4
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
    const bytes = Uint8Array.from(atob(PHOTO), (c) => c.charCodeAt(0));
    const given = new DataTransfer();
    given.items.add(new File([bytes], "photo.jpg", { type: "image/jpeg" }));
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
  const images = data.map((one) => Uint8Array.from(atob(one), (c) => c.charCodeAt(0)));
  const began = performance.now();
  for (let i = 0; i < calls; i++) for (const pixels of images) await model.classify(pixels, model.inputsOf(point));
  return (performance.now() - began) / (calls * images.length);
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
    page.add_init_script(FIRST_ANSWER.replace("PHOTO", f'"{picture}"'))
    page.goto(url, wait_until="commit")
    taken = float(page.evaluate("() => window.answered"))
    context.close()
    return taken


def time_per_image(page: Any, model: Model, pixels_NHWK: NDArray[np.uint8], point: str) -> dict[str, Any]:
    """Milliseconds per image in the page and natively, and the mean cost of these images."""
    data = [base64.b64encode(image.tobytes()).decode() for image in pixels_NHWK]
    page.evaluate(CLASSIFY, [data, point, CALLS])
    in_page, native = [], []
    for _ in range(ROUNDS):
        in_page.append(float(page.evaluate(CLASSIFY, [data, point, CALLS])))
        began = time.perf_counter()
        for _ in range(CALLS):
            for row in range(len(pixels_NHWK)):
                model.classify(pixels_NHWK[row : row + 1], operating_point=point)
        native.append(1e3 * (time.perf_counter() - began) / (CALLS * len(pixels_NHWK)))
    answers = model.classify(pixels_NHWK, operating_point=point)
    return {
        "page_ms": round(statistics.median(in_page), 2),
        "native_ms": round(statistics.median(native), 2),
        "page_to_native": round(statistics.median(a / b for a, b in zip(in_page, native, strict=True)), 2),
        "mean_cost": round(float(answers.cost_N.mean()), 3),
    }


def main(name: str, photos: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if find_spec("playwright") is None or chromium is None or not PACKAGE.is_dir():
        print("bench_web: left out, it needs Chromium, playwright, and 'npm ci --ignore-scripts' in examples/browser")
        return
    from playwright.sync_api import sync_playwright

    bundle = open_one_file(Path(find_model(name)))
    model = load(bundle.path, threads=1)
    files = sorted(one for one in photos.iterdir() if one.is_file())
    pixels_NHWK = np.stack([model.preprocess.pixels(one) for one in files])
    with TemporaryDirectory() as directory:
        write_site(bundle, Path(directory) / "site", read_web_runtime(PACKAGE), "bench")
        with served(Path(directory) / "site") as url, sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            picture = base64.b64encode(files[0].read_bytes()).decode()
            answered = [first_answer(browser, url, picture) for _ in range(LOADS)]
            page = browser.new_page()
            page.goto(url)
            names = [
                model.engine.family.for_budget(point).name if not isinstance(point, str) else point for point in POINTS
            ]
            per_image = {point: time_per_image(page, model, pixels_NHWK, point) for point in names}
            version = browser.version
            browser.close()
    times = {"median": round(statistics.median(answered)), "worst": round(max(answered))}
    about = {
        "what": bundle.path.name,
        "photos": len(pixels_NHWK),
        "chromium": version,
        "loads": LOADS,
        "rounds": ROUNDS,
    }
    load_average = [round(each, 2) for each in os.getloadavg()]
    results = {"first_answer_ms": times, "time_per_image": per_image, "load_average": load_average, "aims": AIMS}
    write_results("web", {**about, **results})


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(sys.argv[1], Path(sys.argv[2]))
    else:
        main("clothing", PHOTOS)
