"""Everything that one running service holds."""

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np

from elfnet.deploy.images.decode import silent_pillow
from elfnet.deploy.model import Model
from elfnet.serve.admission import Admission
from elfnet.serve.batcher import Batcher
from elfnet.serve.metrics import Metrics
from elfnet.serve.samples import Sample
from elfnet.serve.settings import ServeSettings
from elfnet.serve.shedding import Shedding

MOST_DECODERS = 4
SWITCH_SECONDS = 1e-4
"""Between two stages the engine's thread needs the interpreter for microseconds; by default it would wait 5 ms for it
while the event loop is busy. With 64 clients on two cores this makes a sixth more requests a second."""


class Service:
    """The model with its queue, threads and figures; `start` and `close` belong to the server's life.

    Args:
        model: what answers.
        name: what the page calls it.
        settings: limits and batching.
        token: for changing the operating point; None forbids it.
        samples: images for the page.
    """

    def __init__(
        self,
        model: Model,
        *,
        name: str,
        settings: ServeSettings | None = None,
        token: str | None = None,
        samples: tuple[Sample, ...] = (),
    ) -> None:
        self.model, self.name, self.token, self.samples = model, name, token, samples
        self.settings = settings or ServeSettings()
        self.metrics = Metrics(model.engine.family)
        self.shedding = Shedding(model.engine) if self.settings.shed_by_budget else None
        self.batcher = Batcher(
            model,
            max_batch=self.settings.max_batch,
            wait_ms=self.settings.wait_ms,
            max_queue=self.settings.max_queue,
            point_under_pressure=self._point_under_pressure,
            on_batch=self.metrics.on_batch,
        )
        self.admission = Admission(self.settings.max_requests, self.settings.max_held_bytes, self.batcher.retry_seconds)
        self.decoders = ThreadPoolExecutor(min(MOST_DECODERS, os.cpu_count() or 1), thread_name_prefix="elfnet-decode")
        self._life = ExitStack()
        self.metrics.watch("elfnet_queue_images", "Images waiting for the engine.", lambda: self.batcher.waiting)
        self.metrics.watch("elfnet_queue_limit_images", "Images that may wait.", lambda: self.settings.max_queue)
        self.metrics.watch("elfnet_requests_held", "Prediction requests being served.", lambda: self.admission.requests)
        self.metrics.watch("elfnet_held_bytes", "Bytes of their bodies.", lambda: self.admission.held_bytes)
        self.metrics.watch("elfnet_shedding", "1 while a cheaper point than the chosen is used.", self._is_shedding)

    @property
    def point_now(self) -> str:
        """The point that a request without a wish gets now."""
        return self.model.operating_point if self.shedding is None else self.shedding.point

    def _point_under_pressure(self, full_share: float) -> str:
        return self.model.operating_point if self.shedding is None else self.shedding.feel(full_share)

    def _is_shedding(self) -> float:
        return float(self.point_now != self.model.operating_point)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Warm up and begin to answer; requests are those of `loop`."""
        self._life.enter_context(silent_pillow())
        self._life.callback(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(SWITCH_SECONDS)
        self._warm_up()
        self.batcher.hand_over = loop.call_soon_threadsafe
        self.batcher.start()

    def close(self) -> None:
        """Finish what was taken, then end all threads."""
        self.decoders.shutdown(wait=True)
        self.batcher.close()
        self._life.close()

    def _warm_up(self) -> None:
        """Each set of heads once: sessions without a head are built when they are first needed."""
        blank_NHWK = np.zeros((1, *self.model.preprocess.shape), dtype=np.uint8)
        images_NKHW = self.model.preprocess.normalise(blank_NHWK)
        engine = self.model.engine
        by_heads = {engine.exits_in_use(point.name): point.name for point in engine.family.points}
        for name in by_heads.values():
            engine(images_NKHW, operating_point=name)
        # An early leaver does not come to the later stages; here every stage is run.
        full = engine.backend.start(images_NKHW)
        for k in range(engine.backend.exits):
            full, _ = engine.backend.run(k, full)
