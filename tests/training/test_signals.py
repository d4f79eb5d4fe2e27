"""Signals are noted, not died of, from where it begins to where it ends."""

from __future__ import annotations

import os
import signal

import pytest

from zoo.training.signals import stop_signals


def send(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


def test_a_signal_is_noted_and_the_old_handler_comes_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_signals() as stop:
        assert not stop.asked and stop.name == "a signal"
        send()
        assert stop.asked and stop.name == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) is before
    with stop_signals() as stop:
        assert not stop.asked


def test_what_was_asked_outside_is_known_inside() -> None:
    told: list[str] = []
    with stop_signals(then=lambda: told.append("outer")) as outer:
        send()
        with stop_signals(then=lambda: told.append("inner")) as inner:
            assert inner is outer and inner.asked
            assert told == ["outer", "inner"]
            send()
        assert told == ["outer", "inner", "outer", "inner"]
        send()
        assert told[-1] == "outer"
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL


def test_a_second_ctrl_c_does_not_wait_also_within() -> None:
    with stop_signals(), stop_signals():
        send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
