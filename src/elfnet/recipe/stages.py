"""What follows from a recipe about its losses and the stages of its run."""

from elfnet.recipe.schema import Recipe


def loss_scale(recipe: Recipe) -> float:
    """What the loss multiplies logits by before its softmax: `criterion.cosine_scale` for cosine heads, else 1."""
    return recipe.criterion.cosine_scale if recipe.model.head == "cosine" else 1.0
