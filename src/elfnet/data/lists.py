"""Image files that a list, a table or annotations name: ImageNet-LT, Places-LT, iNaturalist'18, any CSV or Parquet."""

from pathlib import Path

from elfnet.data.image_files import ImageFiles
from elfnet.data.inaturalist import read_annotations
from elfnet.data.list_file import read_list
from elfnet.data.listed_images import images_of_listings
from elfnet.data.listing import Listing
from elfnet.data.source import SOURCES, Source, SourceRequest
from elfnet.data.table_listing import read_table
from elfnet.errors import RequestError, WorkError

TABLES = (".csv", ".tsv", ".parquet")


@SOURCES.register("lists")
def lists(request: SourceRequest) -> Source[ImageFiles]:
    """Image files by list ("path label" lines), iNaturalist JSON, CSV or Parquet (data.train, data.test, data.root)."""
    if request.train is None:
        raise RequestError(
            "source=lists needs data.train: a list file ('path label' lines), .json, .csv, .tsv or .parquet"
        )
    files = {"train": request.train, "calibration": request.calibration, "test": request.test}
    read = {
        split: read_listing(_found(split, file, request), request) for split, file in files.items() if file is not None
    }
    return images_of_listings(request, name=request.train.stem, **read)


def _found(split: str, file: Path, request: SourceRequest) -> Path:
    """A list that is not where it was said to be may lie beside the images, as published ones often do."""
    places = [file, *([] if request.root is None else [request.root / file])]
    for place in places:
        if place.exists():
            return place
    held_out = "" if split == "train" else f", or set data.{split} to nothing (data.{split}=) to hold examples out"
    raise WorkError(
        f"data.{split}={file}: there is no such file ({' nor '.join(map(str, places))}); name the list, table or "
        f"annotations that lie there{held_out}"
    )


def read_listing(file: Path, request: SourceRequest) -> Listing:
    """A listing by its ending; paths are relative to `root`, or to where the file lies."""
    root = request.root or file.parent
    if file.suffix.lower() in TABLES:
        return read_table(
            file,
            root,
            path_column=request.path_column,
            label_column=request.label_column,
            group_column=request.group_column,
        )
    request.refuse_group_column(str(file))
    return read_annotations(file, root) if file.suffix.lower() == ".json" else read_list(file, root)
