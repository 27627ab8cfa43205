"""The train section of a recipe: length, optimizer, schedule, mixing, and how the machine computes."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from elfnet.recipe.data_section import NonNegative, Section, Seed, Switch


class TrainRecipe(Section):
    """Optimiser, learning-rate schedule, mixing, pruning and hardware."""

    epochs: PositiveInt = Field(
        default=200, description="number of training epochs; all settings of the schedule are scaled to it"
    )
    hours: PositiveFloat = Field(
        default=1.0,
        description="longest training time for which automatic settings plan, in hours on this machine",
        json_schema_extra={"role": "machine"},
    )
    automatic: tuple[str, ...] = Field(
        default=(),
        description="settings that are chosen from the data and from a few timed steps before a run starts; a setting "
        "that is given is not chosen",
    )
    schedule_epochs: PositiveInt = Field(
        default=200, description="number of epochs that warmup_epochs, lr_steps and drw_start refer to"
    )
    batch_size: PositiveInt = Field(default=128, description="images per step, over all devices together")
    accumulate: PositiveInt = Field(
        default=1,
        description="gradient accumulation: number of parts of a batch that run one after the other to save memory; "
        "the step is the same",
    )
    lr: PositiveFloat = Field(default=0.1, description="learning rate after warm-up")
    backbone_lr_factor: NonNegative = Field(
        default=1.0,
        description="learning rate of the backbone as a multiple of the rate of the heads; 0 freezes the backbone",
    )
    layer_decay: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0,
        description="layer-wise learning rate: each stage of the backbone has the rate of the next one times this; the "
        "last stage has that of train.backbone_lr_factor",
    )
    optimizer: Literal["sgd", "adamw"] = Field(default="sgd", description="SGD with momentum, or AdamW")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.9, description="optimizer=sgd: momentum; optimizer=adamw: beta1"
    )
    nesterov: bool = Field(default=False, description="optimizer=sgd: use Nesterov momentum")
    beta2: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.999, description="optimizer=adamw: beta2")
    weight_decay: NonNegative = Field(default=2e-4, description="weight decay")
    decay_norms_and_biases: bool = Field(
        default=True, description="apply weight decay to normalisation weights and biases, too; false: to no vector"
    )
    schedule: Literal["steps", "cosine", "one-cycle"] = Field(
        default="steps",
        description="learning-rate schedule. steps: drops at train.lr_steps; cosine: falls to zero along a half "
        "cosine; one-cycle: rises during the warm-up and then falls to almost zero, each along a half cosine",
    )
    warmup_epochs: NonNegative = Field(
        default=5.0, description="epochs of warm-up: linear, or the rising part of one-cycle"
    )
    lr_steps: tuple[int, ...] = Field(
        default=(160, 180), description="schedule=steps: epochs at which the learning rate drops"
    )
    lr_factor: PositiveFloat = Field(
        default=0.01, description="schedule=steps: factor applied to the learning rate at each drop"
    )
    lr_update: Literal["step", "epoch"] = Field(
        default="step",
        description="how often the learning rate of warm-up and cosine changes: every step, or once per epoch, as in "
        "much of the published code",
    )
    patience: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="early stopping: end the training after this many epochs without a better balanced accuracy on the "
        "calibration split; 0: train all epochs. A cosine or one-cycle schedule is then cut off",
    )
    keep: Literal["last", "best"] = Field(
        default="last",
        description="weights that a finished run is evaluated, calibrated and exported with: of the last epoch, or of "
        "the best one on the calibration split",
    )
    ema_decay: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="decay per step of an exponential moving average of the weights; the average is then evaluated, "
        "calibrated and exported; 0: none",
    )
    drw_start: int = Field(
        default=0, ge=0, description="deferred re-weighting: first epoch with class weights; 0: from the start"
    )
    mix: Literal["none", "mixup", "manifold", "cutmix", "cmo"] = Field(
        default="none",
        description="train on mixed pairs: weighted mean of two images (mixup) or of their features at a random depth "
        "(manifold); a patch pasted in from another image of the batch (cutmix) or from an image of a rare class (cmo)",
    )
    mix_alpha: PositiveFloat = Field(
        default=1.0, description="mixing weights of a pair are drawn from Beta(alpha, alpha)"
    )
    mix_probability: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="probability that a batch is mixed"
    )
    mix_off_epochs: int = Field(
        default=0, ge=0, description="number of epochs without mixing at the start, and again at the end"
    )
    resize_start: Annotated[float, Field(ge=0.25, le=1)] = Field(
        default=1.0,
        description="progressive resizing: initial side of training images as a fraction of the full side, rounded to "
        "eighths; 1: none",
    )
    resize_until: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.75,
        description="progressive resizing: fraction of the epochs after which images have their full side; the last "
        "epoch always has it",
    )
    prune: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="fraction of the easy examples per class that an epoch leaves out; the weights of the shown ones "
        "compensate for that; 0: none",
    )
    prune_patience: PositiveInt = Field(
        default=3, description="an example is easy if it left at the first exit in this many consecutive epochs"
    )
    prune_floor: PositiveInt = Field(default=5, description="smallest number of examples per class that an epoch shows")
    prune_until: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.875, description="fraction of the epochs after which all examples are shown again"
    )
    seed: Seed = Field(default=0, description="seed of initial weights, order and augmentation")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description="precision of the backbone; auto: bfloat16 if the hardware supports it natively, else float32",
        json_schema_extra={"role": "machine"},
    )
    compile: Switch = Field(
        default="auto",
        description="use torch.compile; auto: if the run is long enough to pay for the compilation",
        json_schema_extra={"role": "machine"},
    )
    channels_last: Switch = Field(
        default="auto",
        description="use the channels_last memory format for images and features",
        json_schema_extra={"role": "machine"},
    )
    device: str = Field(
        default="auto", description="torch device: auto, cpu, cuda or mps", json_schema_extra={"role": "machine"}
    )
    threads: int = Field(
        default=0,
        ge=0,
        description="number of CPU threads; 0: the default of torch",
        json_schema_extra={"role": "machine"},
    )
    sync_batch_norm: bool = Field(
        default=False, description="GPUs: compute batch-norm statistics over all devices; false: per device"
    )
    evaluate_every: PositiveInt = Field(
        default=1, description="number of epochs between evaluations on the calibration split"
    )
