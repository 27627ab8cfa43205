"""Exported files in folders of the hub's form: open one, write one from a run or a file, upload one."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from elfnet import atomic
from elfnet.errors import RequestError, WorkError
from elfnet.extras import missing_package
from elfnet.inference.bundle.one_file import OneFile, open_one_file
from elfnet.inference.model import Model, load
from elfnet.pretrained.names import FILE, find_file, find_model, first_line

CARD = "README.md"


def from_pretrained(name: str | Path, **settings: Any) -> Model:
    """Open the exported file of a pretrained network.

    Args:
        name: A folder that `save_pretrained` wrote, an exported file, the name of a shipped network, or
            `hub:user/name[@revision]`.
        settings: Arguments of `elfnet.load`, such as `threads`.

    Raises:
        WorkError: The repository cannot be reached, or the file is damaged.
    """
    return load(find_file(name, FILE), **settings)


def save_pretrained(model: str | Path, folder: str | Path, *, licence: str = "") -> Path:
    """Write a model into a folder that `from_pretrained` reads: the exported file and a model card.

    Args:
        model: An exported file, the name of a shipped network, or the directory of a calibrated run. A run is exported,
            and its torch network is written, too, for `load_network`.
        folder: Created if it does not exist; files of the same names are replaced.
        licence: Identifier of the licence for the card, such as `apache-2.0`.

    Raises:
        RequestError: There is no such model.
        WorkError: The file is damaged, or writing failed.
    """
    source, folder = find_model(model), Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkError(f"cannot create {folder}: {error.strerror or error}") from error
    if (source / "recipe.toml").is_file():
        from elfnet.export.run import export_run
        from elfnet.hub.network import write_network
        from elfnet.run.directory import open_run

        run = open_run(source)
        export_run(run, folder / FILE, overwrite=True)
        write_network(run, folder)
    else:
        atomic.write_bytes(folder / FILE, open_one_file(source).content)
    atomic.write_text(folder / CARD, hub_card(open_one_file(folder / FILE), licence=licence))
    return folder


def hub_card(bundle: OneFile, *, licence: str = "") -> str:
    """Return the model card of an exported file with the header that the hub reads."""
    header = ["---", "library_name: elfnet", "pipeline_tag: image-classification", "tags:", "- early-exit"]
    header += [f"license: {licence}"] if licence else []
    use = f"""
## Use

```python
from elfnet.hub import from_pretrained

model = from_pretrained("hub:USER/NAME")
print(model.predict("photo.jpg"))
```

Written by elfnet {bundle.manifest.elfnet_version}; hash of the content: `{bundle.identity}`.
"""
    return "\n".join([*header, "---", "", bundle.manifest.model_card.rstrip(), use])


def push_to_hub(
    model: str | Path, repository: str, *, private: bool = True, licence: str = "", token: str | None = None
) -> str:
    """Upload a model to the hub, and return the address of the commit.

    Args:
        model: As for `save_pretrained`.
        repository: `user/name`; created if it does not exist.
        private: Whether a new repository is private.
        licence: As for `save_pretrained`.
        token: Access token; None for the one that `hf auth login` stored.

    Raises:
        WorkError: The upload failed, or `huggingface_hub` is not installed.
    """
    if repository.count("/") != 1:
        raise RequestError(f"repository={repository!r} must have the form user/name")
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise WorkError(missing_package("push_to_hub", "huggingface_hub")) from error
    api = HfApi(token=token, library_name="elfnet")
    with TemporaryDirectory(prefix="elfnet-") as folder:
        saved = save_pretrained(model, folder, licence=licence)
        card = (saved / CARD).read_text().replace("hub:USER/NAME", f"hub:{repository}")
        atomic.write_text(saved / CARD, card)
        try:
            api.create_repo(repository, private=private, exist_ok=True)
            done = api.upload_folder(repo_id=repository, folder_path=saved, commit_message="Upload with elfnet")
        except Exception as error:  # the hub's HTTP library, and so the classes of its errors, change with its version
            reason = first_line(error)
            raise WorkError(
                f"cannot upload to {repository}: {reason}; check the name, the token and the network"
            ) from error
    return str(done.commit_url)
