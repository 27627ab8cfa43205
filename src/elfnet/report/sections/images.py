"""Images of the split by the exit they take."""

from elfnet.report.figure_block import figure_blocks
from elfnet.report.figures.gallery import images_by_exit
from elfnet.report.markup import Markup, element, joined
from elfnet.report.record import RunRecord


def images(record: RunRecord, key: str) -> Markup:
    """Nothing to tell apart in a plain network."""
    if record.plain:
        return Markup("")
    return joined(element("h3", "From easy to hard"), figure_blocks(key, images_by_exit(record)))
