"""Reports about finished runs: one self-contained HTML page, and figures as files.

Everything is read from the files of run directories; no network is built or run. This package must not import torch.
matplotlib is imported when a figure is drawn, so importing the package stays cheap.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.report.figures.catalogue import WrittenFigures, write_figures
    from elfnet.report.page import write_report
    from elfnet.report.record import RunRecord, method_name, read_run, read_runs

_MODULES = {
    "RunRecord": "elfnet.report.record",
    "WrittenFigures": "elfnet.report.figures.catalogue",
    "method_name": "elfnet.report.record",
    "read_run": "elfnet.report.record",
    "read_runs": "elfnet.report.record",
    "write_figures": "elfnet.report.figures.catalogue",
    "write_report": "elfnet.report.page",
}

__all__ = ["RunRecord", "WrittenFigures", "method_name", "read_run", "read_runs", "write_figures", "write_report"]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
