"""The slider in a real browser, where there is one: what its script shows is what the rule says."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from elfnet.report.page import write_report
from elfnet.report.record import read_run
from elfnet.report.sections.slider import BudgetPoint, budget_rules
from elfnet.run.directory import RunDirectory

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
    pytest.mark.usefixtures("undrawn"),
]


def shown(page: Path, profile: Path) -> str:
    """The page after its scripts have run."""
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    command += [f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def first_panel(content: str) -> list[str]:
    panel = content.partition('class="panel"')[2].partition('class="instead"')[0]
    return re.findall(r"data-(?:text|field|percent)[^>]*>([^<]*)<", panel)


def expected(point: BudgetPoint) -> list[str]:
    accuracies = [accuracy for accuracy in (point.accuracy, *point.accuracy_by_group) if accuracy is not None]
    return [
        point.label,
        f"{point.mean_cost:.3f}",
        *(f"{100 * accuracy:.1f}" for accuracy in accuracies),
        *(f"{100 * share:.1f}" for share in point.exit_share),
    ]


@pytest.mark.parametrize(("rule", "budget"), [(0, "0.4"), (0, "1"), (1, "0.7")])
def test_slider_shows_what_the_budget_buys(elf_run: RunDirectory, tmp_path: Path, rule: int, budget: str) -> None:
    page = write_report([elf_run], tmp_path / "page.html")
    content = page.read_text()
    # As if the reader had moved it: the position and the choice that the script finds.
    content = re.sub(r'(<input type="range"[^>]* value=")[^"]*', rf"\g<1>{budget}", content)
    content = content.replace(" checked>", ">").replace(f'value="{rule}">', f'value="{rule}" checked>')
    page.write_text(content)
    point = budget_rules(read_run(elf_run))[rule].best_within(float(budget))
    assert point is not None
    live = shown(page, tmp_path / "profile")
    assert first_panel(live) == expected(point)
    assert re.search(r'class="slider card live"', live)


def test_headings_sort(elf_run: RunDirectory, tmp_path: Path) -> None:
    """The script turns the headings of sortable tables into buttons, which a keyboard reaches."""
    live = shown(write_report([elf_run], tmp_path / "page.html"), tmp_path / "profile")
    assert '<button type="button">training images</button>' in live
