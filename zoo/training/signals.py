"""Signals that ask a run to stop: noted, so that it ends between two steps, all of it saved."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """The signal that asked the run to stop, if any."""

    number: int | None = None

    @property
    def asked(self) -> bool:
        return self.number is not None

    @property
    def name(self) -> str:
        """What asked, for people."""
        return "a signal" if self.number is None else signal.Signals(self.number).name


@contextmanager
def stop_signals(*, then: Callable[[], None] | None = None) -> Iterator[Stop]:
    """Note SIGTERM and SIGINT instead of dying in the middle of a step, and call `then`.

    A second Ctrl-C doesn't wait: KeyboardInterrupt.
    """
    stop = Stop()

    def note(number: int, frame: FrameType | None) -> None:
        if number == stop.number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.number = number
        if then:
            then()

    try:
        before = {s: signal.signal(s, note) for s in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread: its owner handles signals
        before = {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
