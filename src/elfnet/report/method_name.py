"""What a recipe's method is called in the literature's tables: CE, LDAM+DRW, ELF(CE)+DRW."""

from elfnet.recipe.schema import Recipe

_LOSSES = {"ce": "CE", "focal": "Focal", "ldam": "LDAM"}


def method_name(recipe: Recipe) -> str:
    """The base loss, inside the exit rule if there is one, and how classes are weighted.

    Example:
        >>> from elfnet.recipe.load import load_recipe
        >>> method_name(load_recipe("cifar10-lt/elf-ldam-drw"))
        'ELF(LDAM)+DRW'
    """
    name = _LOSSES[recipe.criterion.loss]
    if recipe.model.exits:
        name = f"ELF({name})" if recipe.exits.rule == "elf" else f"Joint({name})"
    if recipe.criterion.reweight != "none":
        # Deferred re-weighting, or weights from the start.
        name += "+DRW" if recipe.train.drw_start > 0 else "+RW"
    return name
