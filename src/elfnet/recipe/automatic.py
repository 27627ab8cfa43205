"""Automatic settings: what a recipe leaves open is chosen from the data.

`train.automatic` lists the settings that are open. `choose_settings` fills in those that follow from the files alone;
the length of the training and the side of large images also depend on the speed of the machine, which
`elfnet.train.automatic` measures. A resolved recipe has an empty list, so it is never resolved again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elfnet.recipe.load import validate_recipe
from elfnet.recipe.schema import Recipe

SMALL_SIDE = 64
"""Images up to this shorter side keep their resolution, and use a network for small images."""
SMALLEST_INPUT = 32
"""Smaller images are enlarged to this side, so that the last stage has more than a few pixels to see."""
LARGE_SIDES = (224, 192, 160, 128, 112, 96)
"""Candidates for the side of larger images, most accurate first."""
QUICK_BACKBONE, MAX_QUICK_SIDE = "resnet9_s2", 128
"""The network for large images on a CPU, and the largest side that is chosen for it: it is too shallow for more."""
CROSS_FITTING_FOLDS, MIN_CALIBRATION_IMAGES = 3, 5
"""Folds of cross-fitting, which is chosen if a class would have fewer calibration images than this."""
EXAMPLES_TO_SHOW, MIN_EPOCHS, MAX_EPOCHS = 250_000, 40, 100
"""A training shows about so many images, within these numbers of epochs."""
ROW_EPOCHS, MIN_ROW_STEPS, MAX_ROW_STEPS = 250, 1_000, 5_000
MIN_ROW_EPOCHS, MAX_ROW_EPOCHS = 60, 500
"""A training on feature rows has so many epochs, more or fewer to stay within these numbers of steps, and at any rate
these numbers of epochs."""


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """What is known about image files from their headers and their classes.

    Attributes:
        side: Median of the shorter sides, in pixels.
        grey: Whether nearly all images are grey.
        class_counts: Training images per class.
        calibration: Number of calibration images.
        test: Number of test images.
    """

    side: int
    grey: bool
    class_counts: tuple[int, ...]
    calibration: int = 0
    test: int = 0

    @property
    def images(self) -> int:
        """Number of training images."""
        return sum(self.class_counts)

    def describe(self) -> str:
        """Such as `28 px grey, 2,800 images of 10 classes (1,000 to 20 per class)`."""
        most, least = max(self.class_counts), min(self.class_counts)
        return (
            f"{self.side} px {'grey' if self.grey else 'colour'}, {self.images:,} images of {len(self.class_counts)} "
            f"classes ({most:,} to {least:,} per class)"
        )


def is_small_backbone(name: str) -> bool:
    """Whether a backbone is made for small images: it keeps their resolution in its first layer."""
    return name in ("msdnet", "resnet32_late") or name in {f"resnet{depth}" for depth in (8, 9, 14, 20, 32, 44, 56)}


def wanted_epochs(images: int) -> int:
    """Number of epochs after which more training hardly helps."""
    return max(MIN_EPOCHS, min(MAX_EPOCHS, round(EXAMPLES_TO_SHOW / images)))


def wanted_row_epochs(rows: int, batch_size: int) -> int:
    """Number of epochs for feature rows. They are short, so that small tables need many for enough steps.

    Example:
        >>> [wanted_row_epochs(rows, 64) for rows in (100, 290, 1_300, 50_000)]
        [500, 250, 239, 60]
    """
    steps = -(-rows // batch_size)
    wanted = max(-(-MIN_ROW_STEPS // steps), min(ROW_EPOCHS, -(-MAX_ROW_STEPS // steps)))
    return min(MAX_ROW_EPOCHS, max(MIN_ROW_EPOCHS, wanted))


def choose_settings(facts: DataFacts, recipe: Recipe, *, on_cpu: bool = True) -> dict[str, Any]:
    """Choose the settings that follow from the data, by dotted name.

    Given settings are respected: the image size fits a given backbone, and the augmentation a given image size. Large
    images get the largest candidate for their side, which the caller may lower.

    Args:
        on_cpu: Whether a CPU trains the network. Large images then get a network that trains quickly.
    """
    given = resolve(recipe, {})
    opened = set(recipe.train.automatic)
    small = facts.side <= SMALL_SIDE
    if "model.backbone" not in opened:
        small = is_small_backbone(given.model.backbone)
    elif "data.image_size" not in opened:
        small = given.data.image_size <= SMALL_SIDE
    backbone = _backbone(small=small, on_cpu=on_cpu) if "model.backbone" in opened else given.model.backbone
    side = _side(facts, backbone) if "data.image_size" in opened else given.data.image_size
    return {
        "data.image_size": side,
        # What a class is known by may lie at the ends of the longer side. Networks from ImageNet expect true shapes.
        "data.fit": "crop" if recipe.model.weights else "squash",
        **augmentation_settings(facts, side),
        "data.normalise": "imagenet" if recipe.model.weights else "measured",
        # Small images are decoded faster than a second process starts to pay.
        "data.workers": 0 if small else -1,
        "model.backbone": backbone,
        "train.batch_size": 32 if facts.images < 1_000 else 64 if facts.images < 20_000 else 128,
        # On CPUs it takes a minute, and may then make steps of ResNet-9 slower: 1.1 times the time with AVX2.
        "train.compile": "off" if on_cpu else "auto",
        "train.epochs": wanted_epochs(facts.images),
    }


def _backbone(*, small: bool, on_cpu: bool = True) -> str:
    if small:
        return "resnet9"
    return QUICK_BACKBONE if on_cpu else "resnet18"


def _side(facts: DataFacts, backbone: str) -> int:
    """Side of the network's input: a multiple of 8 that is not below the files' own, up to 64; else a candidate."""
    if is_small_backbone(backbone):
        return max(SMALLEST_INPUT, min(SMALL_SIDE, -(-facts.side // 8) * 8))
    most = min(facts.side, MAX_QUICK_SIDE) if backbone == QUICK_BACKBONE else facts.side
    return next((side for side in LARGE_SIDES if side <= most), LARGE_SIDES[-1])


def augmentation_settings(facts: DataFacts, side: int) -> dict[str, Any]:
    """Gentle augmentation for an image side.

    Small images are shifted, by up to a tenth of their side (`data.pad` is -1); of large images random parts are shown.
    Only colour images are mirrored: grey ones are often characters, or X-rays, whose class a mirror changes.
    """
    flip = "" if facts.grey else "-flip"
    small = side <= SMALL_SIDE
    return {
        "data.augment": f"crop{flip}" if small else f"resized-crop{flip}",
        "data.min_crop_area": 0.35,
        "data.colour_jitter": 0.0 if facts.grey or small else 0.2,
    }


def resolve(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """Fill in automatic settings.

    Args:
        recipe: Its list `train.automatic` names the open settings.
        values: By dotted name; those that are not open are ignored.

    Returns:
        The recipe with an empty list of automatic settings.
    """
    content = recipe.model_dump()
    for dotted in recipe.train.automatic:
        if dotted in values:
            section, _, name = dotted.partition(".")
            content[section][name] = values[dotted]
    content["train"]["automatic"] = ()
    return validate_recipe("with automatic settings", content)


def adopt(recipe: Recipe, resolved: Recipe) -> Recipe:
    """Fill in automatic settings with those of a resolved recipe, such as that of the run to resume."""
    content = resolved.model_dump()
    names = (dotted.split(".") for dotted in recipe.train.automatic)
    return resolve(recipe, {f"{section}.{name}": content[section][name] for section, name in names})


def contradictions(facts: DataFacts, recipe: Recipe, *, size_is_chosen: bool = False) -> list[str]:
    """Warnings about settings that do not fit the data, each with the better value.

    Args:
        size_is_chosen: Whether the image size was chosen for the backbone; then the backbone alone may not fit.
    """
    size, backbone = recipe.data.image_size, recipe.model.backbone
    side = _side(facts, _backbone(small=facts.side <= SMALL_SIDE))
    warnings = []
    enlarged = size >= 2 * max(facts.side, SMALLEST_INPUT)
    if enlarged and size_is_chosen:
        # Published weights are of one backbone, and expect images of about this size.
        if not recipe.model.weights:
            warnings.append(
                f"model.backbone={backbone} needs images of {size} px, and these have {facts.side} px; "
                f"--model.backbone {_backbone(small=facts.side <= SMALL_SIDE)} is made for them"
            )
    elif enlarged:
        times = round((size / side) ** 2)
        warnings.append(
            f"data.image_size={size} enlarges images of {facts.side} px and costs {times} times as much as "
            f"--data.image_size {side}, which shows as much"
        )
    if (
        not recipe.model.weights
        and size <= SMALL_SIDE
        and backbone.startswith("resne")
        and not is_small_backbone(backbone)
    ):
        warnings.append(
            f"model.backbone={backbone} shrinks images of {size} px to a few pixels; "
            f"--model.backbone {_backbone(small=True)} is made for them"
        )
    if size > 2 * SMALL_SIDE and is_small_backbone(backbone):
        warnings.append(
            f"model.backbone={backbone} is made for images of up to {SMALL_SIDE} px and slow at {size} px; use "
            f"--model.backbone {QUICK_BACKBONE}, or a smaller --data.image_size"
        )
    return warnings
