"""Where a model may be cut: between two steps, where exactly one tensor is live."""

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
from elfnet.models.flops import counting
from elfnet.models.layers import evaluation_mode


@dataclass(frozen=True)
class Cut:
    """A place where an exit may sit.

    Attributes:
        name: the module that ends there (the outermost), else the name of the step that computes the tensor.
        names: everything the place may be called.
        shape: of one example's features there.
        share: of the model's multiply-adds that lie before it, 0..1.
        position: how many steps of the recording lie before it.
        step: the step that computes the one live tensor.
    """

    name: str
    names: tuple[str, ...]
    shape: tuple[int, ...]
    share: float
    position: int = field(repr=False)
    step: int = field(repr=False)


def legal_cuts(model: nn.Module, example: Tensor) -> list[Cut]:
    """Every place where an exit may sit, in the order of the forward pass.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> [(cut.name, cut.shape) for cut in legal_cuts(model, torch.zeros(2, 4))]
        [('0', (8,))]
    """
    program = trace(model, example)
    return before_the_head(program.recording, cuts_of(program, model, example))


def cuts_of(program: Program, model: nn.Module, example: Tensor) -> list[Cut]:
    """Cuts anywhere between the first multiply-add and the logits, those inside the model's own head included."""
    recording = program.recording
    cost_before = _multiply_adds_before(recording, model, example)
    ending_at: dict[int, list[str]] = {}
    for path, positions in recording.ends.items():
        if len(positions) == 1:
            ending_at.setdefault(positions[0], []).append(path)
    step_names = names_of(recording)
    found: dict[int, Cut] = {}
    for position, step in single_live(recording):
        shape, cost = recording.steps[step].shape, cost_before[position]
        if shape is None or len(shape) < 2 or not recording.steps[step].floating or cost == 0:
            continue
        paths = sorted(ending_at.get(position, []), key=lambda path: path.count("."))
        # The same tensor may be the only live one for several positions: one cut with several names.
        before = found.get(step)
        names = tuple(dict.fromkeys([*(before.names if before else ()), *paths, step_names[step]]))
        modules = [name for name in names if is_one_call(recording, name)]
        name = min(modules, key=lambda path: path.count(".")) if modules else step_names[step]
        place = recording.ends[name][0] if modules else (before.position if before else position)
        found[step] = Cut(name, names, shape[1:], cost / max(cost_before[-1], 1), place, step)
    return sorted(found.values(), key=lambda cut: cut.position)


def before_the_head(recording: Recording, cuts: list[Cut]) -> list[Cut]:
    """The cuts that leave something to the last stage: those before the model's own head."""
    head = head_start(recording, cuts)
    return [cut for cut in cuts if head is None or cut.position < head.position]


def head_start(recording: Recording, cuts: list[Cut]) -> Cut | None:
    """Where the model's own head begins: as late as multiply-adds (the classifier's) are left, behind a module if one
    ends there.

    None for a model whose last multiply-adds have more than one input; its head is then part of the last stage.
    """
    possible = [cut for cut in cuts if cut.share < 1.0]
    last = [cut for cut in possible if cut.share == possible[-1].share]
    modules = [cut for cut in last if is_one_call(recording, cut.name)]
    return (modules or last)[-1] if last else None


def is_one_call(recording: Recording, name: str) -> bool:
    """Whether this is a module that runs once, so that its name is a place."""
    return len(recording.ends.get(name, ())) == 1


def names_of(recording: Recording) -> list[str]:
    """A name for every step, unique and the same every time: `layer1`, `relu#2` (the second call), `head:mean`."""
    stems = [_stem(step) for step in recording.steps]
    times, names = Counter(stems), []
    seen: Counter[str] = Counter()
    for stem in stems:
        seen[stem] += 1
        names.append(stem if times[stem] == 1 else f"{stem}#{seen[stem]}")
    return names


def _stem(step: Step) -> str:
    if step.kind == "module":
        return str(step.target)
    word = "item" if step.kind == "item" else getattr(step.target, "__name__", str(step.target)).strip("_")
    return f"{step.owner}:{word}"


def single_live(recording: Recording) -> list[tuple[int, int]]:
    """(position, step) wherever the value of one step is all that what follows needs of the input."""
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
    """Multiply-adds for one example before each position; the last is the whole model."""
    before = [0]

    def count(_step: Step, run: Callable[[], Any]) -> Any:
        value = run()
        before.append(counter.get_total_flops() // 2)
        return value

    with torch.no_grad(), evaluation_mode(model), counting() as counter:
        execute(recording, model, example[:1].detach(), around=count)
    return before


def no_cut(model: nn.Module, program: Program) -> RequestError:
    """The error for a model that cannot be cut anywhere, with the reason where one is known."""
    reasons = [f"{path} is kept whole ({reason})" for path, reason in list(program.kept_whole.items())[:1]]
    why = "; ".join(
        [f"{type(model).__name__} has no place before its own head where exactly one tensor is live", *reasons]
    )
    return RequestError(f"{why}; {BY_HAND}")


NEAREST = 4


def even_cuts(cuts: Sequence[Cut], exits: int, blocks: Collection[str] = ()) -> list[Cut]:
    """Cuts for `exits` exits in all, the last included, at even shares of the cost: 1/3 and 2/3 for three.

    Places behind modules go before places in between, as long as there are enough. Of places with the same cost before
    them the one behind one of the `blocks` (modules with parts), then the outermost, then the last is taken.
    """
    wanted = exits - 1
    places = _places([cut for cut in cuts if ":" not in cut.name], blocks)
    if wanted > len(places):
        places = _places(cuts, blocks)
    if exits < 2 or wanted > len(places):
        raise RequestError(
            f"exits={exits} is not possible: the model can be cut at {len(places)} places of different cost, "
            f"so choose 2..{len(places) + 1}"
        )
    chosen: list[int] = []
    for k in range(1, exits):
        earliest = chosen[-1] + 1 if chosen else 0
        latest = len(places) - (wanted - k)
        chosen.append(min(range(earliest, latest), key=lambda i: abs(places[i].share - k / exits)))
    return [places[i] for i in chosen]


def _places(cuts: Sequence[Cut], blocks: Collection[str]) -> list[Cut]:
    """One cut of every cost."""

    def preference(cut: Cut) -> tuple[bool, int, int]:
        return cut.name in blocks, -cut.name.count("."), cut.position

    best: dict[float, Cut] = {}
    for cut in sorted(cuts, key=preference):
        best[cut.share] = cut
    return sorted(best.values(), key=lambda cut: cut.share)


def named_cuts(at: Sequence[str | Cut], cuts: Sequence[Cut], program: Program, model: nn.Module) -> list[Cut]:
    """The cut behind each module or step that is named, in the order of the forward pass."""
    by_name = {name: cut for cut in cuts for name in cut.names}
    chosen: dict[int, Cut] = {}
    for asked in at:
        name = asked.name if isinstance(asked, Cut) else asked
        if not isinstance(name, str):
            raise RequestError(f"at={asked!r} must name a module, such as {cuts[0].name!r}")
        if name not in by_name:
            raise _refusal(name, cuts, program, model)
        cut = by_name[name]
        if cut.step in chosen:
            raise RequestError(f"at names the same place twice: {name!r} is {cut.name!r}")
        chosen[cut.step] = cut
    if not chosen:
        raise RequestError("at=[] names no place for an exit; name one, or give at='auto'")
    return sorted(chosen.values(), key=lambda cut: cut.position)


def _refusal(name: str, cuts: Sequence[Cut], program: Program, model: nn.Module) -> RequestError:
    paths = [path for path, _ in model.named_modules() if path]
    if name not in paths:
        names = [*paths, *(n for cut in cuts for n in cut.names)]
        near = get_close_matches(name, list(dict.fromkeys(names)), n=3, cutoff=0.5)
        near = near or [cut.name for cut in cuts[:NEAREST]]
        return RequestError(f"the model has no module {name!r}; did you mean {_listed(near)}?")
    recording = program.recording
    ancestor = name
    while ancestor not in recording.ends and "." in ancestor:
        ancestor = ancestor.rpartition(".")[0]
    if ancestor not in recording.ends:
        return RequestError(f"module {name!r} is never called; nearest legal cuts: {_listed(_around(0, cuts))}")
    position = recording.ends[ancestor][0]
    reason = _reason(name, ancestor, position, cuts, program)
    return RequestError(f"cannot cut after {name!r}: {reason}; nearest legal cuts: {_listed(_around(position, cuts))}")


def _reason(name: str, ancestor: str, position: int, cuts: Sequence[Cut], program: Program) -> str:
    recording = program.recording
    if ancestor in program.kept_whole and ancestor != name:
        return f"it lies inside {ancestor!r}, which is kept whole ({program.kept_whole[ancestor]})"
    if ancestor != name:
        return f"it lies inside {ancestor!r}, beside which another tensor is live"
    if len(recording.ends[name]) > 1:
        return f"it runs {len(recording.ends[name])} times"
    if position > cuts[-1].position:
        return "it belongs to the model's own head, which is the last exit, or nothing but that head follows"
    live = _live_at(recording, position)
    if live > 1:
        return f"{live} tensors are live there"
    return "what is live there is not a batch of features, or nothing is computed before it"


def _live_at(recording: Recording, position: int) -> int:
    last_use = recording.last_use()
    return sum(step.from_input and last_use[i] >= position for i, step in enumerate(recording.steps[:position]))


def _around(position: int, cuts: Sequence[Cut]) -> list[str]:
    behind_modules = [cut for cut in cuts if ":" not in cut.name]
    nearest = sorted(behind_modules or cuts, key=lambda cut: abs(cut.position - position))[:NEAREST]
    return [cut.name for cut in sorted(nearest, key=lambda cut: cut.position)]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
