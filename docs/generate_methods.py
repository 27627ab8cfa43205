"""Writes methods.md from the shipped recipes.

Run: python docs/generate_methods.py
"""

from pathlib import Path

from elfnet.recipe.load import load_recipe, shipped_methods
from elfnet.report import method_name

PAGE = Path(__file__).parent / "methods.md"

INTRODUCTION = """# Methods

This page is generated from the shipped recipes by `docs/generate_methods.py`; do not edit it by hand.

Every system below runs under one recipe, with the same data, schedule and measurement: `elfnet train cifar10-lt/mixup`.
Those that start from a run need one that is finished: `elfnet train cifar10-lt/crt --from runs/ce`.

| method | in tables | from | what it changes |
| --- | --- | --- | --- |
"""

COMBINED = """
## Combined

A method is a set of settings, so most of them can be combined by flags: `elfnet train cifar10-lt/elf-balanced-softmax
--train.mix mixup`. `train.mix` also has `cutmix` (Yun et al. 2019), which pastes a patch of another image of the batch
into each image, and `cmo` (Park et al. 2022), which takes the patch from an image of a rare class, drawn with a
probability that goes as 1/n (its authors: `--train.mix_probability 0.5 --train.mix_off_epochs 3`). With mixed images,
the label with the larger share is the one that eq. 1 asks to be right; exits decide by the logits themselves, not by
those that a loss has moved. What makes no sense is refused with the reason: class weights over a loss that corrects for
counts itself, mixed features behind exits that saw them unmixed, distillation from a last exit that examples no longer
reach (`exits.after_exit=drop`).

## A balanced second stage

Features learnt from a long tail are good; it is the classifiers that favour frequent classes. A second stage freezes
everything but the classifiers, starts those of all exits anew, and trains them with balanced softmax: ordinary
shuffling, the recipe's augmentation, nothing mixed, batch norm in evaluation mode, every example at every exit. Only
the classifiers have a backward pass, so that an epoch takes about a third of the time. Where a run averages its
weights, the averaged ones are frozen.

- In the same run: `elfnet train cifar100-lt/joint-ce-drw --refit.method balanced --refit.epochs 10`. The epochs go on
  counting, `log.jsonl` has the `stage` of each, and `--resume` goes on in either stage. `best` is the best epoch of the
  second stage as soon as there is one.
- From a finished run: `elfnet train cifar100-lt/balanced --from runs/joint --model.exits true`. Its length is
  `refit.epochs`, 10 by default.

`refit.head` chooses linear or cosine classifiers whatever the first stage had; `refit.lr` and `refit.weight_decay` are
those of the second stage. With cosine classifiers set `exits.infer_confidence_scale` to `criterion.cosine_scale`, so
that thresholds mean probabilities. The free alternative needs no training:
[adjusted logits](operating-points.md#adjusted-logits).
"""


def methods_page() -> str:
    """The whole page as Markdown."""
    rows = []
    for name, about in shipped_methods().items():
        called = method_name(load_recipe(f"digits/{name}"))
        rows.append(f"| `{name}` | {called} | {about.paper} | {about.changes} |")
    return INTRODUCTION + "\n".join(rows) + "\n" + COMBINED


if __name__ == "__main__":
    PAGE.write_text(methods_page())
