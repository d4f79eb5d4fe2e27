"""Signals that ask a run to stop: noted, so that it ends between two steps, all of it saved."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """The signal that asked the run to stop, if any, and what else is to be told of it."""

    number: int | None = None

    def __init__(self) -> None:
        self.then: list[Callable[[], None]] = []

    @property
    def asked(self) -> bool:
        return self.number is not None

    @property
    def name(self) -> str:
        """What asked, for people."""
        return "a signal" if self.number is None else signal.Signals(self.number).name


_active: Stop | None = None


@contextmanager
def stop_signals(*, then: Callable[[], None] | None = None) -> Iterator[Stop]:
    """Note SIGTERM and SIGINT instead of dying in the middle of a step, and call `then`.

    A second Ctrl-C doesn't wait: KeyboardInterrupt. Within another such block this is the same
    stop, so that what was asked before training began is not lost.
    """
    global _active
    if _active is not None:
        stop = _active
        if then:
            stop.then.append(then)
            if stop.asked:
                then()
        try:
            yield stop
        finally:
            if then:
                stop.then.remove(then)
        return
    stop = Stop()
    stop.then = [then] if then else []

    def note(number: int, frame: FrameType | None) -> None:
        if number == stop.number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.number = number
        for told in stop.then:
            told()

    try:
        before = {s: signal.signal(s, note) for s in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread: its owner handles signals
        before = {}
    _active = stop if before else None
    try:
        yield stop
    finally:
        _active = None
        for number, handler in before.items():
            signal.signal(number, handler)
