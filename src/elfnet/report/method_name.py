"""What a recipe's method is called in the literature's tables: CE, LDAM+DRW, ELF(CE)+DRW, cRT."""

from elfnet.recipe.schema import Recipe

_LOSSES = {
    "ce": "CE",
    "focal": "Focal",
    "ldam": "LDAM",
    "balanced-softmax": "BalancedSoftmax",
    "logit-adjusted": "LogitAdjusted",
}
_MIXINGS = {"mixup": "+Mixup", "manifold": "+ManifoldMixup", "cutmix": "+CutMix", "cmo": "+CMO"}
_REFITS = {
    "balanced": "balanced classifiers",
    "crt": "cRT",
    "lws": "LWS",
    "tau-norm": "tau-norm",
    "logit-adjustment": "LogitAdjustment",
    "over-sampling": "over-sampled features",
    "under-sampling": "under-sampled features",
    "smote": "SMOTE",
    "borderline-smote": "Borderline-SMOTE",
    "adasyn": "ADASYN",
    "edited-nearest-neighbours": "ENN",
    "cluster-under-sampling": "cluster centroids",
}


def method_name(recipe: Recipe) -> str:
    """The base loss, inside the exit rule if there is one, how classes are weighted, and what else is done.

    Example:
        >>> from elfnet.recipe.load import load_recipe
        >>> method_name(load_recipe("cifar10-lt/elf-ldam-drw"))
        'ELF(LDAM)+DRW'
    """
    name = _LOSSES[recipe.criterion.loss]
    if recipe.model.branches == 2:
        name = f"BBN({name})"
    elif recipe.model.exits:
        name = f"{_exits(recipe)}({name})"
    if recipe.criterion.reweight != "none":
        # Deferred re-weighting, or weights from the start.
        name += "+DRW" if recipe.train.drw_start > 0 else f"+RW({recipe.criterion.reweight})"
    name += _MIXINGS.get(recipe.train.mix, "")
    return name if recipe.refit.method == "none" else f"{_REFITS[recipe.refit.method]} on {name}"


def _exits(recipe: Recipe) -> str:
    """Which of the ways to train exits it is."""
    if recipe.exits.rule == "elf":
        return "ELF"
    if recipe.criterion.distil:
        return "Distilled"
    if recipe.exits.confidence == "entropy":
        return "BranchyNet"
    return "MSDNet" if recipe.model.backbone == "msdnet" else "Joint"
