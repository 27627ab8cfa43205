"""Cuts: places in a recorded model where an exit can be attached, how to choose among them, and why others are illegal.

A cut is legal between two steps where exactly one tensor is live, that is, still needed by a later step.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.attach.ir import Recording, Step, execute
from elfnet.models.attach.trace import BY_HAND, Program, trace
from elfnet.models.flops import flop_counter
from elfnet.models.staged import evaluation_mode

MAX_SUGGESTIONS = 4


@dataclass(frozen=True)
class Cut:
    """A place where an exit can be attached.

    Attributes:
        name: the outermost module that ends there, else the name of the step that computes the live tensor.
        names: all names that select this place.
        shape: the shape of one example's features there.
        share: the fraction of the model's multiply-adds before it, in [0, 1].
        position: the number of steps of the recording before it.
        step: the index of the step that computes the live tensor.
    """

    name: str
    names: tuple[str, ...]
    shape: tuple[int, ...]
    share: float
    position: int = field(repr=False)
    step: int = field(repr=False)


def legal_cuts(model: nn.Module, example: Tensor) -> list[Cut]:
    """List every place where an exit can be attached, in the order of the forward pass.

    Args:
        example: a batch of inputs on the model's device.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from elfnet import legal_cuts
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> [(cut.name, cut.shape) for cut in legal_cuts(model, torch.zeros(2, 4))]
        [('0', (8,))]
    """
    program = trace(model, example)
    return cuts_before_head(program.recording, find_cuts(program, model, example))


def find_cuts(program: Program, model: nn.Module, example: Tensor) -> list[Cut]:
    """All cuts between the first multiply-add and the logits, including those inside the model's own head."""
    recording = program.recording
    cost_before = _multiply_adds_before(recording, model, example)
    ending_at: dict[int, list[str]] = {}
    for path, positions in recording.ends.items():
        if len(positions) == 1:
            ending_at.setdefault(positions[0], []).append(path)
    step_names = unique_names(recording)
    found: dict[int, Cut] = {}
    for position, step in single_live_steps(recording):
        shape, cost = recording.steps[step].shape, cost_before[position]
        if shape is None or len(shape) < 2 or not recording.steps[step].floating or cost == 0:
            continue
        paths = sorted(ending_at.get(position, []), key=lambda path: path.count("."))
        # One tensor may be the only live one at several positions. They are one cut with several names.
        before = found.get(step)
        names = tuple(dict.fromkeys([*(before.names if before else ()), *paths, step_names[step]]))
        modules = [name for name in names if is_one_call(recording, name)]
        name = min(modules, key=lambda path: path.count(".")) if modules else step_names[step]
        place = recording.ends[name][0] if modules else (before.position if before else position)
        found[step] = Cut(name, names, shape[1:], cost / max(cost_before[-1], 1), place, step)
    return sorted(found.values(), key=lambda cut: cut.position)


def cuts_before_head(recording: Recording, cuts: list[Cut]) -> list[Cut]:
    """The cuts before the model's own head."""
    head = head_start(recording, cuts)
    return [cut for cut in cuts if head is None or cut.position < head.position]


def head_start(recording: Recording, cuts: list[Cut]) -> Cut | None:
    """The cut where the model's own head begins: the last one before the multiply-adds of the classifier.

    Among cuts with the same cost, one after a module is preferred. None if the last multiply-adds have more than one
    input; the head is then part of the last stage.
    """
    possible = [cut for cut in cuts if cut.share < 1.0]
    last = [cut for cut in possible if cut.share == possible[-1].share]
    modules = [cut for cut in last if is_one_call(recording, cut.name)]
    return (modules or last)[-1] if last else None


def is_one_call(recording: Recording, name: str) -> bool:
    """Whether `name` is a module that is called exactly once, so that the name is unambiguous."""
    return len(recording.ends.get(name, ())) == 1


def unique_names(recording: Recording) -> list[str]:
    """A unique and reproducible name for every step: `layer1`, `relu#2` (the second call), `head:mean`."""
    base_names = [_base_name(step) for step in recording.steps]
    times, names = Counter(base_names), []
    seen: Counter[str] = Counter()
    for base_name in base_names:
        seen[base_name] += 1
        names.append(base_name if times[base_name] == 1 else f"{base_name}#{seen[base_name]}")
    return names


def _base_name(step: Step) -> str:
    if step.kind == "module":
        return str(step.target)
    word = "item" if step.kind == "item" else getattr(step.target, "__name__", str(step.target)).strip("_")
    return f"{step.owner}:{word}"


def single_live_steps(recording: Recording) -> list[tuple[int, int]]:
    """(position, step) wherever later steps need the value of exactly one step that depends on the input."""
    last_use = recording.last_use()
    found = []
    live: set[int] = set()
    for index, step in enumerate(recording.steps[: recording.output]):
        if step.from_input:
            live.add(index)
        live = {value for value in live if last_use[value] > index}
        if len(live) == 1:
            found.append((index + 1, next(iter(live))))
    return found


def _multiply_adds_before(recording: Recording, model: nn.Module, example: Tensor) -> list[int]:
    """The multiply-adds for one example before each position; the last entry is the whole model."""
    before = [0]

    def count(_step: Step, run: Callable[[], Any]) -> Any:
        value = run()
        before.append(counter.get_total_flops() // 2)
        return value

    with torch.no_grad(), evaluation_mode(model), flop_counter() as counter:
        execute(recording, model, example[:1].detach(), around=count)
    return before


def no_cut_error(model: nn.Module, program: Program) -> RequestError:
    """The error for a model that cannot be cut anywhere, with the reason if it is known."""
    reasons = [f"{path} is kept whole ({reason})" for path, reason in list(program.kept_whole.items())[:1]]
    why = "; ".join(
        [f"{type(model).__name__} has no place before its own head where exactly one tensor is live", *reasons]
    )
    return RequestError(f"{why}; {BY_HAND}")


def even_cuts(cuts: Sequence[Cut], exits: int, blocks: Collection[str] = ()) -> list[Cut]:
    """Choose cuts that divide the cost into equal parts: at 1/3 and 2/3 of it for three exits.

    Cuts after modules are preferred to cuts between functions if there are enough of them. Among cuts of equal cost,
    one after a module of `blocks` is preferred, then the outermost, then the last.

    Args:
        exits: the number of exits, including the last one.
        blocks: modules that consist of other modules.

    Raises:
        RequestError: there are not enough cuts of different cost.
    """
    wanted = exits - 1
    places = _best_per_cost([cut for cut in cuts if ":" not in cut.name], blocks)
    if wanted > len(places):
        places = _best_per_cost(cuts, blocks)
    if exits < 2 or wanted > len(places):
        raise RequestError(
            f"exits={exits} is not possible: the model can be cut at {len(places)} "
            f"place{'s' if len(places) != 1 else ''} of different cost; "
            f"choose from 2 to {len(places) + 1}"
        )
    chosen: list[int] = []
    for k in range(1, exits):
        earliest = chosen[-1] + 1 if chosen else 0
        latest = len(places) - (wanted - k)
        chosen.append(min(range(earliest, latest), key=lambda i: abs(places[i].share - k / exits)))
    return [places[i] for i in chosen]


def _best_per_cost(cuts: Sequence[Cut], blocks: Collection[str]) -> list[Cut]:
    """The preferred cut of each cost, sorted by cost."""

    def preference(cut: Cut) -> tuple[bool, int, int]:
        return cut.name in blocks, -cut.name.count("."), cut.position

    best: dict[float, Cut] = {}
    for cut in sorted(cuts, key=preference):
        best[cut.share] = cut
    return sorted(best.values(), key=lambda cut: cut.share)


def named_cuts(at: Sequence[str | Cut], cuts: Sequence[Cut], program: Program, model: nn.Module) -> list[Cut]:
    """The cuts with the given names, in the order of the forward pass.

    Raises:
        RequestError: a name is unknown, no legal cut, or given twice.
    """
    by_name = {name: cut for cut in cuts for name in cut.names}
    chosen: dict[int, Cut] = {}
    for item in at:
        name = item.name if isinstance(item, Cut) else item
        if not isinstance(name, str):
            raise RequestError(f"at={item!r} must name a module, such as {cuts[0].name!r}")
        if name not in by_name:
            raise _illegal_cut(name, cuts, program, model)
        cut = by_name[name]
        if cut.step in chosen:
            raise RequestError(f"at names one place twice: {name!r} is {cut.name!r}; remove one of them")
        chosen[cut.step] = cut
    if not chosen:
        raise RequestError("at=[] names no place for an exit; name one, or set at='auto'")
    return sorted(chosen.values(), key=lambda cut: cut.position)


def _illegal_cut(name: str, cuts: Sequence[Cut], program: Program, model: nn.Module) -> RequestError:
    paths = [path for path, _ in model.named_modules() if path]
    if name not in paths:
        names = [*paths, *(n for cut in cuts for n in cut.names)]
        near = get_close_matches(name, list(dict.fromkeys(names)), n=3, cutoff=0.5)
        near = near or [cut.name for cut in cuts[:MAX_SUGGESTIONS]]
        return RequestError(f"the model has no module {name!r}; did you mean {_quoted(near)}?")
    recording = program.recording
    ancestor = name
    while ancestor not in recording.ends and "." in ancestor:
        ancestor = ancestor.rpartition(".")[0]
    if ancestor not in recording.ends:
        return RequestError(f"module {name!r} is never called; nearest legal cuts: {_quoted(_nearest_names(0, cuts))}")
    position = recording.ends[ancestor][0]
    reason = _illegal_reason(name, ancestor, position, cuts, program)
    return RequestError(
        f"cannot cut after {name!r}: {reason}; nearest legal cuts: {_quoted(_nearest_names(position, cuts))}"
    )


def _illegal_reason(name: str, ancestor: str, position: int, cuts: Sequence[Cut], program: Program) -> str:
    recording = program.recording
    if ancestor in program.kept_whole and ancestor != name:
        return f"it is inside {ancestor!r}, which is kept whole ({program.kept_whole[ancestor]})"
    if ancestor != name:
        return f"it is inside {ancestor!r}, and another tensor is live while that module runs"
    if len(recording.ends[name]) > 1:
        return f"it runs {len(recording.ends[name])} times"
    if position > cuts[-1].position:
        return "it is part of the model's own head, which is the last exit, or directly before that head"
    live = _count_live(recording, position)
    if live > 1:
        return f"{live} tensors are live there"
    return "the live tensor there is not a batch of features, or nothing is computed before it"


def _count_live(recording: Recording, position: int) -> int:
    last_use = recording.last_use()
    return sum(step.from_input and last_use[i] >= position for i, step in enumerate(recording.steps[:position]))


def _nearest_names(position: int, cuts: Sequence[Cut]) -> list[str]:
    after_modules = [cut for cut in cuts if ":" not in cut.name]
    nearest = sorted(after_modules or cuts, key=lambda cut: abs(cut.position - position))[:MAX_SUGGESTIONS]
    return [cut.name for cut in sorted(nearest, key=lambda cut: cut.position)]


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
