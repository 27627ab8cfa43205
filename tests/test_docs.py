"""The documentation is true of the code: settings, commands, snippets and links."""

import ast
import re
import runpy
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import elfnet
from elfnet.cli.arguments import recipe_overrides
from elfnet.cli.main import VERBS
from elfnet.data.build import SOURCES
from elfnet.recipe import load

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
EXAMPLE_FOLDERS = ("images", "photos")
"""What the documentation calls a folder of the reader's."""
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(elfnet [^`]+)`")
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(page.read_text()) if kind == language]


def commands(page: Path) -> Iterator[str]:
    """Every `elfnet ...` in console blocks and in running text."""
    for body in blocks(page, "console"):
        for line in body.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.fullmatch(r"\w+=.*", words[0]):  # environment variables
                words.pop(0)
            if words and Path(words[0]).name == "elfnet":
                yield shlex.join(words)
    yield from INLINE.findall(FENCE.sub("", page.read_text()))


COMMANDS = sorted({command for page in PAGES for command in commands(page)})


@pytest.fixture
def own_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with the recipe files that the documentation shows; the first line is their name."""
    for page in PAGES:
        for body in blocks(page, "toml"):
            (tmp_path / body.splitlines()[0].lstrip("# ")).write_text(body)
    monkeypatch.chdir(tmp_path)


def test_settings_page_is_up_to_date() -> None:
    page = runpy.run_path(str(DOCS / "generate_settings.py"))["settings_page"]()
    assert (DOCS / "reference" / "settings.md").read_text() == page, "run: python docs/generate_settings.py"


def test_methods_page_is_up_to_date() -> None:
    page = runpy.run_path(str(DOCS / "generate_methods.py"))["methods_page"]()
    assert (DOCS / "methods.md").read_text() == page, "run: python docs/generate_methods.py"


def test_every_verb_is_shown() -> None:
    assert {shlex.split(command)[1] for command in COMMANDS} == set(VERBS)


@pytest.mark.usefixtures("own_recipes")
@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_accepted(command: str) -> None:
    _, verb, *words = shlex.split(command)
    asked = import_module(f"elfnet.cli.{verb}").parser().parse_strictly(words)
    if verb == "train":
        load.load_recipe(asked.recipe or load.DEFAULT_RECIPE, recipe_overrides(asked))
    if verb == "recipes" and asked.what == "show":
        load.load_recipe(asked.recipe, recipe_overrides(asked))
    if verb == "data" and asked.name is not None and asked.name not in EXAMPLE_FOLDERS:
        # A bare name is a data set; the settings given with it are checked all the same.
        load.load_recipe(load.DEFAULT_RECIPE if asked.name in SOURCES.names() else asked.name, recipe_overrides(asked))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: str(page.name))
def test_python_uses_public_names_only(page: Path) -> None:
    for snippet in blocks(page, "python"):
        imports = [node for node in ast.walk(ast.parse(snippet)) if isinstance(node, ast.Import | ast.ImportFrom)]
        for node in imports:
            if not isinstance(node, ast.ImportFrom):
                assert not any(name.name.startswith("elfnet.") for name in node.names)
                continue
            # Public names are those of `elfnet` and of packages that list theirs.
            assert node.module is not None
            if node.module.partition(".")[0] != "elfnet":
                continue
            assert {name.name for name in node.names} <= set(import_module(node.module).__all__)


def test_python_reference_lists_every_public_name() -> None:
    text = (DOCS / "reference" / "python.md").read_text()
    missing = [name for name in elfnet.__all__ if name != "__version__" and f"| `{name}" not in text]
    assert not missing


@pytest.mark.parametrize("package", ["elfnet", "elfnet.exits", "elfnet.hub", "elfnet.losses"])
def test_api_page_has_every_public_name(package: str) -> None:
    on_page = (DOCS / "reference" / "api.md").read_text().split()
    names = [name for name in import_module(package).__all__ if name != "__version__"]
    assert [name for name in names if f"{package}.{name}" not in on_page] == []


def test_every_block_is_of_a_checked_language_or_says_why_not() -> None:
    """Commands, recipes and Python are tested; text is output."""
    for page in PAGES:
        opening = re.findall(r"(<!-- not runnable: .+ -->\n)?^```(\w*)\n.*?^```$", page.read_text(), re.M | re.S)
        unknown = [kind for reason, kind in opening if not reason and kind not in ("console", "python", "text", "toml")]
        assert not unknown, page


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    (snippet,) = blocks(ROOT / "README.md", "python")
    assert len(snippet.split("\n\n")[1].splitlines()) == 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_exist(page: Path) -> None:
    targets = [target.partition("#")[0] for target in LINK.findall(FENCE.sub("", page.read_text()))]
    local = [target for target in targets if target and "://" not in target]
    missing = [target for target in local if not (page.parent / target).exists()]
    assert not missing


def test_navigation_names_every_page() -> None:
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert named == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
