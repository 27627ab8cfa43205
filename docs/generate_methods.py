"""Writes methods.md from the shipped recipes.

Run: python docs/generate_methods.py
"""

from pathlib import Path

from elfnet.recipe.load import load_recipe, shipped_methods
from elfnet.report import method_name
from elfnet.reproduce.paper_table import load_table

PAGE = Path(__file__).parent / "methods.md"

INTRODUCTION = """# Methods

This page is generated from the shipped recipes by `docs/generate_methods.py`; do not edit it by hand.

Every system below runs under one recipe, with the same data, schedule and measurement: `elfnet train cifar10-lt/mixup`.
Those that start from a run need one that is finished: `elfnet train cifar10-lt/crt --from runs/ce`.

| method | in tables | from | what it changes |
| --- | --- | --- | --- |
"""

FAITHFUL = """
## What each row follows

One line per row of table 2, with the test behind it. `tests/reference` holds the published equations, written out loop
by loop in float64: values, gradients and one training step of each method agree with them.

All rows share data, augmentation, optimizer and schedule. Two things differ from LDAM-DRW's code in all of them, unless
`--data.protocol ldam-drw` is given: 200 images per class (20 on CIFAR-100) are held out for calibration, so that the
largest class has 4,800 (480), and the warm-up advances per step.

| row | follows | test |
| --- | --- | --- |
"""

PROTOCOL = """
## The exact protocol of LDAM-DRW

`elfnet train cifar10-lt/ldam-drw --data.protocol ldam-drw` repeats the data, schedule and reporting of the code that
most papers on long-tailed CIFAR build on:

- the same images: for each class in label order, positions shuffled by NumPy's legacy `RandomState(0)`, the first n;
  12,406 on CIFAR-10 and 10,847 on CIFAR-100 at ratio 100, nothing held out. A test compares a hash of the positions;
- normalisation by that code's constants, and a learning rate that changes once per epoch;
- the last epoch is reported. Test accuracy is logged after every epoch, and the best test epoch is printed, marked as
  selected on test. Nothing else uses it, and no checkpoint of it is kept.

Without a calibration split nothing is chosen: `accurate` and `economic` have one threshold that is fixed in advance,
the largest of `exits.search` (`--exits.search 1.6/C` states another), tau-norm and logit adjustment take one tau
(`--refit.taus 1`), and points that need fitting are refused.

Tables print how many labelled images outside training were used for a choice, and beside each such result the one with
untuned settings (tau = 1, the largest candidate for s).

## Superseded

Before version 0.2, BBN mixed the batch-norm statistics of its two samplers, averaged the logits of two classifiers and
had the other rows' drops of the learning rate; its figures lie in `results/table2-short/superseded`. What was called
`crt` and `lws` is now `crt-fast` and `lws-fast`, with the same figures.
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
  counting, `log.jsonl` has the `stage` of each, and `--resume` continues in either stage. `best` is the best epoch of
  the second stage as soon as there is one.
- From a finished run: `elfnet train cifar100-lt/balanced --from runs/joint --model.exits true`. Its length is
  `refit.epochs`, 10 by default.

`refit.head` chooses linear or cosine classifiers whatever the first stage had; `refit.lr` and `refit.weight_decay` are
those of the second stage. With cosine classifiers set `exits.infer_confidence_scale` to `criterion.cosine_scale`, so
that thresholds mean probabilities. The free alternative needs no training:
[adjusted logits](operating-points.md#adjusted-logits) of the classifiers from before the stage, which the run keeps.
`calibrate` picks the better of the two.
"""


def methods_page() -> str:
    """The whole page as Markdown."""
    rows = []
    for name, about in shipped_methods().items():
        called = method_name(load_recipe(f"digits/{name}"))
        rows.append(f"| `{name}` | {called} | {about.paper} | {about.changes} |")
    methods = shipped_methods()
    lines = [
        f"| {row.label} | {methods[row.method].follows} | `{methods[row.method].tested}` |"
        for row in load_table("table2").rows
        if row.method is not None
    ]
    return INTRODUCTION + "\n".join(rows) + "\n" + FAITHFUL + "\n".join(lines) + "\n" + PROTOCOL + COMBINED


if __name__ == "__main__":
    PAGE.write_text(methods_page())
