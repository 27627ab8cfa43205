"""Going on with a run on another machine: files may have moved, and how it is computed stays as it began."""

from pathlib import Path

from elfnet.recipe.load import load_recipe
from elfnet.reproduce.run_cell import recipe_to_go_on_with
from elfnet.run.directory import RunDirectory


def test_a_new_run_has_the_recipe_asked_for(tmp_path: Path) -> None:
    asked = load_recipe("imagenet-lt/ce", {"data.root": "images"})
    assert recipe_to_go_on_with(RunDirectory(tmp_path / "run"), asked) == asked


def test_a_run_that_is_there_keeps_its_machine_and_follows_its_files(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create(load_recipe("imagenet-lt/crt", {"data.root": "old", "refit.run": "old/ce", "train.threads": 2}), {})
    asked = load_recipe("imagenet-lt/crt", {"data.root": "new", "refit.run": "new/ce", "train.threads": 4})
    found = recipe_to_go_on_with(run, asked)
    assert (found.data.root, found.refit.run, found.train.threads) == ("new", "new/ce", 2)
    # The run's own file says so too: evaluation reads the data from there.
    assert run.recipe() == found
