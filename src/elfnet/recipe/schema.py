"""The recipe: every setting of a run, typed, documented and checked on construction.

Recipes do not enter classes: `build_*` functions flatten them into plain arguments, so that every part of the package
can be used without one.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from elfnet.recipe.checks import check_compatible

Switch = Literal["auto", "on", "off"]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
NonNegative = Annotated[float, Field(ge=0)]


class Section(BaseModel):
    """A frozen group of settings; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class DataRecipe(Section):
    """Which images, how long the tail, and what is held out."""

    source: str = Field(default="digits", description="data set: see 'elfnet data ls'")
    directory: str = Field(default="", description="where its files are; empty: $ELFNET_DATA, the cache, a download")
    root: str = Field(default="", description="folder of class folders, or what the paths in lists are relative to")
    train: str = Field(default="", description="list, table, arrays or folder of the training examples")
    calibration: str = Field(default="", description="the same for calibration; empty: held out from training data")
    test: str = Field(default="", description="the same for test; empty: held out from training data")
    path_column: str = Field(default="path", description="tables: the column of paths")
    label_column: str = Field(default="label", description="tables: the column of classes")
    group_column: str = Field(
        default="", description="tables, arrays, hub: a column (patient, burst ...) whose groups are never split up"
    )
    hub: str = Field(default="", description="source=hub: name of the data set there (needs the package datasets)")
    profile: Literal["exponential", "pareto", "step", "counts", "none"] = Field(
        default="exponential", description="shape of the class counts; 'none' uses all that is there"
    )
    ratio: Annotated[float, Field(ge=1)] = Field(default=100.0, description="largest class : smallest class")
    pareto_alpha: PositiveFloat = Field(default=6.0, description="profile=pareto: the larger, the flatter the tail")
    step_tail_fraction: Fraction = Field(default=0.5, description="profile=step: share of classes that are rare")
    counts: tuple[PositiveInt, ...] = Field(
        default=(), description="profile=counts: images by class, most frequent first"
    )
    largest: int = Field(default=0, ge=0, description="size of the largest class; 0: as many as the source has")
    calibration_per_class: int = Field(
        default=200, ge=0, description="images a class held out for calibration; 0: a tenth of each class"
    )
    test_per_class: int = Field(
        default=50, ge=0, description="images a class held out for test, without a test set; 0: a fifth of each class"
    )
    subset_seed: Seed = Field(default=0, description="which images are held out and kept")
    class_order_seed: int = Field(default=-1, ge=-1, description="which class is how frequent; -1: in order of labels")
    many_above: PositiveInt = Field(default=100, description="classes with more training images than this are 'many'")
    few_below: PositiveInt = Field(default=20, description="classes with fewer training images than this are 'few'")
    sampler: Literal["shuffle", "class-balanced", "square-root", "reversed"] = Field(
        default="shuffle",
        description="what an epoch shows: every image once, or as many drawn by class: all classes alike, by the root "
        "of their counts, or rare ones most",
    )
    augment: Literal["crop-flip", "crop", "resized-crop-flip", "resized-crop", "none"] = Field(
        default="crop-flip",
        description="random crop (resized: of a part, image files only), and flip where a mirror image keeps its label",
    )
    pad: int = Field(default=4, ge=0, description="padding of the random crop, in pixels")
    min_crop_area: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.08, description="resized-crop: least share of the area"
    )
    colour_jitter: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="image files: largest change of brightness, contrast, saturation"
    )
    policy: Literal["none", "autoaugment", "randaugment", "trivialaugment"] = Field(
        default="none",
        description="operations on shape and colours after crop and flip: AutoAugment's policy of CIFAR-10, "
        "RandAugment, or TrivialAugment (wide)",
    )
    randaugment_operations: PositiveInt = Field(default=2, description="policy=randaugment: operations per image")
    randaugment_magnitude: Annotated[int, Field(ge=0, le=30)] = Field(
        default=9, description="policy=randaugment: strength of these operations"
    )
    cutout: int = Field(
        default=0,
        ge=0,
        description="Cutout: side of the square that is erased in every training image, in pixels of the network's "
        "input; 0: none",
    )
    random_erasing: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="probability that a random rectangle of a training image is erased; 0: none"
    )
    image_size: PositiveInt = Field(default=224, description="image files: side of the square they are brought to")
    resize: int = Field(
        default=0,
        ge=0,
        description="image files: shorter side before the middle is cropped; 0: 8/7 of image_size with resized-crop, "
        "else image_size",
    )
    normalise: Literal["auto", "measured", "imagenet", "none"] = Field(
        default="auto", description="mean and deviation; auto: measured in memory, ImageNet's for image files"
    )
    cache: str = Field(
        default="", description="image files: directory of a packed cache, decoded once and memory-mapped; empty: none"
    )
    workers: int = Field(
        default=-1, ge=-1, description="image files: processes that read; 0: none; -1: one a core, at most 8"
    )
    unreadable: Literal["stop", "skip"] = Field(
        default="stop", description="an image that cannot be read: stop with its path, or skip, count and log it"
    )
    max_megapixels: Annotated[float, Field(gt=0, le=178)] = Field(
        default=80.0, description="larger images are refused before they are decoded"
    )
    max_megabytes: PositiveFloat = Field(default=64.0, description="the same for files")

    @model_validator(mode="after")
    def _consistent(self) -> "DataRecipe":
        if self.profile == "counts" and not self.counts:
            raise ValueError("profile=counts needs data.counts, for example 500,100,20")
        if self.few_below > self.many_above + 1:
            raise ValueError(f"few_below={self.few_below} overlaps many_above={self.many_above}; lower it")
        if 0 < self.resize < self.image_size:
            raise ValueError(f"resize={self.resize} is below image_size={self.image_size}; raise it, or set it to 0")
        return self


class ModelRecipe(Section):
    """Which network."""

    backbone: str = Field(
        default="resnet32",
        description="for small images resnet8, 14, 20, 32, 44 or 56; for large ones resnet10, 18, 34, 50, 101 or 152, "
        "resnext50_32x4d, densenet121, 169 or 201; for small images with many exits msdnet; for feature arrays mlp",
    )
    weights: str = Field(
        default="",
        description="file of weights that the backbone starts from: safetensors, a torch file, or a run's checkpoint",
    )
    exits: bool = Field(default=True, description="with the paper's exits; false: the plain backbone")
    branches: Literal[1, 2] = Field(
        default=1, description="2: the last block twice, for frequent and for rare classes (BBN)"
    )
    experts: PositiveInt = Field(
        default=1,
        description="copies of the last block group, each with a classifier and an exit of its own; an expert's exit "
        "answers with the mean of the experts so far",
    )
    head: Literal["linear", "cosine", "scaled"] = Field(
        default="linear", description="classifier of all exits; LDAM needs cosine, LWS scaled (linear, a scale a class)"
    )
    exit_head: Literal["auto", "conv", "separable", "none"] = Field(
        default="auto",
        description="convolutions of an early exit; auto: depthwise-separable where the backbone is an ImageNet ResNet",
    )
    head_filters: int = Field(
        default=0,
        ge=0,
        description="their filters; 0: 64 behind a CIFAR ResNet, 128 behind msdnet, else as many as there are channels",
    )
    head_stride: Literal[1, 2] = Field(default=2, description="stride of both convolutions of an early exit")


class ExitsRecipe(Section):
    """When examples leave, in training and at inference."""

    rule: Literal["elf", "all"] = Field(
        default="elf",
        description="elf: examples leave in training (eq. 1); all: everyone visits every exit",
    )
    confidence: Literal["probability", "entropy"] = Field(
        default="probability",
        description="what eq. 5 compares with a threshold: largest probability, or 1 - entropy / log C (BranchyNet)",
    )
    train_threshold: str = Field(default="0.9", description="t of eq. 1: a number, or a multiple of 1/C such as 2/C")
    train_confidence_scale: PositiveFloat = Field(default=1.0, description="logits are multiplied by this before eq. 1")
    infer_confidence_scale: PositiveFloat = Field(default=1.0, description="logits are multiplied by this before eq. 5")
    logit_adjustment: Switch = Field(
        default="off",
        description="calibration: subtract tau log prior from the logits of each exit, tau fitted from refit.taus; "
        "auto: if the balanced accuracy on the calibration split is better by two standard errors",
    )
    after_exit: Literal["mask", "drop"] = Field(
        default="mask",
        description="what happens to an example after its exit: mask its loss, or drop it and save its compute",
    )
    search: tuple[str, ...] = Field(
        default=tuple(f"{s / 100:g}" for s in range(50, 100, 5)),
        min_length=1,
        description="candidates for s of eq. 5, searched on the calibration split",
    )


class CriterionRecipe(Section):
    """Base loss and class weights."""

    loss: Literal["ce", "focal", "ldam", "balanced-softmax", "logit-adjusted"] = Field(
        default="ce", description="base loss at every exit"
    )
    focal_gamma: NonNegative = Field(default=0.5, description="focal: exponent; 0 is cross-entropy")
    ldam_max_margin: NonNegative = Field(default=0.5, description="ldam: margin of the rarest class")
    ldam_power: NonNegative = Field(default=0.25, description="ldam: margins fall as n^-power")
    cosine_scale: PositiveFloat = Field(
        default=30.0, description="model.head=cosine: every loss multiplies the cosines by this before its softmax"
    )
    adjust_tau: NonNegative = Field(default=1.0, description="logit-adjusted: logits are raised by tau log prior")
    exit_weights: tuple[PositiveFloat, ...] = Field(
        default=(), description="what the loss of each exit is multiplied by, first exit first; empty: 1"
    )
    equilibrium: bool = Field(
        default=False,
        description="gradient equilibrium: scale the gradients that exits send into the backbone, so that all exits "
        "together weigh as one; false: the plain sum",
    )
    distil: NonNegativeFloat = Field(
        default=0.0, description="how much early exits follow the last exit's answer; 1: as much as the label"
    )
    distil_temperature: PositiveFloat = Field(default=3.0, description="softens both answers in that, at the start")
    distil_confidence: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.5, description="that temperature rises until the last exit is this sure on average; 1: it stays"
    )
    reweight: Literal["none", "effective", "inverse", "inverse_sqrt"] = Field(
        default="none", description="class weights; in force from train.drw_start on"
    )
    effective_beta: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.9999, description="effective number: beta")


class TrainRecipe(Section):
    """Optimiser, schedule, and what the machine is asked to do."""

    epochs: PositiveInt = Field(default=200, description="length of the run; the schedule below is scaled to it")
    schedule_epochs: PositiveInt = Field(default=200, description="length that the schedule below is written for")
    batch_size: PositiveInt = Field(default=128, description="images a step, of all devices together")
    accumulate: PositiveInt = Field(
        default=1, description="parts that a batch is run in, one after the other, to save memory; the step is the same"
    )
    lr: PositiveFloat = Field(default=0.1, description="learning rate after warm-up")
    backbone_lr_factor: NonNegative = Field(
        default=1.0, description="the backbone learns at this times the rate of the heads; 0 freezes it"
    )
    optimizer: Literal["sgd", "adamw"] = Field(default="sgd", description="SGD with momentum, or AdamW")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.9, description="momentum of SGD; adamw: beta1")
    nesterov: bool = Field(default=False, description="sgd: Nesterov's form of momentum")
    beta2: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.999, description="adamw: beta2")
    weight_decay: NonNegative = Field(default=2e-4, description="weight decay")
    decay_norms_and_biases: bool = Field(
        default=True, description="weight decay on normalisation weights and biases, too; false: on no vector"
    )
    schedule: Literal["steps", "cosine", "one-cycle"] = Field(
        default="steps",
        description="steps: the rate drops at train.lr_steps; cosine: it falls to zero along half a cosine; one-cycle: "
        "it rises during the warm-up and falls to almost zero, along half a cosine each",
    )
    warmup_epochs: NonNegative = Field(
        default=5.0, description="length of the warm-up: linear, or the rising part of one-cycle"
    )
    lr_steps: tuple[int, ...] = Field(default=(160, 180), description="schedule=steps: epochs at which the rate drops")
    lr_factor: PositiveFloat = Field(
        default=0.01, description="schedule=steps: what the rate is multiplied by at each drop"
    )
    ema_decay: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="decay per step of an exponential moving average of the weights, which is then what is evaluated, "
        "calibrated and exported; 0: none",
    )
    drw_start: int = Field(default=0, ge=0, description="epoch from which class weights apply; 0: from the start")
    mix: Literal["none", "mixup", "manifold", "cutmix", "cmo"] = Field(
        default="none",
        description="train on pairs: means of two images (mixup), or of their features at a random depth (manifold); a "
        "patch of another image of the batch pasted in (cutmix), or a patch of an image of a rare class (cmo)",
    )
    mix_alpha: PositiveFloat = Field(default=1.0, description="shares of a pair are drawn from Beta(alpha, alpha)")
    mix_probability: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="probability that a batch is mixed"
    )
    mix_off_epochs: int = Field(
        default=0, ge=0, description="number of first epochs, and also of last epochs, in which nothing is mixed"
    )
    resize_start: Annotated[float, Field(ge=0.25, le=1)] = Field(
        default=1.0,
        description="progressive resizing: side of training images at the start, as a share of the full one; 1: none",
    )
    resize_until: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.75, description="progressive resizing: share of the epochs after which images have their full side"
    )
    prune: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="share of the easy examples of a class that an epoch leaves out; those that are shown are weighted "
        "for them; 0: none",
    )
    prune_patience: PositiveInt = Field(
        default=3, description="an example is easy after leaving at the first exit in this many epochs in a row"
    )
    prune_floor: PositiveInt = Field(default=5, description="examples of each class that every epoch shows at least")
    prune_until: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.875, description="share of the epochs after which all examples are shown again"
    )
    seed: Seed = Field(default=0, description="initial weights, order and augmentation")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="of the backbone; auto: bfloat16 where the machine computes it natively"
    )
    compile: Switch = Field(default="auto", description="torch.compile; auto: if the run is long enough to pay for it")
    channels_last: Switch = Field(default="auto", description="memory layout of images and features")
    device: str = Field(default="auto", description="auto, cpu, cuda, mps")
    threads: int = Field(default=0, ge=0, description="CPU threads; 0: torch's choice")
    sync_batch_norm: bool = Field(
        default=False, description="batch norm over all devices' parts of a batch (GPUs); false: over each part"
    )
    evaluate_every: PositiveInt = Field(default=1, description="epochs between looks at the calibration split")


class RefitRecipe(Section):
    """Classifiers fitted anew on features that stay as they are."""

    method: Literal[
        "none",
        "balanced",
        "crt",
        "lws",
        "tau-norm",
        "logit-adjustment",
        "over-sampling",
        "under-sampling",
        "smote",
        "borderline-smote",
        "adasyn",
        "edited-nearest-neighbours",
        "cluster-under-sampling",
    ] = Field(default="none", description="what is done to them: see the methods page of the documentation")
    run: str = Field(default="", description="the finished run; --from on the command line")
    epochs: int = Field(
        default=0,
        ge=0,
        description="balanced: length of the second stage. Without refit.run it follows the training of the same run; "
        "with refit.run it is a run of its own, and 0 means 10",
    )
    head: Literal["auto", "linear", "cosine"] = Field(
        default="auto", description="balanced: kind of the new classifiers of all exits; auto: as model.head"
    )
    lr: PositiveFloat = Field(
        default=0.1, description="balanced: learning rate at the start of the second stage; it falls to zero"
    )
    weight_decay: NonNegative = Field(default=5e-4, description="balanced: weight decay of the new classifiers")
    taus: tuple[NonNegative, ...] = Field(
        default=tuple(tau / 10 for tau in range(21)),
        min_length=1,
        description="tau-norm, logit-adjustment, exits.logit_adjustment: candidates for tau, chosen among on the "
        "calibration split",
    )
    neighbours: PositiveInt = Field(default=5, description="SMOTE and its kin: neighbours looked at")


class TrackRecipe(Section):
    """Loggers beside log.jsonl (extra 'track')."""

    tensorboard: bool = Field(default=False, description="write TensorBoard event files into the run directory")
    wandb: bool = Field(default=False, description="log to Weights & Biases")
    wandb_project: str = Field(default="elfnet", description="project there")


class Recipe(Section):
    """Everything that determines a run."""

    data: DataRecipe = DataRecipe()
    model: ModelRecipe = ModelRecipe()
    exits: ExitsRecipe = ExitsRecipe()
    criterion: CriterionRecipe = CriterionRecipe()
    train: TrainRecipe = TrainRecipe()
    refit: RefitRecipe = RefitRecipe()
    track: TrackRecipe = TrackRecipe()

    @model_validator(mode="after")
    def _consistent(self) -> "Recipe":
        check_compatible(self)
        return self
