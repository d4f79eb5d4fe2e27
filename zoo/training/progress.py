"""What a person watching a run sees: a bar on a terminal, plain lines elsewhere; all on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, TextIO

Format = Callable[[Mapping[str, float]], str]


class Display:
    """Progress of one run. `describe` turns an epoch's numbers into a line with units."""

    def __init__(
        self,
        *,
        describe: Format | None = None,
        stream: TextIO | None = None,
        quiet: bool = False,
    ) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._describe = describe or _plain
        self._terminal = self._stream.isatty() and not quiet
        self._bar: Any = None
        self._task: Any = None
        self._title = ""
        self._done, self._steps, self._said = 0, 0, time.monotonic()

    def say(self, line: str) -> None:
        """One line for the reader, above the bar."""
        if self._quiet:
            return
        if self._bar:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=self._stream, flush=True)

    def epoch(self, *, number: int, of: int, steps: int, done: int = 0) -> None:
        """An epoch of `steps` begins, `done` of them before this process did."""
        self._title, self._steps, self._done = f"epoch {number}/{of}", steps, done
        if not self._terminal:
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

            self._bar = Progress(
                "{task.description}",
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                "{task.fields[note]}",
                console=Console(file=self._stream),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=steps, note="")
        self._bar.reset(self._task, total=steps, completed=done, description=self._title, note="")

    def step(self, *, loss: float, graphs_per_s: float) -> None:
        self._done += 1
        note = f"loss {loss:.4g}, {graphs_per_s:,.0f} graphs/s"
        if self._bar:
            self._bar.update(self._task, advance=1, note=note)
        elif time.monotonic() - self._said > 30:
            self._said = time.monotonic()
            self.say(f"{self._title}, step {self._done}/{self._steps}: {note}")

    def end_epoch(self, row: Mapping[str, float]) -> None:
        self.say(f"{self._title}: {self._describe(row)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar:
            self._bar.stop()
            self._bar = None


def _plain(row: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in row.items() if name != "epoch")
