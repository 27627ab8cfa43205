"""The whole page from the records of runs: a function of their files, with nothing of the day it is written in it."""

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from elfnet.report.markup import Markup, element, joined, trusted
from elfnet.report.record import RunRecord
from elfnet.report.sections.classes import classes
from elfnet.report.sections.dial import dial
from elfnet.report.sections.exits import exits
from elfnet.report.sections.images import images
from elfnet.report.sections.operating_points import operating_points
from elfnet.report.sections.overview import overview
from elfnet.report.sections.provenance import provenance
from elfnet.report.sections.several_runs import several_runs
from elfnet.report.sections.trade_off import trade_off
from elfnet.report.sections.training import training
from elfnet.version import __version__

# Each in a block of its own, so that their constants do not meet.
SCRIPTS = ("sort_tables.js", "dial.js", "print_details.js")


def page(records: Sequence[RunRecord], *, with_images: bool = True) -> str:
    """One self-contained HTML document; `with_images` shows images of the test split."""
    several = len(records) > 1
    title = f"{len(records)} runs compared" if several else f"{records[0].name}: {records[0].method}"
    body = element(
        "main",
        _header(records, title),
        several_runs(records) if several else "",
        *(
            _run(record, position, several=several, with_images=with_images)
            for position, record in enumerate(records, start=1)
        ),
        element("footer", f"Written by elfnet {__version__} from the files of the run directory."),
    )
    script = "".join(_resource(name) for name in SCRIPTS)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        trusted(_content_security_policy(script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", f"{title} · elfnet report"),
        element("style", trusted(_resource("page.css"))),
    )
    document = element("html", head, element("body", body, element("script", trusted(script))), lang="en")
    return f"<!DOCTYPE html>\n{document}\n"


def _header(records: Sequence[RunRecord], title: str) -> Markup:
    if len(records) == 1:
        data = records[0].recipe.data
        subtitle: object = f"{data.source} · {records[0].network} · elfnet report"
        return element("header", element("h1", title), element("p", subtitle, class_="subtitle"))
    links = [element("a", record.name, href=f"#run-{position}") for position, record in enumerate(records, start=1)]
    return element(
        "header",
        element("h1", title),
        element("p", "elfnet report", class_="subtitle"),
        element("nav", element("a", "side by side", href="#together"), *links),
    )


def _run(record: RunRecord, position: int, *, several: bool, with_images: bool) -> Markup:
    key = f"run-{position}"
    heading = element("h2", f"{record.name}: {record.method}") if several else Markup("")
    parts = joined(
        overview(record),
        dial([record], key),
        operating_points(record),
        trade_off(record, key),
        exits(record, key),
        classes(record, key),
        images(record, key) if with_images else "",
        training(record, key),
        provenance(record),
    )
    return element("section", heading, parts, id=key)


def _resource(name: str) -> str:
    return resources.files("elfnet.report").joinpath(name).read_text(encoding="utf-8")


def _content_security_policy(script: str) -> str:
    """The page asks no other host for anything and runs no script but its own, whatever a class may be called."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
