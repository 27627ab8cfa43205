"""cRT (Kang et al. 2020): the classifiers start anew and learn from classes drawn alike; all else stays as it was."""

from elfnet.methods.refit.classifiers import classifier_tensor


def learns(name: str) -> bool:
    """Whether a tensor of the network starts anew and is trained: all of every exit's classifier."""
    return bool(classifier_tensor(name))
