"""A signal during the block is handled at its end, and before any error of the block."""

import signal
import threading
from collections.abc import Iterator

import pytest

from elfnet.interrupts import deferred_interrupts


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, previous)


def test_the_block_is_finished_first() -> None:
    steps = []

    def read() -> None:
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
            steps.append("read")

    with pytest.raises(KeyboardInterrupt):
        read()
    assert steps == ["read"]


def test_the_interrupt_comes_before_an_error() -> None:
    def read() -> None:
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("could not determine the shape of an object")

    with pytest.raises(KeyboardInterrupt):
        read()


def test_without_a_signal_nothing_changes() -> None:
    with pytest.raises(ValueError, match="damaged"), deferred_interrupts():
        raise ValueError("damaged")


def test_ignored_signals_stay_ignored() -> None:
    previous = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with deferred_interrupts():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, previous)


def test_blocks_can_be_nested_and_used_in_threads() -> None:
    def use() -> None:
        with deferred_interrupts():
            pass

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    steps = []

    def read() -> None:
        with deferred_interrupts():
            with deferred_interrupts():
                signal.raise_signal(signal.SIGINT)
                steps.append("inner")
            steps.append("outer")

    with pytest.raises(KeyboardInterrupt):
        read()
    assert steps == ["inner", "outer"]
