"""The recipe: every setting of a run, typed, documented and checked on construction.

The field descriptions are the help texts of the command line and the settings page of the documentation. Classes of
other packages do not take a recipe: builder functions turn its sections into plain arguments, so that every part of
the package can be used without one.
"""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from elfnet.recipe.checks import check_automatic, check_compatible
from elfnet.recipe.data_section import DataRecipe, NonNegative, Section, Switch
from elfnet.recipe.train_section import TrainRecipe

__all__ = [
    "CriterionRecipe",
    "DataRecipe",
    "ExitsRecipe",
    "ModelRecipe",
    "Recipe",
    "RefitRecipe",
    "Section",
    "TrackRecipe",
    "TrainRecipe",
]


# The command line gives strings, which pydantic does not convert for a choice of numbers.
OneOrTwo = Annotated[Literal[1, 2], BeforeValidator(lambda value: int(value) if value in ("1", "2") else value)]


class ModelRecipe(Section):
    """Network: backbone, exits and classifiers."""

    backbone: str = Field(
        default="resnet32",
        description="small images: resnet9, which trains quickly; resnet8, 14, 20, 32, 44 or 56; "
        "resnet32_late, whose exits are all in its last group; msdnet, which has more exits; "
        "large images: resnet9_s2, which trains quickly; resnet10, 18, 34, 50, 101 or 152, resnext50_32x4d, "
        "densenet121, 169 or 201; feature arrays: mlp",
    )
    weights: str = Field(
        default="",
        description="initial weights of the backbone: a safetensors or torch file, a folder that transformers or timm "
        "saved, or a run's checkpoint; empty: random",
        json_schema_extra={"role": "file"},
    )
    weights_licence: str = Field(
        default="",
        description="licence of model.weights, which the model card states: a name such as apache-2.0, own, or "
        "unknown; needed with model.weights",
    )
    exits: bool = Field(default=True, description="add the early exits of the paper; false: the plain backbone")
    branches: OneOrTwo = Field(
        default=1, description="2: two copies of the last block, one for frequent and one for rare classes (BBN)"
    )
    experts: PositiveInt = Field(
        default=1,
        description="copies of the last block group (of resnet32_late: of its last five blocks), each with its own "
        "classifier and exit; the logits of an expert's exit are the mean over the experts up to it",
    )
    head: Literal["linear", "cosine", "scaled"] = Field(
        default="linear",
        description="classifier of all exits; LDAM needs cosine, LWS needs scaled (linear, one scale per class)",
    )
    exit_head: Literal["auto", "conv", "separable", "grid", "none"] = Field(
        default="auto",
        description="convolutions of an early exit; grid: one hidden layer on a map of 4 x 4 pixels, with dropout; "
        "auto: separable (depthwise) for ImageNet ResNets, grid for resnet9 and resnet9_s2, none for mlp, else conv",
    )
    head_filters: int = Field(
        default=0,
        ge=0,
        description="filters of these convolutions; 0: 64 for CIFAR ResNets, 128 for msdnet, resnet9 and resnet9_s2, "
        "else the input channels",
    )
    head_stride: OneOrTwo = Field(
        default=2, description="exit_head=conv, separable: stride of both convolutions of an early exit"
    )


class ExitsRecipe(Section):
    """When examples exit, in training and at inference."""

    rule: Literal["elf", "all"] = Field(
        default="elf",
        description="elf: in training an example leaves at the first exit that satisfies eq. 1; all: no example leaves",
    )
    confidence: Literal["probability", "entropy"] = Field(
        default="probability",
        description="confidence that eq. 5 compares with the threshold: the largest probability, or "
        "1 - entropy / log C (BranchyNet)",
        json_schema_extra={"role": "after-training"},
    )
    train_threshold: str = Field(
        default="0.9", description="threshold t of eq. 1: a number, or a multiple of 1/C (C classes) such as 2/C"
    )
    train_confidence_scale: PositiveFloat = Field(default=1.0, description="factor applied to the logits before eq. 1")
    infer_confidence_scale: PositiveFloat = Field(
        default=1.0,
        description="factor applied to the logits before eq. 5",
        json_schema_extra={"role": "after-training"},
    )
    logit_adjustment: Switch = Field(
        default="off",
        description="subtract tau * log(class prior) from the logits of each exit, with tau chosen from refit.taus on "
        "the calibration split; auto: only if this raises the balanced accuracy there by two standard errors",
        json_schema_extra={"role": "after-training"},
    )
    after_exit: Literal["mask", "drop"] = Field(
        default="mask",
        description="what training does with an example after its exit: mask its loss, or drop it from the batch, "
        "which saves compute",
    )
    class_mix: str = Field(
        default="auto",
        description="class mix that operating points are chosen for: balanced; as-is, that of the calibration split; "
        "or the expected images per class, such as 100,20,5; auto: balanced if the training data are long-tailed",
        json_schema_extra={"role": "after-training"},
    )
    search: tuple[str, ...] = Field(
        default=tuple(f"{s / 100:g}" for s in range(50, 100, 5)),
        min_length=1,
        description="candidates for the threshold s of eq. 5, searched on the calibration split",
        json_schema_extra={"role": "after-training"},
    )


class CriterionRecipe(Section):
    """Loss, class weights and distillation between exits."""

    loss: Literal["ce", "focal", "focal-reference", "ldam", "balanced-softmax", "logit-adjusted"] = Field(
        default="ce",
        description="loss at every exit; focal-reference: focal loss as in the reference code of LDAM-DRW, with class "
        "weights inside the probability",
    )
    focal_gamma: NonNegative = Field(
        default=0.5, description="loss=focal, focal-reference: exponent gamma; 0 is cross-entropy"
    )
    ldam_max_margin: NonNegative = Field(default=0.5, description="loss=ldam: margin of the rarest class")
    ldam_power: NonNegative = Field(
        default=0.25, description="loss=ldam: the margin of a class with n examples is proportional to n^-power"
    )
    cosine_scale: PositiveFloat = Field(
        default=30.0, description="model.head=cosine: factor applied to the cosines before the softmax of the loss"
    )
    adjust_tau: NonNegative = Field(
        default=1.0, description="loss=logit-adjusted: tau * log(class prior) is added to the logits"
    )
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="loss=ce, balanced-softmax, logit-adjusted: weight that all classes share; the label has the rest",
    )
    exit_weights: tuple[PositiveFloat, ...] = Field(
        default=(), description="weight of the loss of each exit, first exit first; empty: 1 for all"
    )
    equilibrium: bool = Field(
        default=False,
        description="gradient equilibrium: scale the gradients from the exits into the backbone so that together they "
        "have the weight of one exit; false: their plain sum",
    )
    distil: NonNegativeFloat = Field(
        default=0.0,
        description="weight of distillation from the last exit to the earlier ones; 1: as much as the label; 0: none",
    )
    distil_temperature: PositiveFloat = Field(
        default=3.0, description="distillation: initial temperature of both softmaxes"
    )
    distil_confidence: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.5,
        description="distillation: the temperature rises until the mean confidence of the last exit is at most this; "
        "1: it stays constant",
    )
    reweight: Literal["none", "effective", "inverse", "inverse_sqrt"] = Field(
        default="none", description="class weights from the training counts, applied from epoch train.drw_start on"
    )
    effective_beta: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.9999, description="reweight=effective: beta of the effective number"
    )


class RefitRecipe(Section):
    """Refitting the classifiers on a frozen backbone."""

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
    ] = Field(default="none", description="how the classifiers are refitted: see the methods page of the documentation")
    run: str = Field(
        default="",
        description="finished run to start from; the same as --from on the command line",
        json_schema_extra={"role": "location"},
    )
    epochs: int = Field(
        default=0,
        ge=0,
        description="method=balanced: epochs of the second stage. Without refit.run the stage follows the training of "
        "the same run; with refit.run it is a separate run, and 0 means 10",
    )
    head: Literal["auto", "linear", "cosine"] = Field(
        default="auto", description="method=balanced: kind of the new classifiers; auto: as model.head"
    )
    lr: PositiveFloat = Field(
        default=0.1, description="method=balanced: initial learning rate of the second stage; it falls to zero"
    )
    weight_decay: NonNegative = Field(default=5e-4, description="method=balanced: weight decay of the new classifiers")
    batch_norm: Literal["frozen", "train"] = Field(
        default="frozen",
        description="method=crt or lws: batch norm of the frozen layers. frozen: the statistics of the run; train: "
        "those of the batch, and running statistics that follow, as in the authors' code",
    )
    taus: tuple[NonNegative, ...] = Field(
        default=tuple(tau / 10 for tau in range(21)),
        min_length=1,
        description="method=tau-norm or logit-adjustment, and exits.logit_adjustment: candidates for tau; the best on "
        "the calibration split is taken",
    )
    neighbours: PositiveInt = Field(
        default=5,
        description="number of nearest neighbours of the SMOTE variants, ADASYN and edited nearest neighbours",
    )


class TrackRecipe(Section):
    """Experiment trackers in addition to log.jsonl (extra 'track')."""

    tensorboard: bool = Field(
        default=False,
        description="write TensorBoard event files into the run directory",
        json_schema_extra={"role": "tracking"},
    )
    wandb: bool = Field(default=False, description="log to Weights & Biases", json_schema_extra={"role": "tracking"})
    wandb_project: str = Field(
        default="elfnet", description="project on Weights & Biases", json_schema_extra={"role": "tracking"}
    )


class Recipe(Section):
    """Everything that determines a run.

    Example:
        >>> from elfnet import Recipe
        >>> Recipe().model.backbone
        'resnet32'
    """

    data: DataRecipe = DataRecipe()
    model: ModelRecipe = ModelRecipe()
    exits: ExitsRecipe = ExitsRecipe()
    criterion: CriterionRecipe = CriterionRecipe()
    train: TrainRecipe = TrainRecipe()
    refit: RefitRecipe = RefitRecipe()
    track: TrackRecipe = TrackRecipe()

    @model_validator(mode="after")
    def _consistent(self) -> "Recipe":
        check_automatic(self.train.automatic)
        check_compatible(self)
        return self
