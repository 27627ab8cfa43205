"""Random numbers of single examples: a pure function of (seed, epoch, row, repeat).

Neither batch size nor the number of worker processes or training processes changes what an example looks like, and an
epoch can be run again after a resume.
"""

import numpy as np


class ExampleRng:
    """The random numbers of an epoch by row, from a generator that is a function of a key and a counter.

    One generator is set to where the numbers of an example begin: making a new one takes many times as long.
    """

    def __init__(self, seed: int, epoch: int) -> None:
        key = np.random.SeedSequence([seed, epoch]).generate_state(2, np.uint64)
        self._bits = np.random.Philox(key=key)
        self._state = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def of(self, row: int, repeat: int = 0) -> np.random.Generator:
        """The generator of an example; valid until the next call.

        Args:
            row: position of the example in the training split.
            repeat: how often it was shown in this epoch before.
        """
        self._state["state"]["counter"] = np.array([0, 0, row, repeat], dtype=np.uint64)
        self._bits.state = self._state
        return self._generator
