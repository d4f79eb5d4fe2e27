"""Work in fresh Python processes, so that what each loads, holds and sets is its own.

A worker is `python -m zoo.bench.worker module:function`. The function is called once with the first
line of stdin and returns the handlers that later lines call by name; lines are JSON both ways.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import zoo
from zoo import errors
from zoo.errors import ZooError

Handlers = Mapping[str, Callable[..., Any]]


class Worker:
    """A process that serves the handlers of `target` ("module:function"), called with `arguments`.

    `env` changes its environment; None removes a variable. What it prints goes to stderr.
    """

    def __init__(
        self, target: str, *, env: Mapping[str, str | None] | None = None, **arguments: Any
    ):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "zoo.bench.worker", target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(env or {}),
        )
        self._ready = False
        self._send(arguments)

    def ask(self, handler: str, **arguments: Any) -> Any:
        """Call a handler; a ZooError there is raised here, as one is when the process ends."""
        if not self._ready:
            self._answer()
            self._ready = True
        self._send([handler, arguments])
        return self._answer()

    def _send(self, value: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(value) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: reading its answer says so

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ZooError(f"a measuring process ended with code {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            kind: type[ZooError] = getattr(errors, answer["kind"], ZooError)
            raise kind(answer["error"])
        return answer["result"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._process.kill()
        self._process.communicate()  # closes its stdin, which ends it


def environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """This process's environment with changes, and this zoo importable from anywhere."""
    root = str(Path(zoo.__file__).resolve().parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    wanted = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **changes}
    return {name: value for name, value in wanted.items() if value is not None}


def main() -> None:
    """Serve until stdin ends."""
    # Answers keep the pipe to themselves; whatever a library prints goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, _, name = sys.argv[1].partition(":")
    handlers: dict[str, Callable[..., Any]] = {}

    def serve(work: Callable[..., Any], arguments: dict[str, Any]) -> None:
        try:
            answer: dict[str, Any] = {"result": work(**arguments)}
        except ZooError as error:
            answer = {"kind": type(error).__name__, "error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)

    def start(**arguments: Any) -> None:
        handlers.update(getattr(importlib.import_module(module), name)(**arguments))

    serve(start, json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        handler, arguments = json.loads(line)
        serve(handlers[handler], arguments)


if __name__ == "__main__":
    main()
