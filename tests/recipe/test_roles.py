"""Roles of settings: what comparisons, hashes and published records leave out."""

from elfnet.recipe.roles import role_of, settings_with_role, without_directories
from elfnet.recipe.schema import Recipe

PATH_LIKE = {"data.directory", "data.root", "data.cache", "data.train", "data.calibration", "data.test"}


def test_every_setting_that_names_a_path_is_a_location_or_a_file() -> None:
    assert PATH_LIKE | {"model.weights", "refit.run"} == settings_with_role("location", "file")


def test_roles_of_single_settings() -> None:
    assert role_of("train.threads") == "machine"
    assert role_of("track.wandb") == "tracking"
    assert role_of("exits.search") == "after-training"
    assert role_of("data.cutout") == "presentation"
    assert role_of("train.epochs") is None


def test_a_published_recipe_has_no_directory() -> None:
    content = Recipe().model_dump(mode="json")
    content["data"] |= {"root": "/home/me/photos", "train": "/home/me/lists/train.txt", "cache": "/tmp/cache"}
    content["model"]["weights"] = "/home/me/resnet.safetensors"
    content["refit"]["run"] = "/home/me/runs/ce"
    published = without_directories(content)
    assert published["data"]["root"] == published["data"]["cache"] == published["refit"]["run"] == ""
    assert published["data"]["train"] == "train.txt"
    assert published["model"]["weights"] == "resnet.safetensors"
    assert not [value for fields in published.values() for value in fields.values() if "/home" in str(value)]
    assert content["data"]["root"] == "/home/me/photos"
