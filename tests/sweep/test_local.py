"""The command of one run, and why it failed."""

from pathlib import Path

from elfnet.recipe.load import save_recipe
from elfnet.sweep.grid import SweepDirectory, expand_grid
from elfnet.sweep.run import failure_line, train_command


def test_a_run_that_was_started_before_resumes(tmp_path: Path) -> None:
    (cell,) = expand_grid("digits/elf-ce-drw", {}, {"train.seed": ["0"]})
    sweep = SweepDirectory(tmp_path)
    first = train_command(sweep, cell)
    assert first[-4:] == ["train", str(sweep.recipe_file(cell)), "--out", str(sweep.run(cell).root)]
    save_recipe(cell.recipe, sweep.run(cell).recipe_file)
    assert train_command(sweep, cell) == [*first, "--resume"]


def test_the_last_line_is_the_reason() -> None:
    assert failure_line("epoch 1\nelfnet: no luck\n\n") == "no luck"
    assert failure_line(" \n") == "it printed nothing"
