"""Coverage-guided fuzzing (atheris) of what reads files and requests.

    python tests/faults/fault_fuzz.py TARGET CORPUS [flags of libFuzzer]

Inputs that reach new code are kept and changed further. Every target must return, or raise the one error that its
callers expect, with a message of one line.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from fault_case import Outcomes

TARGETS = ("annotations", "image", "list", "onnx", "policy", "request", "table", "toml", "zip")
MAX_INPUT_BYTES = {"onnx": 60_000, "zip": 20_000, "policy": 60_000}
DEFAULT_MAX_INPUT_BYTES = 8192


def run(seed: int, count: int, directory: Path) -> Outcomes:
    """Fuzz every target for `count` seconds.

    Raises:
        ImportError: atheris is not installed.
    """
    if find_spec("atheris") is None:
        raise ImportError("atheris is not installed: pip install -e '.[torture]'")
    outcomes = Outcomes()
    for target in TARGETS:
        corpus = directory / target
        corpus.mkdir()
        for number, content in enumerate(_seeds(target, directory)):
            (corpus / str(number)).write_bytes(content)
        longest = MAX_INPUT_BYTES.get(target, DEFAULT_MAX_INPUT_BYTES)
        flags = [f"-seed={seed + 1}", f"-max_total_time={count}", f"-max_len={longest}", "-timeout=20"]
        flags += ["-rss_limit_mb=3000", "-print_final_stats=1", "-verbosity=1", f"-artifact_prefix={directory}/found-"]
        done = subprocess.run(
            [sys.executable, __file__, target, str(corpus), *flags],
            cwd=directory,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        _count(outcomes, target, done, directory)
    return outcomes


def _count(outcomes: Outcomes, target: str, done: "subprocess.CompletedProcess[str]", directory: Path) -> None:
    executed = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
    if executed is None:
        outcomes.fail(f"{target}: did not start: {done.stderr[-300:]}")
        return
    outcomes.counts[f"{target} read or refused"] += int(executed[1])
    if done.returncode == 0:
        return
    for found in sorted(directory.glob("found-*")):
        error = re.search(r"=== Uncaught Python exception: ===\s*(.*)", done.stdout + done.stderr)
        what = error[1] if error else done.stderr[-200:]
        outcomes.fail(f"{target}: {what}; the input, shortened: {found.read_bytes()[:150]!r}")
        found.unlink()


def _seeds(target: str, directory: Path) -> list[bytes]:
    """Valid inputs to begin with."""
    from fault_files import STORED, write_intact
    from fault_http import FORM, JSON_BODY
    from fault_images import FORMATS, image

    if target == "image":
        import numpy as np

        return [image(kind, np.random.default_rng(number)) for number, kind in enumerate(FORMATS)]
    if target == "request":
        return [b"multipart/form-data; boundary=b\n" + FORM, b"application/json\n" + JSON_BODY]
    if target == "onnx":
        return [_small_onnx((STORED / "bundle.onnx").read_bytes())]
    if target == "zip":
        return [b"", _small_zip()]
    files = directory / f"{target}-files"
    files.mkdir()
    written = write_intact(files)
    return [written[target].read_bytes()]


def _small_onnx(content: bytes) -> bytes:
    """The file with weights of one number each: their values are not read."""
    import onnx

    model = onnx.load_model_from_string(content)
    for tensor in model.graph.initializer:
        tensor.ClearField("dims")
        tensor.raw_data = tensor.raw_data[:4]
    small: bytes = model.SerializeToString()
    return small


def _small_zip() -> bytes:
    import io
    import zipfile

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("manifest.json", '{"format_version": 1, "files": {"a": {"sha256": "' + "0" * 64 + '"}}}')
        archive.writestr("a", "b")
    return file.getvalue()


def _target(name: str, directory: Path) -> Callable[[bytes], object]:
    """The function under test; its modules are imported with instrumentation."""
    import atheris

    with atheris.instrument_imports(include=["elfnet", "tomllib", "json", "csv", "python_multipart", "zipfile"]):
        from elfnet.calibrate.point_family import Family
        from elfnet.data.images.decode import Limits, decode
        from elfnet.data.sources.lists import read_annotations, read_list
        from elfnet.data.sources.tables import read_table
        from elfnet.inference.bundle.one_file import SHA256, hash_of, verified
        from elfnet.inference.bundle.protobuf import walk
        from elfnet.inference.bundle.read import open_bundle
        from elfnet.recipe.load import load_stored_recipe
        from elfnet.serve.requests import parse_request

    limits = Limits(max_pixels=100_000, max_bytes=100_000)

    def read_onnx(content: bytes) -> None:
        # With the right hash, so that what stands behind the check is reached.
        parts = walk(content, where="it")
        at = parts.metadata_at.get(SHA256)
        if at is not None:
            content = content[:at] + hash_of(content, at).encode() + content[at + 64 :]
        opened = verified(Path("it"), content)
        assert opened.stage_graphs()

    def read_request(content: bytes) -> None:
        kind, _, body = content.partition(b"\n")
        parse_request(kind.decode("latin-1"), body, max_images=8)

    def from_file(read: Callable[[Path], object]) -> Callable[[bytes], object]:
        file = directory / f"it-{name}"

        def read_file(content: bytes) -> object:
            file.write_bytes(content)
            return read(file)

        return read_file

    return {
        "annotations": from_file(lambda file: read_annotations(file, directory)),
        "image": lambda content: decode(content, "it", limits),
        "list": from_file(lambda file: read_list(file, directory)),
        "onnx": read_onnx,
        "policy": from_file(Family.open),
        "request": read_request,
        "table": from_file(lambda file: read_table(file, directory, path_column="path", label_column="label")),
        "toml": from_file(load_stored_recipe),
        "zip": from_file(open_bundle),
    }[name]


def main() -> None:
    """Fuzz one target; libFuzzer ends the process."""
    import atheris

    name, corpus, *flags = sys.argv[1:]
    target = _target(name, Path(corpus).parent)

    from elfnet.errors import ElfnetError
    from elfnet.serve.errors import ApiError

    def once(content: bytes) -> None:
        try:
            target(content)
        except ElfnetError as error:
            if "\n" in str(error):
                raise AssertionError(f"a message of several lines: {error!r}") from error
        except ApiError as error:
            if error.status >= 500:
                raise

    atheris.Setup([sys.argv[0], corpus, *flags], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
