"""Write a static folder that classifies in the visitor's browser, from a bundle that is one ONNX file.

The folder holds the file with required inputs, the same graph as the page runs it, the page, and ONNX Runtime Web,
which is copied from an npm folder. Any web server can serve it; nothing is loaded from elsewhere.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from elfnet import atomic
from elfnet.errors import RequestError
from elfnet.export.browser_graph import optimised
from elfnet.inference.bundle.one_file import OneFile, without_defaults

PAGE = Path(__file__).parent / "web_page"
SERVICE_PAGE = Path(__file__).parents[1] / "serve" / "page"
SHARED = ("page.css", "icon.svg", "text.js", "ladder.js", "curve.js", "choose_image.js", "journey.js", "shares.js")
"""Files of the service's page that this page uses as well."""
RUNTIME_FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")
"""The build for WebAssembly alone. Builds with WebGPU are twice as large, and gain nothing for small networks."""
RUNTIME = "onnxruntime"
INSTALL = "'npm install --ignore-scripts onnxruntime-web' makes the folder node_modules/onnxruntime-web"
# The npm package names its licence and its owner, but has no licence file.
MIT_LICENCE = """MIT License

Copyright (c) Microsoft Corporation

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
"""


@dataclass(frozen=True, eq=False)
class WebRuntime:
    """ONNX Runtime Web, as an npm folder holds it.

    Attributes:
        version: Its version.
        files: Content by name, with `LICENSE`.
    """

    version: str
    files: dict[str, bytes]


def read_web_runtime(package: Path) -> WebRuntime:
    """Read the files of ONNX Runtime Web that a page needs.

    Args:
        package: The folder `onnxruntime-web` in `node_modules`.

    Raises:
        RequestError: It is another package, a file is missing, or its licence is not known here.
    """
    try:
        described = json.loads((package / "package.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RequestError(f"{package} is no npm package (no readable package.json); {INSTALL}") from error
    if not isinstance(described, dict) or described.get("name") != "onnxruntime-web":
        raise RequestError(f"{package} is not the npm package onnxruntime-web; {INSTALL}")
    files = {}
    for name in RUNTIME_FILES:
        try:
            files[name] = (package / "dist" / name).read_bytes()
        except OSError as error:
            raise RequestError(f"{package} has no dist/{name}; {INSTALL}") from error
    return WebRuntime(str(described.get("version")), {**files, "LICENSE": _licence(package, described.get("license"))})


def _licence(package: Path, named: object) -> bytes:
    for name in ("LICENSE", "LICENSE.txt", "LICENSE.md"):
        if (package / name).is_file():
            return (package / name).read_bytes()
    if named != "MIT":
        raise RequestError(
            f"{package} has no licence file and names the licence {named!r}, not MIT; put its LICENSE into the folder"
        )
    return MIT_LICENCE.encode()


def require_free(directory: Path, *, overwrite: bool) -> None:
    """Refuse a folder that holds something else.

    Raises:
        RequestError: There is a file at the path, or a folder with content and `overwrite` is False.
    """
    if not os.path.lexists(directory):
        return
    if not directory.is_dir():
        raise RequestError(f"{directory} is a file; name another --web directory")
    if any(directory.iterdir()) and not overwrite:
        raise RequestError(f"{directory} exists and is not empty; give --overwrite, or another --web directory")


def write_site(bundle: OneFile, directory: Path, runtime: WebRuntime, name: str, *, overwrite: bool = False) -> int:
    """Write the folder, and return its size in bytes.

    Args:
        bundle: The file; its inputs may have defaults.
        directory: The folder to write.
        runtime: ONNX Runtime Web.
        name: Name of the model, for people.
        overwrite: Write into a folder that holds something; other files in it stay.

    Raises:
        RequestError: The folder is not empty, or the network reads no uint8 images.
        WorkError: Writing failed.
    """
    require_free(directory, overwrite=overwrite)
    if bundle.manifest.image_input != "uint8":
        raise RequestError(
            f"{bundle.path} reads {bundle.manifest.image_input}, and a page has uint8 images; export without --web"
        )
    about = {"name": name, "onnxruntime_web": runtime.version}
    files = {f"{RUNTIME}/{file}": content for file, content in runtime.files.items()}
    files["model.onnx"] = without_defaults(bundle)
    files["optimised.onnx"] = optimised(bundle)
    files["site.json"] = json.dumps(about, ensure_ascii=False).encode()
    files |= {file: (SERVICE_PAGE / file).read_bytes() for file in SHARED}
    # The page itself is the last file, so that an interrupted export leaves no page that cannot work.
    pages = sorted((path for path in PAGE.iterdir() if path.is_file()), key=lambda path: path.suffix == ".html")
    files |= {path.name: path.read_bytes() for path in pages}
    for file, content in files.items():
        atomic.write_bytes(directory / file, content)
    return sum(map(len, files.values()))
