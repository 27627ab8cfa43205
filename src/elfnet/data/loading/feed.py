"""Feeds: the batches of an epoch to train on, and every example of a split once to evaluate with.

A feed decides which examples belong together; a `BatchSource` reads them, from memory or from files. Order, pairs and
augmentation are a pure function of the seed, the epoch, and the step or example. So an epoch can be run again after a
resume, and several processes see the parts of the batches that one process would see.
"""

# Shapes: N examples of a split, B batch of all processes, b this process's part of it, r examples that are read for it,
#     K channels, H height, W width

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elfnet.data.loading.sampler import UNSHARDED, Drawn, EpochOrder, Shard, epoch_generator
from elfnet.data.types import Ints

CROP_NUMBERS = 2**30


class Request(NamedTuple):
    """Examples that are read together.

    Attributes:
        rows_r: positions in the split.
        repeat_r: how often each was shown before in the epoch; its augmentation differs.
        crops_3r: random numbers for crop and flip, for a source that draws them by batch; else None.
    """

    rows_r: Ints
    repeat_r: Ints
    crops_3r: Tensor | None = None


class Read(NamedTuple):
    """What could be read of a request.

    Attributes:
        images: float32 (., K, H, W), normalised, on the device; features are images of one pixel.
        place_r: the places in the request of the examples that could be read, in order.
    """

    images: Tensor
    place_r: Ints


class BatchSource(ABC):
    """Where the examples of a split are read from.

    Attributes:
        draws_crops_by_batch: the feed draws the numbers for crop and flip for a whole batch at once.
    """

    draws_crops_by_batch = False

    @abstractmethod
    def read(self, epoch: int, requests: Sequence[Request]) -> Iterator[Read]:
        """The examples of each request, in order; what an example looks like is a function of (epoch, row, repeat)."""

    def close(self) -> None:  # noqa: B027 (most sources open nothing)
        """Give back what was opened (worker processes); the source may be used again afterwards."""

    def skipped(self) -> int:
        """Different examples that could not be read so far, where that does not stop the run."""
        return 0


class InMemory(BatchSource):
    """A source that has everything in memory: it reads a request when it is asked for, and all of it."""

    def read(self, epoch: int, requests: Sequence[Request]) -> Iterator[Read]:
        for request in requests:
            yield Read(self.gather(epoch, request), np.arange(len(request.rows_r)))

    @abstractmethod
    def gather(self, epoch: int, request: Request) -> Tensor:
        """The images of a request, float32 (r, K, H, W) on the device."""


class Partners(NamedTuple):
    """The second example of each pair, where examples are mixed.

    Attributes:
        images, labels_r: the examples of this process's part, and after them those that it does not hold itself.
        place_b: for each example of the part, the place of its partner among these.
    """

    images: Tensor
    labels_r: Tensor
    place_b: Tensor


class TrainingBatch(NamedTuple):
    """What a process trains on in one step.

    Attributes:
        step: number of the step in the epoch.
        images: float32 (b, K, H, W).
        labels_b: the class of each example.
        rows_b: the position of each example in the training split.
        partners: what each example is mixed with; None: nothing is mixed in this step.
    """

    step: int
    images: Tensor
    labels_b: Tensor
    rows_b: Tensor
    partners: Partners | None = None


class Pairing(Protocol):
    """Decides which examples are mixed."""

    def partners(self, epoch: int, step: int, batch: Request) -> Request | None:
        """The partner of each example of a whole batch, the same in every process; None: this batch is not mixed."""


class Selection(Protocol):
    """Decides which examples an epoch shows."""

    def shown(self, epoch: int) -> NDArray[np.bool_]:
        """Whether each example of the training split is shown, shape (N,); the same in every process."""


class TrainingFeed(Protocol):
    """The batches of an epoch."""

    @property
    def batch_size(self) -> int:
        """Examples per step, of all processes together."""

    def __len__(self) -> int:
        """Steps per epoch that shows all examples."""

    def steps(self, epoch: int) -> int:
        """Steps of an epoch."""

    def epoch(self, epoch: int) -> Iterator[TrainingBatch]:
        """This process's part of each step of an epoch."""

    def close(self) -> None:
        """Give back what was opened (worker processes); the feed may be used again afterwards."""

    def skipped(self) -> int:
        """Different examples that could not be read so far, where that does not stop the run."""


class SampledFeed:
    """Batches of examples drawn by a sampler; the last batch of an epoch may be smaller.

    Args:
        labels_N: of the training split.
        batch_size: of all processes together.
        sampler: shuffle, class-balanced, square-root or reversed.
        share: this process's part of each batch.
        pairing: what examples are mixed with; the feed reads the partners that this process does not hold.
        selection: which examples an epoch shows, with the sampler `shuffle`; None: all of them.
    """

    def __init__(
        self,
        source: BatchSource,
        labels_N: Ints,
        *,
        batch_size: int,
        seed: int,
        device: torch.device,
        channels_last: bool = True,
        sampler: str = "shuffle",
        shard: Shard = UNSHARDED,
        pairing: Pairing | None = None,
        selection: Selection | None = None,
    ) -> None:
        self.batch_size = min(batch_size, len(labels_N))
        self._source, self._shard, self._pairing, self._selection = source, shard, pairing, selection
        self._order = EpochOrder(labels_N, sampler)
        self._labels_N = torch.from_numpy(labels_N).to(device)
        self._seed, self._device, self._channels_last = seed, device, channels_last

    def __len__(self) -> int:
        return -(-len(self._labels_N) // self.batch_size)

    def steps(self, epoch: int) -> int:
        shown = len(self._labels_N) if self._selection is None else int(self._selection.shown(epoch).sum())
        return -(-shown // self.batch_size)

    def epoch(self, epoch: int) -> Iterator[TrainingBatch]:
        wanted = self._wanted(epoch)
        for step, read in enumerate(self._source.read(epoch, [one.request for one in wanted])):
            batch = self._batch(step, wanted[step], read)
            # Where several processes train together, every one must take every step.
            if len(batch.labels_b) or self._shard.world_size > 1:
                yield batch

    def close(self) -> None:
        self._source.close()

    def skipped(self) -> int:
        return self._source.skipped()

    def _wanted(self, epoch: int) -> "list[_Wanted]":
        """What is read for each step."""
        generator = epoch_generator(self._seed, epoch)
        drawn = self._order.draw(generator)
        if self._selection is not None:
            shown_n = torch.from_numpy(self._selection.shown(epoch))[drawn.rows_N]
            drawn = Drawn(drawn.rows_N[shown_n], drawn.repeat_N[shown_n])
        wanted = []
        for step, (rows_B, repeat_B) in enumerate(
            zip(*(torch.split(part_N, self.batch_size) for part_N in drawn), strict=True)
        ):
            whole = Request(rows_B.numpy(), repeat_B.numpy())
            first, end = self._shard.bounds(len(rows_B))
            own = Request(whole.rows_r[first:end], whole.repeat_r[first:end])
            if self._source.draws_crops_by_batch:
                # On the CPU, and for the whole batch: every device and every process sees the same numbers.
                crops_3B = torch.randint(CROP_NUMBERS, (3, len(rows_B)), generator=generator)
                own = own._replace(crops_3r=crops_3B[:, first:end])
            partners = None if self._pairing is None else self._pairing.partners(epoch, step, whole)
            if partners is None:
                wanted.append(_Wanted(own, len(own.rows_r), None))
            else:
                wanted.append(_with_partners(own, Request(partners.rows_r[first:end], partners.repeat_r[first:end])))
        return wanted

    def _batch(self, step: int, wanted: "_Wanted", read: Read) -> TrainingBatch:
        images = read.images if self._channels_last else read.images.contiguous()
        rows_r = torch.from_numpy(wanted.request.rows_r[read.place_r]).to(self._device, non_blocking=True)
        labels_r = self._labels_N[rows_r]
        own, partner_b = wanted.own, wanted.partner_b
        if len(read.place_r) < len(wanted.request.rows_r):
            own, partner_b = _without_unreadable(wanted, read.place_r)
        partners = None
        if partner_b is not None:
            place_b = torch.from_numpy(partner_b).to(self._device, non_blocking=True)
            partners = Partners(images, labels_r, place_b)
        return TrainingBatch(step, images[:own], labels_r[:own], rows_r[:own], partners)


class _Wanted(NamedTuple):
    """What is read for a step: `own` examples of this process, then partners; and which partner each one has."""

    request: Request
    own: int
    partner_b: Ints | None


def _with_partners(own: Request, partners: Request) -> _Wanted:
    """The examples of a part and their partners, each of which is read once."""
    places = {example: place for place, example in enumerate(_examples(own))}
    partner_b = [places.setdefault(example, len(places)) for example in _examples(partners)]
    rows_r, repeat_r = (np.array(part, dtype=np.int64) for part in zip(*places, strict=True)) if places else own[:2]
    return _Wanted(Request(rows_r, repeat_r), len(own.rows_r), np.array(partner_b, dtype=np.int64))


def _examples(request: Request) -> Iterator[tuple[int, int]]:
    return zip(request.rows_r.tolist(), request.repeat_r.tolist(), strict=True)


def _without_unreadable(wanted: _Wanted, place_r: Ints) -> tuple[int, Ints | None]:
    """How many own examples could be read, and the place of the partner of each among what could be read.

    An example whose partner could not be read is its own partner.
    """
    now_at = {place: number for number, place in enumerate(place_r.tolist())}
    own = [place for place in now_at if place < wanted.own]
    if wanted.partner_b is None:
        return len(own), None
    partner_b = [now_at.get(partner, now_at[place]) for place, partner in zip(own, wanted.partner_b[own], strict=True)]
    return len(own), np.array(partner_b, dtype=np.int64)


class PairedFeed:
    """Two feeds side by side: a batch has the examples of the first feed and then as many of the second."""

    def __init__(self, first: TrainingFeed, second: TrainingFeed) -> None:
        assert len(first) == len(second), "both draw as many examples as there are"
        self._first, self._second = first, second

    @property
    def batch_size(self) -> int:
        """Of each half."""
        return self._first.batch_size

    def __len__(self) -> int:
        return len(self._first)

    def steps(self, epoch: int) -> int:
        return self._first.steps(epoch)

    def epoch(self, epoch: int) -> Iterator[TrainingBatch]:
        for first, second in zip(self._first.epoch(epoch), self._second.epoch(epoch), strict=True):
            # Where an image could not be read and was left out, the halves would differ: the shorter one counts.
            both = min(len(first.labels_b), len(second.labels_b))
            yield TrainingBatch(
                first.step,
                torch.cat([first.images[:both], second.images[:both]]),
                torch.cat([first.labels_b[:both], second.labels_b[:both]]),
                torch.cat([first.rows_b[:both], second.rows_b[:both]]),
            )

    def close(self) -> None:
        self._first.close()
        self._second.close()

    def skipped(self) -> int:
        return max(self._first.skipped(), self._second.skipped())


class EvaluationFeed:
    """Every example of a split once, in order.

    Args:
        examples: size of the split.
        share: this process's part of the split.
    """

    def __init__(self, source: BatchSource, examples: int, *, batch_size: int, shard: Shard = UNSHARDED) -> None:
        self._source = source
        rows_n = shard.of(np.arange(examples))
        parts = np.split(rows_n, range(batch_size, len(rows_n), batch_size)) if len(rows_n) else []
        self._requests = [Request(rows_r, np.zeros_like(rows_r)) for rows_r in parts]
        self._read: list[Ints] = []

    def __len__(self) -> int:
        """Batches per pass."""
        return len(self._requests)

    def __iter__(self) -> Iterator[Tensor]:
        self._read = []
        try:
            for request, read in zip(self._requests, self._source.read(0, self._requests), strict=True):
                if len(read.place_r):
                    self._read.append(request.rows_r[read.place_r])
                    yield read.images
        finally:
            self._source.close()

    def rows(self) -> Ints:
        """Positions in the split of the examples that the last pass gave, in order."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self._read])
