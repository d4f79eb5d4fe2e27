"""What a person watching a run sees."""

from __future__ import annotations

import io

import pytest

from zoo.training import progress
from zoo.training.progress import Display


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def follow(stream: io.StringIO, **options: bool) -> str:
    with Display(
        stream=stream, describe=lambda row: f"loss {row['loss']:.1f}", **options
    ) as display:
        display.say("it begins [with brackets]")
        for epoch in (1, 2):
            display.epoch(number=epoch, of=2, steps=3)
            for _ in range(3):
                display.step(loss=0.5, graphs_per_s=1234.0)
            display.end_epoch({"loss": epoch})
    return stream.getvalue()


def test_plain_lines_where_there_is_no_terminal() -> None:
    assert follow(io.StringIO()).splitlines() == [
        "it begins [with brackets]",
        "epoch 1/2: loss 1.0",
        "epoch 2/2: loss 2.0",
    ]


def test_a_long_epoch_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 20))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    lines = follow(io.StringIO()).splitlines()
    said = [line for line in lines if "step" in line]
    assert said and said[0] == "epoch 1/2, step 2/3: loss 0.5, 1,234 graphs/s"
    assert len(said) < 6


def test_a_bar_on_a_terminal_with_the_lines_above_it() -> None:
    text = follow(Terminal())
    assert "epoch 1/2: loss 1.0" in text and "it begins [with brackets]" in text
    assert "3/3" in text and "1,234 graphs/s" in text


def test_quiet_is_quiet_even_on_a_terminal() -> None:
    assert follow(Terminal(), quiet=True) == ""
