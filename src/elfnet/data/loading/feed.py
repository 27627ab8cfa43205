"""Feeds: the training batches of an epoch, and the evaluation batches of a split.

A feed selects the examples of each batch; a `BatchSource` reads them from memory or files. Order, pairs and
augmentation are a pure function of the seed, the epoch, and the step or example. So an epoch can be repeated after a
resume, and several processes together see the batches of a single process.
"""

# Shapes: N examples of a split, B batch of all processes, b this process's part of it, r examples of a request,
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
"""Random numbers for crop and flip are drawn below this."""


class Request(NamedTuple):
    """Examples to read together.

    Attributes:
        rows_r: Positions in the split.
        repeat_r: How often each example was shown before in the epoch; its augmentation depends on it.
        crops_3r: Random numbers for crop and flip if they are drawn per batch; else None.
    """

    rows_r: Ints
    repeat_r: Ints
    crops_3r: Tensor | None = None


class Read(NamedTuple):
    """The readable examples of a request.

    Attributes:
        images: Normalised float32 images (., K, H, W) on the device; features are images of one pixel.
        place_r: Positions of these examples in the request, in order.
    """

    images: Tensor
    place_r: Ints


class BatchSource(ABC):
    """Base class of sources that read the examples of a split as batches.

    Attributes:
        draws_crops_by_batch: Whether the feed draws the random numbers for crop and flip for a whole batch.
    """

    draws_crops_by_batch = False

    @abstractmethod
    def read(self, epoch: int, requests: Sequence[Request]) -> Iterator[Read]:
        """Read the examples of each request, in order.

        The augmentation of an example is a function of (epoch, row, repeat).
        """

    def close(self) -> None:  # noqa: B027 (most sources have nothing to release)
        """Release resources such as worker processes; the source can be used again afterwards."""

    def skipped(self) -> int:
        """Number of different examples skipped so far because they could not be read."""
        return 0


class InMemorySource(BatchSource):
    """Base class of sources with all examples in memory; a subclass implements `gather`."""

    def read(self, epoch: int, requests: Sequence[Request]) -> Iterator[Read]:
        for request in requests:
            yield Read(self.gather(epoch, request), np.arange(len(request.rows_r)))

    @abstractmethod
    def gather(self, epoch: int, request: Request) -> Tensor:
        """The normalised images of a request, float32 (r, K, H, W) on the device."""


class Partners(NamedTuple):
    """The second example of each mixed pair.

    Attributes:
        images, labels_r: The examples of this process's part, followed by partners from outside the part.
        place_b: Position of the partner of each example of the part among these.
    """

    images: Tensor
    labels_r: Tensor
    place_b: Tensor


class TrainingBatch(NamedTuple):
    """The training examples of one process in one step.

    Attributes:
        step: Number of the step in the epoch.
        images: Normalised images, float32 (b, K, H, W).
        labels_b: Class of each example.
        rows_b: Position of each example in the training split.
        partners: Partner of each example; None if the batch is not mixed.
    """

    step: int
    images: Tensor
    labels_b: Tensor
    rows_b: Tensor
    partners: Partners | None = None


class Pairing(Protocol):
    """Selects the pairs of examples to mix."""

    def partners(self, epoch: int, step: int, batch: Request) -> Request | None:
        """The partner of each example of a whole batch, equal in all processes; None if the batch is not mixed."""


class Selection(Protocol):
    """Selects the examples of an epoch."""

    def shown(self, epoch: int) -> NDArray[np.bool_]:
        """Whether each example of the training split is shown, shape (N,); equal in all processes."""


class TrainingFeed(Protocol):
    """Makes the training batches of each epoch."""

    @property
    def batch_size(self) -> int:
        """Examples per step, over all processes."""

    def __len__(self) -> int:
        """Number of steps of an epoch that shows all examples."""

    def steps(self, epoch: int) -> int:
        """Number of steps of an epoch."""

    def epoch(self, epoch: int) -> Iterator[TrainingBatch]:
        """This process's part of each batch of an epoch."""

    def close(self) -> None:
        """Release resources such as worker processes; the feed can be used again afterwards."""

    def skipped(self) -> int:
        """Number of different examples skipped so far because they could not be read."""


class SampledFeed:
    """Training batches drawn by a sampler; the last batch of an epoch may be smaller.

    Args:
        source: Reads the examples.
        labels_N: Labels of the training split.
        batch_size: Examples per step, over all processes.
        sampler: shuffle, class-balanced, square-root or reversed.
        shard: This process's part of each batch.
        pairing: Selects the examples to mix; partners outside this process's part are read, too.
        selection: Selects the examples of an epoch, with the sampler `shuffle`; None for all.
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
        wanted = self._examples_of_steps(epoch)
        for step, read in enumerate(self._source.read(epoch, [one.request for one in wanted])):
            batch = self._batch(step, wanted[step], read)
            # With several processes, each of them must take part in every step.
            if len(batch.labels_b) or self._shard.world_size > 1:
                yield batch

    def close(self) -> None:
        self._source.close()

    def skipped(self) -> int:
        return self._source.skipped()

    def _examples_of_steps(self, epoch: int) -> "list[_StepExamples]":
        """The examples to read for each step."""
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
                # Drawn on the CPU for the whole batch, so that all devices and processes use the same numbers.
                crops_3B = torch.randint(CROP_NUMBERS, (3, len(rows_B)), generator=generator)
                own = own._replace(crops_3r=crops_3B[:, first:end])
            partners = None if self._pairing is None else self._pairing.partners(epoch, step, whole)
            if partners is None:
                wanted.append(_StepExamples(own, len(own.rows_r), None))
            else:
                wanted.append(_with_partners(own, Request(partners.rows_r[first:end], partners.repeat_r[first:end])))
        return wanted

    def _batch(self, step: int, wanted: "_StepExamples", read: Read) -> TrainingBatch:
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


class _StepExamples(NamedTuple):
    """The examples to read for a step.

    Attributes:
        request: The examples of this process's part, followed by partners from outside the part.
        own: Number of examples of the part.
        partner_b: Position in the request of the partner of each example; None without mixing.
    """

    request: Request
    own: int
    partner_b: Ints | None


def _with_partners(own: Request, partners: Request) -> _StepExamples:
    """The examples of a part and their partners, each of them once."""
    places = {example: place for place, example in enumerate(_examples(own))}
    partner_b = [places.setdefault(example, len(places)) for example in _examples(partners)]
    rows_r, repeat_r = (np.array(part, dtype=np.int64) for part in zip(*places, strict=True)) if places else own[:2]
    return _StepExamples(Request(rows_r, repeat_r), len(own.rows_r), np.array(partner_b, dtype=np.int64))


def _examples(request: Request) -> Iterator[tuple[int, int]]:
    return zip(request.rows_r.tolist(), request.repeat_r.tolist(), strict=True)


def _without_unreadable(wanted: _StepExamples, place_r: Ints) -> tuple[int, Ints | None]:
    """Number of readable own examples, and the position of the partner of each among the readable examples.

    An example with an unreadable partner becomes its own partner.
    """
    new_place = {place: number for number, place in enumerate(place_r.tolist())}
    own = [place for place in new_place if place < wanted.own]
    if wanted.partner_b is None:
        return len(own), None
    partner_b = [
        new_place.get(partner, new_place[place]) for place, partner in zip(own, wanted.partner_b[own], strict=True)
    ]
    return len(own), np.array(partner_b, dtype=np.int64)


class PairedFeed:
    """Two feeds combined: a batch has examples of the first feed, followed by as many of the second."""

    def __init__(self, first: TrainingFeed, second: TrainingFeed) -> None:
        assert len(first) == len(second), "both feeds have the same number of steps"
        self._first, self._second = first, second

    @property
    def batch_size(self) -> int:
        """Examples per step of each feed."""
        return self._first.batch_size

    def __len__(self) -> int:
        return len(self._first)

    def steps(self, epoch: int) -> int:
        return self._first.steps(epoch)

    def epoch(self, epoch: int) -> Iterator[TrainingBatch]:
        for first, second in zip(self._first.epoch(epoch), self._second.epoch(epoch), strict=True):
            # After unreadable images were skipped the halves may differ in size; cut both to the smaller one.
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
    """Evaluation batches: every example of a split once, in order.

    Args:
        source: Reads the examples.
        examples: Number of examples of the split.
        shard: This process's part of the split.
    """

    def __init__(self, source: BatchSource, examples: int, *, batch_size: int, shard: Shard = UNSHARDED) -> None:
        self._source = source
        rows_n = shard.of(np.arange(examples))
        parts = np.split(rows_n, range(batch_size, len(rows_n), batch_size)) if len(rows_n) else []
        self._requests = [Request(rows_r, np.zeros_like(rows_r)) for rows_r in parts]
        self._read: list[Ints] = []

    def __len__(self) -> int:
        """Number of batches."""
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
        """Positions in the split of the examples of the last pass, in order."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self._read])
