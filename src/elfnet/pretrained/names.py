"""Find a model by name: an existing path, a shipped network, or `hub:user/name[@revision]`, in this order.

Only a name that begins with `hub:` uses the network.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from elfnet.errors import RequestError, WorkError
from elfnet.extras import missing_package
from elfnet.pretrained.catalogue import shipped_networks

HUB = "hub:"
FILE = "model.onnx"
"""Name of the exported file in a repository of the hub."""
_REPOSITORY = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")


def find_model(name: str | Path, *, file: str = FILE) -> Path:
    """Return the path of a model.

    Args:
        name: A path, the name of a shipped network, or `hub:user/name[@revision]`, which is downloaded into the cache
            of `huggingface_hub` unless it is there.
        file: The file to take from a repository of the hub.

    Raises:
        RequestError: The name of a repository has another form, or a name is nearly that of a shipped network.
        WorkError: The repository cannot be reached, or `huggingface_hub` is not installed.
    """
    path = Path(name)
    if path.exists():
        return path
    if (text := str(name)).startswith(HUB):
        return _download(text.removeprefix(HUB), file)
    networks = shipped_networks()
    if text in networks:
        return networks[text].verified_path()
    if near := get_close_matches(text, networks, n=1, cutoff=0.75):
        raise RequestError(
            f"there is no file or network {text}; did you mean {near[0]}? 'elfnet models ls' lists the networks"
        )
    return path


def find_file(name: str | Path, file: str) -> Path:
    """Return the path of a file of a model: in a folder, or as `find_model` finds it."""
    path = find_model(name, file=file)
    return path / file if path.is_dir() else path


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep the hub's lines about each attempt off the terminal: the error at the end says what is wrong."""
    logger = logging.getLogger("huggingface_hub")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _download(name: str, file: str) -> Path:
    matched = _REPOSITORY.fullmatch(name)
    if matched is None:
        raise RequestError(
            f"{HUB}{name} is not the name of a repository; write {HUB}user/name or {HUB}user/name@branch"
        )
    repository, revision = matched["repository"], matched["revision"]
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import (
            EntryNotFoundError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ImportError as error:
        raise WorkError(missing_package(f"{HUB}{name}", "huggingface_hub")) from error
    try:
        with _without_warnings():
            return Path(hf_hub_download(repository, file, revision=revision))
    except RepositoryNotFoundError as error:
        raise WorkError(
            f"the hub has no repository {repository}, or it is private; check the name, or log in"
        ) from error
    except RevisionNotFoundError as error:
        raise WorkError(f"{repository} has no revision {revision}; name a branch, tag or commit that it has") from error
    except LocalEntryNotFoundError as error:
        raise WorkError(
            f"cannot reach the hub for {repository}, and {file} is not in the cache; connect, or name a local file"
        ) from error
    except EntryNotFoundError as error:
        raise WorkError(f"{repository} has no file {file}; it was not written by elfnet.hub.push_to_hub") from error
    except Exception as error:  # the hub's HTTP library, and so the classes of its errors, change with its version
        reason = first_line(error)
        raise WorkError(f"cannot download {repository} from the hub: {reason}; check the network") from error


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the name of its class if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
