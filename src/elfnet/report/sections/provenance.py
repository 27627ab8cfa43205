"""What the numbers were made with, so that they can be made again."""

from collections.abc import Mapping
from typing import Any

import tomli_w

from elfnet.report.html_table import Heading, html_table
from elfnet.report.markup import Markup, element, joined
from elfnet.report.record import RunRecord


def provenance(record: RunRecord) -> Markup:
    """Command, versions, hardware, seeds, data and checkpoint; the whole recipe folded away below."""
    info, results, family = record.info, record.results, record.family
    rows: list[tuple[str, object]] = [
        ("command", _code(info.command or "–")),
        ("versions", _listed(info.versions)),
        ("hardware", _listed(info.hardware)),
        ("machine settings", _listed(info.machine)),
        ("seeds", _listed(info.seeds)),
        (
            "data",
            f"{record.recipe.data.source}, images of {' × '.join(str(n) for n in info.image_shape or ['–'])}",
        ),
        ("data fingerprint", _code(info.fingerprint or "–")),
        ("checkpoint (sha256)", _code(results.checkpoint_sha256)),
        ("training split", f"n = {info.train:,}"),
        ("thresholds chosen on", f"{family.split} split, n = {family.n:,}"),
        ("results measured on", f"{results.split} split, n = {results.n:,}"),
        (
            "confidence scale of the paper's rule",
            ", ".join(f"{scale:g}" for scale in dict.fromkeys(family.confidence_scale)),
        ),
        ("unit of cost", f"{results.cost_unit}; 1 = {results.plain_multiply_adds:,} an image"),
    ]
    recipe = tomli_w.dumps(record.recipe.model_dump(mode="json"))
    return joined(
        element("h3", "Provenance"),
        element(
            "div",
            html_table("", [Heading("what", numeric=False), Heading("value", numeric=False)], rows),
            class_="provenance",
        ),
        element("details", element("summary", "The whole recipe"), element("pre", recipe)),
    )


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in values.items()) or "–"


def _plain(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _code(value: object) -> Markup:
    return element("code", value)
