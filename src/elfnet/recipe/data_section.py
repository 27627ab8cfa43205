"""The data section of a recipe, and the base class of all sections."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Switch = Literal["auto", "on", "off"]
NonNegative = Annotated[float, Field(ge=0)]


class Section(BaseModel):
    """A frozen group of settings; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class DataRecipe(Section):
    """Data set, class counts, held-out splits, augmentation and loading."""

    source: str = Field(default="digits", description="name of the data set; 'elfnet data ls' lists them")
    directory: str = Field(
        default="",
        description="directory of a published data set; empty: search $ELFNET_DATA and the cache, then download",
        json_schema_extra={"role": "location"},
    )
    root: str = Field(
        default="",
        description="source=folder: the folder of class folders; lists and tables: base directory of their paths",
        json_schema_extra={"role": "location"},
    )
    train: str = Field(
        default="",
        description="training examples: a list, a table, an array file or a folder",
        json_schema_extra={"role": "file"},
    )
    calibration: str = Field(
        default="",
        description="calibration examples, in the same form as data.train; empty: held out from the training examples",
        json_schema_extra={"role": "file"},
    )
    test: str = Field(
        default="",
        description="test examples, in the same form as data.train; empty: held out from the training examples",
        json_schema_extra={"role": "file"},
    )
    path_column: str = Field(default="path", description="tables: column with the image paths")
    label_column: str = Field(
        default="label", description="tables, Parquet features, hub: column with the class labels"
    )
    group_column: str = Field(
        default="",
        description="tables, arrays, hub: column with the group of each example (such as a patient); a group is never "
        "divided between splits",
    )
    hub: str = Field(default="", description="source=hub: name of the data set on the hub (needs the package datasets)")
    protocol: Literal["calibrated", "ldam-drw"] = Field(
        default="calibrated",
        description="calibrated: three disjoint splits; ldam-drw (CIFAR): data, schedule and reporting of LDAM-DRW's "
        "reference code: its training images, no calibration split, fixed normalisation, a learning rate per epoch, "
        "test accuracy after every epoch, and thresholds fixed in advance (or by data.cross_fitting)",
    )
    profile: Literal["exponential", "pareto", "step", "counts", "none"] = Field(
        default="exponential", description="shape of the long tail of training counts; none: keep all training examples"
    )
    ratio: Annotated[float, Field(ge=1)] = Field(
        default=100.0, description="size of the largest class divided by the size of the smallest"
    )
    pareto_alpha: PositiveFloat = Field(
        default=6.0, description="profile=pareto: shape parameter; a larger value gives a flatter tail"
    )
    step_tail_fraction: Fraction = Field(default=0.5, description="profile=step: fraction of the classes that are rare")
    counts: tuple[PositiveInt, ...] = Field(
        default=(), description="profile=counts: training images per class, most frequent class first"
    )
    largest: int = Field(
        default=0, ge=0, description="training images of the largest class; 0: as many as the source has"
    )
    calibration_per_class: int = Field(
        default=200,
        ge=0,
        description="images per class held out for calibration; 0: 10 % of each class, or none with cross_fitting",
    )
    cross_fitting: Annotated[int, Field(ge=0, le=10)] = Field(
        default=0,
        description="folds of cross-fitting: no image is held out for calibration; so many networks are trained before "
        "the final one, each without one fold of the training images, and operating points are chosen on the folds "
        "that they have not seen, as estimates without a promise; 0: none",
    )
    fold: Annotated[int, Field(ge=0, le=10)] = Field(
        default=0,
        description="cross_fitting: the fold that is the calibration split, counted from 1; 0: none, the final network "
        "(training sets it for the networks of the folds)",
    )
    test_per_class: int = Field(
        default=50,
        ge=0,
        description="images per class held out for test if there is no test set; 0: 20 % of each class",
    )
    subset_seed: Seed = Field(default=0, description="seed that selects the held-out and the kept images")
    class_order_seed: int = Field(
        default=-1, ge=-1, description="seed that assigns frequency ranks to classes; -1: in label order"
    )
    many_above: PositiveInt = Field(
        default=100,
        description="classes with more training images than this form the group 'many'",
        json_schema_extra={"role": "presentation"},
    )
    few_below: PositiveInt = Field(
        default=20,
        description="classes with fewer training images than this form the group 'few'",
        json_schema_extra={"role": "presentation"},
    )
    sampler: Literal["shuffle", "class-balanced", "square-root", "reversed"] = Field(
        default="shuffle",
        description="order of an epoch. shuffle: every image once. The others draw as many images by class: all "
        "classes equally often (class-balanced), in proportion to the square root of the class count (square-root), "
        "or in inverse proportion to the class count (reversed)",
        json_schema_extra={"role": "presentation"},
    )
    augment: Literal["crop-flip", "crop", "resized-crop-flip", "resized-crop", "none"] = Field(
        default="crop-flip",
        description="random crop of the padded image (crop) or of a random part that is then resized (resized-crop, "
        "image files only); flip: mirror half of the images, if the data set allows it",
        json_schema_extra={"role": "presentation"},
    )
    pad: int = Field(
        default=4,
        ge=-1,
        description="augment=crop, crop-flip: zero padding on each side, in pixels; -1: a tenth of the image's side",
        json_schema_extra={"role": "presentation"},
    )
    min_crop_area: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.08,
        description="augment=resized-crop: smallest part of the image, as a fraction of its area",
        json_schema_extra={"role": "presentation"},
    )
    colour_jitter: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0,
        description="image files: largest relative change of brightness, contrast and saturation; 0: none",
        json_schema_extra={"role": "presentation"},
    )
    policy: Literal["none", "autoaugment", "randaugment", "trivialaugment"] = Field(
        default="none",
        description="augmentation policy after crop and flip: AutoAugment (the CIFAR-10 policy), RandAugment or "
        "TrivialAugment (wide range)",
        json_schema_extra={"role": "presentation"},
    )
    randaugment_operations: PositiveInt = Field(
        default=2, description="policy=randaugment: operations per image", json_schema_extra={"role": "presentation"}
    )
    randaugment_magnitude: Annotated[int, Field(ge=0, le=30)] = Field(
        default=9,
        description="policy=randaugment: magnitude of the operations",
        json_schema_extra={"role": "presentation"},
    )
    cutout: int = Field(
        default=0,
        ge=0,
        description="Cutout: side of the square erased in every training image, in pixels of the network's input; "
        "0: none",
        json_schema_extra={"role": "presentation"},
    )
    random_erasing: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0,
        description="random erasing: probability that a random rectangle of a training image is erased; 0: none",
        json_schema_extra={"role": "presentation"},
    )
    image_size: PositiveInt = Field(
        default=224, description="image files: side of the square input of the network, in pixels"
    )
    fit: Literal["crop", "squash"] = Field(
        default="crop",
        description="image files that are not square: crop the centre, which loses the ends of the longer side, or "
        "squash the whole image to a square, which changes its aspect ratio",
    )
    resize: int = Field(
        default=0,
        ge=0,
        description="image files: length of the shorter side before the centre crop of evaluation (fit=squash: of both "
        "sides); 0: 8/7 of image_size with augment=resized-crop and fit=crop, else image_size",
    )
    normalise: Literal["auto", "measured", "imagenet", "none"] = Field(
        default="auto",
        description="mean and standard deviation per channel: measured on the training split, those of ImageNet, or "
        "none; auto: imagenet for image files, else measured",
    )
    cache: str = Field(
        default="",
        description="image files: directory of a memory-mapped cache of decoded images; empty: no cache",
        json_schema_extra={"role": "location"},
    )
    workers: int = Field(
        default=-1,
        ge=-1,
        description="image files: number of loader processes; 0: load in the main process; -1: one per core, at most 8",
        json_schema_extra={"role": "machine"},
    )
    unreadable: Literal["stop", "skip"] = Field(
        default="stop",
        description="what to do with an image that cannot be read: stop with an error, or skip it and log a warning",
        json_schema_extra={"role": "presentation"},
    )
    max_megapixels: Annotated[float, Field(gt=0, le=178)] = Field(
        default=80.0,
        description="largest image in million pixels; larger ones count as unreadable and are not decoded",
        json_schema_extra={"role": "presentation"},
    )
    max_megabytes: PositiveFloat = Field(
        default=64.0,
        description="largest image file in megabytes; larger ones count as unreadable",
        json_schema_extra={"role": "presentation"},
    )

    @model_validator(mode="after")
    def _consistent(self) -> "DataRecipe":
        if self.profile == "counts" and not self.counts:
            raise ValueError("profile=counts needs data.counts, for example 500,100,20")
        if self.protocol == "ldam-drw":
            self._check_protocol()
        self._check_cross_fitting()
        if self.few_below > self.many_above + 1:
            raise ValueError(f"few_below={self.few_below} overlaps many_above={self.many_above}; lower it")
        if 0 < self.resize < self.image_size:
            raise ValueError(f"resize={self.resize} is below image_size={self.image_size}; raise it, or set it to 0")
        return self

    def _check_cross_fitting(self) -> None:
        folds = self.cross_fitting
        if folds == 1:
            raise ValueError("cross_fitting=1 leaves no fold to train on; set it to 3, or to 0 for none")
        if self.fold > folds:
            raise ValueError(f"fold={self.fold} is not one of cross_fitting={folds} folds; lower it")
        if folds and self.calibration:
            raise ValueError(
                f"cross_fitting={folds} is for data without calibration images, and data.calibration="
                f"{self.calibration} names some; leave one of them out"
            )
        if folds and self.protocol != "ldam-drw" and self.calibration_per_class:
            raise ValueError(
                f"cross_fitting={folds} holds no image out for calibration, and calibration_per_class="
                f"{self.calibration_per_class} would; set data.calibration_per_class=0"
            )

    def _check_protocol(self) -> None:
        """Refuse settings of other data under data.protocol=ldam-drw."""
        for holds, setting, way_out in (
            (self.source in ("cifar10", "cifar100"), f"source={self.source}", "use cifar10-lt or cifar100-lt"),
            (self.profile in ("exponential", "step"), f"profile={self.profile}", "use exponential or step"),
            (self.step_tail_fraction == 0.5, f"step_tail_fraction={self.step_tail_fraction:g}", "leave it out"),
            (self.largest == 0, f"largest={self.largest}", "leave it out"),
            (self.class_order_seed == -1, f"class_order_seed={self.class_order_seed}", "leave it out"),
            (self.normalise == "auto", f"normalise={self.normalise}", "leave it out"),
        ):
            if not holds:
                raise ValueError(f"protocol=ldam-drw fixes the data, and data.{setting} changes it; {way_out}")
