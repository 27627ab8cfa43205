"""From what a user asks for to places that exist."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches

from torch import nn

from elfnet.errors import RequestError
from elfnet.models.attach.cuts import Cut
from elfnet.models.attach.steps import Recording
from elfnet.models.attach.trace import Program

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
