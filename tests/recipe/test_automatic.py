"""Automatic settings: which are chosen from what, and that given ones are kept."""

from pathlib import Path

import pytest

from elfnet.errors import RequestError
from elfnet.recipe.automatic import DataFacts, adopt, choose_settings, contradictions, resolve, wanted_epochs
from elfnet.recipe.load import load_recipe, save_recipe

GREY = DataFacts(side=28, grey=True, class_counts=(1000, 1780, 20))
PHOTOS = DataFacts(side=600, grey=False, class_counts=(900, 300))


def test_small_grey_images_keep_their_size_and_are_not_mirrored() -> None:
    chosen = choose_settings(GREY, load_recipe("folder"))
    assert chosen["data.image_size"] == 32
    assert chosen["data.augment"] == "crop"
    assert chosen["model.backbone"] == "resnet9"
    assert chosen["train.epochs"] == 89
    assert chosen["data.normalise"] == "measured"


@pytest.mark.parametrize(("on_cpu", "size", "backbone"), [(True, 128, "resnet9_s2"), (False, 224, "resnet18")])
def test_photos_get_a_network_that_the_machine_can_train_and_random_parts(
    on_cpu: bool, size: int, backbone: str
) -> None:
    chosen = choose_settings(PHOTOS, load_recipe("folder"), on_cpu=on_cpu)
    assert chosen["data.image_size"] == size
    assert chosen["data.augment"] == "resized-crop-flip"
    assert chosen["model.backbone"] == backbone


@pytest.mark.parametrize(("side", "size"), [(8, 32), (32, 32), (33, 40), (64, 64), (65, 96), (150, 128), (4000, 224)])
def test_image_size_follows_the_files(side: int, size: int) -> None:
    facts = DataFacts(side=side, grey=False, class_counts=(500, 500))
    assert choose_settings(facts, load_recipe("folder"), on_cpu=False)["data.image_size"] == size


def test_a_given_backbone_decides_the_image_size() -> None:
    recipe = load_recipe("folder", {"model.backbone": "resnet32"})
    assert choose_settings(PHOTOS, recipe)["data.image_size"] == 64


def test_a_given_image_size_decides_backbone_and_augmentation() -> None:
    chosen = choose_settings(PHOTOS, load_recipe("folder", {"data.image_size": 48}))
    assert (chosen["model.backbone"], chosen["data.augment"]) == ("resnet9", "crop-flip")


def test_weights_of_imagenet_need_its_normalisation() -> None:
    recipe = load_recipe("folder", {"model.weights": "resnet18.safetensors"})
    assert choose_settings(PHOTOS, recipe)["data.normalise"] == "imagenet"


def test_epochs_shrink_with_the_number_of_images() -> None:
    assert [wanted_epochs(n) for n in (100, 5_000, 1_000_000)] == [100, 50, 40]


def test_a_given_setting_is_not_automatic_wherever_it_is_given(tmp_path: Path) -> None:
    assert "train.epochs" in load_recipe("folder").train.automatic
    assert "train.epochs" not in load_recipe("folder", {"train.epochs": 5}).train.automatic
    assert "train.epochs" not in load_recipe("folder/crt").train.automatic
    (tmp_path / "mine.toml").write_text('extends = "folder"\n[train]\nepochs = 7\n')
    mine = load_recipe(str(tmp_path / "mine.toml"))
    assert "train.epochs" not in mine.train.automatic
    assert "model.backbone" in mine.train.automatic


def test_resolve_fills_in_open_settings_only() -> None:
    recipe = load_recipe("folder", {"train.epochs": 5})
    resolved = resolve(recipe, {"train.epochs": 80, "data.image_size": 40})
    assert (resolved.train.epochs, resolved.data.image_size, resolved.train.automatic) == (5, 40, ())


def test_a_resolved_recipe_stays_resolved_in_its_file(tmp_path: Path) -> None:
    save_recipe(resolve(load_recipe("folder"), {"data.image_size": 40}), tmp_path / "recipe.toml")
    stored = load_recipe(str(tmp_path / "recipe.toml"))
    assert (stored.data.image_size, stored.train.automatic) == (40, ())


def test_adopt_takes_open_settings_from_a_resolved_recipe() -> None:
    resolved = resolve(load_recipe("folder"), {"data.image_size": 40, "train.epochs": 80})
    adopted = adopt(load_recipe("folder", {"train.epochs": 5}), resolved)
    assert (adopted.data.image_size, adopted.train.epochs) == (40, 5)


def test_the_default_method_of_own_images_is_not_that_of_the_paper() -> None:
    assert load_recipe("folder") == load_recipe("folder/joint-quick")
    assert load_recipe("digits") == load_recipe("digits/elf-ce-drw")


def test_a_setting_that_cannot_be_automatic_is_refused() -> None:
    with pytest.raises(RequestError, match=r"train.automatic has train.seed, which cannot be chosen"):
        load_recipe("folder", {"train.automatic": ["train.seed"]})


def test_224_pixels_for_28_contradict_the_data() -> None:
    recipe = resolve(load_recipe("folder", {"data.image_size": 224, "model.backbone": "resnet18"}), {})
    (warning,) = contradictions(GREY, recipe)
    assert "data.image_size=224 enlarges images of 28 px and costs 49 times" in warning
    assert "--data.image_size 32" in warning


def test_a_large_network_on_small_images_contradicts_them() -> None:
    recipe = resolve(load_recipe("folder", {"data.image_size": 32, "model.backbone": "resnet18"}), {})
    (warning,) = contradictions(GREY, recipe)
    assert "--model.backbone resnet9" in warning


@pytest.mark.parametrize("backbone", ["resnet50", "densenet121"])
def test_a_size_that_was_chosen_for_a_backbone_contradicts_nothing_but_the_backbone(backbone: str) -> None:
    recipe = load_recipe("folder", {"model.backbone": backbone})
    chosen = resolve(recipe, choose_settings(GREY, recipe))
    assert contradictions(GREY, chosen, size_is_chosen=True) == [
        f"model.backbone={backbone} needs images of 96 px, and these have 28 px; "
        "--model.backbone resnet9 is made for them"
    ]
    followed = load_recipe("folder", {"model.backbone": "resnet9"})
    chosen = resolve(followed, choose_settings(GREY, followed))
    assert contradictions(GREY, chosen, size_is_chosen=True) == []


def test_a_size_that_was_chosen_for_weights_contradicts_nothing() -> None:
    recipe = load_recipe("folder", {"model.backbone": "resnet50", "model.weights": "resnet50.safetensors"})
    assert contradictions(GREY, resolve(recipe, choose_settings(GREY, recipe)), size_is_chosen=True) == []


def test_automatic_choices_never_contradict_the_data() -> None:
    for facts in (GREY, PHOTOS):
        recipe = load_recipe("folder")
        assert contradictions(facts, resolve(recipe, choose_settings(facts, recipe))) == []
