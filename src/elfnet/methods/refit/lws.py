"""LWS (Kang et al. 2020): weights and biases stay, a scale a class before them learns from classes drawn alike.

The logits are scale_C * (W f + b), see `ScaledClassifier`; all scales start at 1, which is the run as it was.
"""

from elfnet.methods.refit.classifiers import classifier_tensor


def learns(name: str) -> bool:
    """Whether a tensor of the network starts anew and is trained: the scales of every exit's classifier."""
    return classifier_tensor(name) == "scale"
