"""From the start of navigation to a page that can be used, in a real Chromium over loopback.

    python benchmarks/bench_page.py [BUNDLE]

Without BUNDLE a network for digits is trained for two epochs and exported: how well it answers does not matter here.
Usable means that the model's name is shown, the curve is drawn with its handle in place, and an image that is dropped
or chosen is taken. The browser watches for this itself, with its own clock. Every load is in a context of its own, so
nothing comes from a cache; after the first, an image is really given to the page, which must answer. The service is a
process of its own, as `elfnet serve` starts it. Between the loads a bare document of the same service is loaded
(`/healthz`): what the browser itself takes on this machine.
"""

import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from service_process import served
from timing import write_results

LOADS = 15
ELFNET = (sys.executable, "-m", "elfnet.cli.main")
# `data-ready` is set once whatever listens to drops, files and keys is in place.
WATCH = """
window.usable = new Promise((resolve) => {
  const look = () => {
    const name = document.getElementById("model-name");
    const drawn = document.querySelector("#curve polyline") && document.querySelector("#curve .handle[transform]");
    const taken = document.body && document.body.dataset.ready === "true" && !document.getElementById("file").disabled;
    if (!(name && name.textContent === NAME && drawn && taken)) return requestAnimationFrame(look);
    resolve(performance.now());
  };
  look();
});
"""
BARE = """
window.usable = new Promise((resolve) => {
  addEventListener("load", () => requestAnimationFrame(() => resolve(performance.now())));
});
"""


def make_bundle(place: Path) -> Path:
    """A small network that knows digits a little."""
    epochs = ("--train.epochs", "2", "--train.drw_start", "1")
    for words in (
        ("train", "digits/elf-ce-drw", *epochs, "--out", str(place / "run")),
        ("export", str(place / "run"), "--out", str(place / "digits.onnx")),
    ):
        subprocess.run([*ELFNET, *words], check=True, capture_output=True)
    return place / "digits.onnx"


def load_page(browser: Any, url: str, watch: str, image: Path | None = None) -> float:
    """Milliseconds of one load in a new context; with an image, the page must answer too."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.add_init_script(watch)
    page.goto(url, wait_until="commit")
    taken = float(page.evaluate("() => window.usable"))
    if image is not None:
        page.set_input_files("#file", image)
        page.locator(".stage.left").wait_for()
    context.close()
    return taken


def spread(milliseconds: list[float]) -> dict[str, int]:
    low, middle, high = quantiles(milliseconds, n=4)
    found = {"median": middle, "quartile_low": low, "quartile_high": high, "worst": max(milliseconds)}
    return {name: round(value) for name, value in found.items()}


def main(words: list[str]) -> None:
    browser_file = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        browser_file = None
    if browser_file is None:
        print("bench_page: left out, it needs Chromium and playwright (apt install chromium; pip install playwright)")
        return
    with TemporaryDirectory() as folder:
        place = Path(folder)
        image = place / "grey.png"
        Image.fromarray(np.full((8, 8), 128, dtype=np.uint8)).save(image)
        bundle = Path(words[0]) if words else make_bundle(place)
        with served(bundle) as (url, _), sync_playwright() as driver:
            with urllib.request.urlopen(f"{url}/v1/model") as answer:
                model = json.load(answer)
            browser = driver.chromium.launch(executable_path=browser_file, args=["--no-sandbox"])
            watch = WATCH.replace("NAME", json.dumps(model["name"]))
            first = load_page(browser, url, watch, image)
            usable, bare = [], []
            for _ in range(LOADS):
                usable.append(load_page(browser, url, watch))
                bare.append(load_page(browser, f"{url}/healthz", BARE))
            version = browser.version
            browser.close()
    write_results(
        "page",
        {
            "bundle": bundle.name,
            "operating_points": len(model["operating_points"]),
            "chromium": version,
            "loads": LOADS,
            "usable_ms": {"first": round(first), **spread(usable)},
            "bare_document_ms": spread(bare),
            "aim": "under 1,000 ms",
        },
    )


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
