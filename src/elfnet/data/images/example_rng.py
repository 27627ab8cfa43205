"""Random numbers per example, as a pure function of (seed, epoch, row, repeat).

So the augmentation of an example does not depend on the batch size or on the number of processes, and an epoch can be
repeated after a resume.
"""

import numpy as np


class ExampleRng:
    """Random number generators of the examples of an epoch.

    One counter-based generator is moved to the start of each example: creating a new one is many times slower.
    """

    def __init__(self, seed: int, epoch: int) -> None:
        key = np.random.SeedSequence([seed, epoch]).generate_state(2, np.uint64)
        self._bits = np.random.Philox(key=key)
        self._state = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def of(self, row: int, repeat: int = 0) -> np.random.Generator:
        """The generator of an example; valid until the next call.

        Args:
            row: Position of the example in the training split.
            repeat: How often the example was shown before in this epoch.
        """
        self._state["state"]["counter"] = np.array([0, 0, row, repeat], dtype=np.uint64)
        self._bits.state = self._state
        return self._generator
