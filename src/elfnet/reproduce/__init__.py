"""Tables of the paper: every system trained, calibrated and measured in the same way, beside the published numbers.

`paper_table` has the tables as data and `cell` the recipe of each cell. `plan` lists the requested runs with their
state, `run` does them, and `record` keeps the results of each. `summary`, `layout` and `render` make the table from the
records alone. `directory` says which file is where.

The names below are imported when they are first used, so that importing the package needs no torch.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.reproduce.cell import Cell, cell_recipe
    from elfnet.reproduce.paper_table import TABLES, TIERS, PaperTable, Tier, get_tier, load_table
    from elfnet.reproduce.plan import PlannedRun, plan_table
    from elfnet.reproduce.render import write_table
    from elfnet.reproduce.run import Outcome, TableObserver, reproduce_table
    from elfnet.reproduce.summary import summarize

_HOME = {
    "Cell": "elfnet.reproduce.cell",
    "Outcome": "elfnet.reproduce.run",
    "PaperTable": "elfnet.reproduce.paper_table",
    "PlannedRun": "elfnet.reproduce.plan",
    "TABLES": "elfnet.reproduce.paper_table",
    "TIERS": "elfnet.reproduce.paper_table",
    "TableObserver": "elfnet.reproduce.run",
    "Tier": "elfnet.reproduce.paper_table",
    "cell_recipe": "elfnet.reproduce.cell",
    "get_tier": "elfnet.reproduce.paper_table",
    "load_table": "elfnet.reproduce.paper_table",
    "plan_table": "elfnet.reproduce.plan",
    "reproduce_table": "elfnet.reproduce.run",
    "summarize": "elfnet.reproduce.summary",
    "write_table": "elfnet.reproduce.render",
}

__all__ = [
    "TABLES",
    "TIERS",
    "Cell",
    "Outcome",
    "PaperTable",
    "PlannedRun",
    "TableObserver",
    "Tier",
    "cell_recipe",
    "get_tier",
    "load_table",
    "plan_table",
    "reproduce_table",
    "summarize",
    "write_table",
]

__getattr__ = lazy_names(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
