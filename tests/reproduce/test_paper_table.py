"""Tables as data: the paper's numbers and misprints, our own rows, the pairs, and a recipe for every row."""

import pytest

from elfnet.data.long_tail import exponential_counts
from elfnet.errors import RequestError
from elfnet.recipe.load import shipped_methods
from elfnet.reproduce.cell import Cell, cell_recipe, select_rows
from elfnet.reproduce.paper_table import PAPER_TABLES, TABLES, TIERS, load_table

ROWS = [(table, row.name) for table in TABLES for row in select_rows(load_table(table), ())]


@pytest.mark.parametrize(
    ("table", "row", "column", "numbers"),
    [
        ("table1", "ce", "imagenet-lt", (63.8, 38.5, 13.6, 44.6, 0)),
        ("table1", "lws", "inaturalist18", (65.0, 66.3, 65.5, 65.9, 0)),
        ("table1", "bbn", "inaturalist18", (None, None, None, 69.6, 100)),
        ("table1", "elf-ce-drw", "imagenet-lt", (60.7, 45.5, 27.7, 48.9, -20.7)),
        ("table1", "elf-ldam-drw-2x", "inaturalist18", (72.7, 70.4, 68.3, 69.8, -12.6)),
        ("table2", "ldam-drw", "cifar10-lt-50", (None, None, None, 81.4, 0)),
        ("table2", "manifold-mixup", "cifar100-lt-10", (None, None, None, 56.5, 0)),
        ("table2", "elf-ldam-drw", "cifar100-lt-100", (None, None, None, 43.1, -0.01)),
        ("table2", "elf-ldam-drw", "cifar100-lt-50", (None, None, None, 47.5, -2.39)),
        ("table2", "elf-ce-drw", "cifar10-lt-100", (None, None, None, 76.8, -31.9)),
        ("table3", "focal-drw", "inaturalist18", (68.3, 66.4, 63.6, 65.5, 0)),
        ("table3", "elf-ldam-drw", "imagenet-lt", (63.8, 46.5, 29.0, 50.8, -1.7)),
    ],
)
def test_numbers_of_the_paper(table: str, row: str, column: str, numbers: tuple[float | None, ...]) -> None:
    cell = load_table(table).row(row).paper[column]
    assert (cell.many, cell.medium, cell.few, cell.all, cell.flops) == numbers


@pytest.mark.parametrize(
    ("table", "column", "rows", "sums"),
    [
        ("table1", "imagenet-lt", 10, (606.2, 446.6, 265.2, 483.2, -38.1)),
        ("table1", "inaturalist18", 11, (687.9, 666.7, 648.3, 731.3, 64.9)),
        ("table2", "cifar10-lt-100", 10, (0, 0, 0, 749.5, 53.0)),
        ("table2", "cifar10-lt-50", 10, (0, 0, 0, 793.5, 49.8)),
        ("table2", "cifar10-lt-10", 10, (0, 0, 0, 803.6, 54.0)),
        ("table2", "cifar100-lt-100", 10, (0, 0, 0, 385.4, 88.39)),
        ("table2", "cifar100-lt-50", 10, (0, 0, 0, 455.8, 86.11)),
        ("table2", "cifar100-lt-10", 10, (0, 0, 0, 577.2, 88.3)),
        ("table3", "imagenet-lt", 6, (374.3, 265.2, 153.8, 292.0, -4.6)),
        ("table3", "inaturalist18", 6, (422.5, 405.3, 389.0, 400.7, -7.7)),
    ],
)
def test_sums_of_the_columns_as_printed(table: str, column: str, rows: int, sums: tuple[float, ...]) -> None:
    """Every number is included, so that an error in any of them is found. The sums are from the paper's source."""
    cells = [row.paper[column] for row in load_table(table).rows if column in row.paper]
    assert len(cells) == rows
    names = ("many", "medium", "few", "all", "flops")
    printed = [cell.model_copy(update={"all": cell.all if cell.printed is None else cell.printed}) for cell in cells]
    assert [sum(getattr(cell, name) or 0 for cell in printed) for name in names] == pytest.approx(sums)


def test_misprints_are_kept_beside_the_intended_numbers() -> None:
    table = load_table("table2")
    printed = {
        (row.name, column): (cell.printed, cell.all)
        for row in table.rows
        for column, cell in row.paper.items()
        if cell.printed is not None
    }
    assert printed == {
        ("ce", "cifar10-lt-10"): (16.4, 86.4),
        ("ce", "cifar100-lt-100"): (28.3, 38.3),
        ("focal", "cifar100-lt-100"): (28.4, 38.4),
    }


def test_quoted_rows() -> None:
    quoted = {table: {row.name for row in load_table(table).rows if row.quoted} for table in PAPER_TABLES}
    assert quoted == {
        "table1": {"bbn", "crt", "lws", "tau-norm"},
        "table2": {"bbn", "focal", "mixup", "manifold-mixup"},
        "table3": set(),
    }


def test_rows_that_the_paper_does_not_have_are_marked() -> None:
    for name in PAPER_TABLES:
        rows = load_table(name).rows
        assert len({row.name for row in rows}) == len(rows)
        extra = {row.name for row in rows if not row.in_paper}
        assert {"joint-ce-drw", "branchynet", "logit-adjustment", "elf-ldam-scaled-drw"} <= extra
        assert ("msdnet" in extra) is (name == "table2")
        assert {"elf-ce-drw-2x", "elf-ldam-drw-2x"} <= {row.name for row in rows if row.epochs_factor == 2}
        assert ("crt" in extra) is (name != "table1")


def test_every_shipped_method_but_those_without_deferral_has_a_row() -> None:
    """A new method needs a row. The paper defers all its class weights; two are for a user's own images."""
    without = {
        "joint-quick",
        "fine-tune",
        "ldam",
        "elf-ce",
        "elf-focal",
        "elf-focal-drw",
        "elf-ldam",
    }
    strong = {row.method for row in select_rows(load_table("strong"), ())}
    assert strong == {"plain-strong", "joint-strong", "elf-strong", "elf-strong-experts"}
    assert {row.method for row in load_table("table2").rows} == set(shipped_methods()) - without - strong


def test_published_networks_of_the_strong_table_have_width_and_cost() -> None:
    table = load_table("strong")
    published = {row.name: row for row in table.rows if row.in_paper}
    assert all(row.method is None for row in published.values())
    assert all(cell.width is not None for row in published.values() for cell in row.paper.values())
    shike = published["published-shike"].paper["cifar100-lt-100"]
    assert (shike.all, shike.width, shike.cost) == (56.34, 16, 1.74)
    with pytest.raises(RequestError, match="unknown row of strong 'published-shike'"):
        select_rows(table, ["published-shike"])


def test_a_row_may_be_a_variant_of_its_method() -> None:
    table = load_table("strong")
    cells = {row: Cell(table.row(row), table.columns[0], 0) for row in ("plain-strong", "plain-strong-resnet20")}
    backbones = {row: cell_recipe(cell, TIERS["medium"], {}).model.backbone for row, cell in cells.items()}
    assert backbones == {"plain-strong": "resnet32", "plain-strong-resnet20": "resnet20"}


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(RequestError, match="unknown table 'table4'; did you mean 'table"):
        load_table("table4")
    with pytest.raises(RequestError, match="did you mean 'elf-ce-drw'"):
        load_table("table2").row("elf-ce-drv")


@pytest.mark.parametrize(("table", "row"), ROWS, ids=["-".join(pair) for pair in ROWS])
def test_every_row_has_a_recipe_at_every_tier(table: str, row: str) -> None:
    paper_table = load_table(table)
    for tier in TIERS.values():
        cell = Cell(paper_table.row(row), paper_table.columns[-1], 0)
        recipe = cell_recipe(cell, tier, {}, starts_from="run" if cell.row.starts_from else "")
        assert bool(recipe.refit.run) is (cell.row.starts_from is not None)


def test_images_of_the_cifar_columns() -> None:
    """200 (20) images per class are held out first, which limits the largest classes."""
    for column in load_table("table2").columns:
        size, held_out = (5000, 200) if column.classes == 10 else (500, 20)
        counts = exponential_counts(largest=size, ratio=column.settings["data.ratio"], classes=column.classes)
        assert column.images == sum(min(count, size - held_out) for count in counts)


@pytest.mark.parametrize("name", TABLES)
def test_pairs_are_of_rows_in_the_table(name: str) -> None:
    table = load_table(name)
    rows = {row.name for row in table.rows}
    assert table.pairs
    assert {pair.row for pair in table.pairs} | {pair.against for pair in table.pairs} <= rows


def test_table_2_has_all_pairs_of_the_papers_methods() -> None:
    """A wrong name would remove the pair from all tables."""
    assert len(load_table("table2").pairs) == 16
