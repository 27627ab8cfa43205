"""Optional packages, and the extra of elfnet that installs each of them.

This map is the only place that relates packages to extras. It must agree with `pyproject.toml`; a test compares them.
"""

EXTRA_OF_PACKAGE = {
    "torch": "train",
    "lightning_fabric": "train",
    "sklearn": "train",
    "matplotlib": "train",
    "onnx": "train",
    "onnxscript": "train",
    "openvino": "openvino",
    "fastapi": "serve",
    "starlette": "serve",
    "uvicorn": "serve",
    "httptools": "serve",
    "python_multipart": "serve",
    "prometheus_client": "serve",
    "ray": "ray",
    "imblearn": "resample",
    "huggingface_hub": "hub",
    "tensorboard": "track",
    "wandb": "track",
}
"""Name of the extra by the name under which a package is imported."""


def missing_package(what: str, package: str) -> str:
    """Return the error message for an optional package that is not installed.

    Args:
        what: The feature that needs the package; the message begins with it.
        package: Import name, a key of `EXTRA_OF_PACKAGE`.
    """
    return f"{what} needs {package}: {install_command(EXTRA_OF_PACKAGE[package])}"


def install_command(extra: str) -> str:
    """Return the command that adds an extra to elfnet, as it was installed: from a clone, or as a package."""
    # Imported for the message alone: they would add to the start of every command.
    import json
    import shlex
    from importlib import metadata
    from urllib.parse import unquote, urlsplit

    try:
        origin = json.loads(metadata.distribution("elfnet").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        origin = {}
    if "dir_info" not in origin:
        return f"pip install 'elfnet[{extra}]'"
    folder = shlex.quote(unquote(urlsplit(origin["url"]).path))
    editable = "-e " if origin["dir_info"].get("editable") else ""
    return f"cd {folder} && pip install -c constraints.txt {editable}'.[{extra}]'"
