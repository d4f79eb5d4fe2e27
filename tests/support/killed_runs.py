"""Trains one config again and again, each time killed somewhere and resumed: a script.

    python killed_runs.py FOLDER '{"config": {...}, "steps": [3, 8], "moments": [[0.1, 0.5]]}'

A step's run is ended by SIGKILL right after it; a list of moments are the shares of a whole run
after which one run is killed time and again before it may finish. Each run and each resumption is a
process of its own, forked from this one, whose own short run has loaded all that they need. Prints
one JSON object: how each process ended, and the sha256 of the best weights of an unbroken run
("unbroken") and of the others.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zoo.files import sha256_file
from zoo.recipes import run as running
from zoo.recipes.config import Config, as_config


def _child(work: Callable[[], Any], *, seconds: float | None = None) -> int:
    """The wait status of a forked process that does the work, or is killed after `seconds`."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _train(config: Config, folder: Path, *, kill_at: int | None = None) -> None:
    def after_step(step: int) -> None:
        if step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    resume = (folder / "config.json").exists()
    running.run(config=config, folder=folder, resume=resume, after_step=after_step)


def _broken(config: Config, folder: Path, *, kill_at: int) -> dict[str, Any]:
    ends = [_child(lambda: _train(config, folder, kill_at=kill_at))]
    ends.append(_child(lambda: _train(config, folder)))
    return {"ends": ends, "sha256": _weights(folder)}


def _hunted(config: Config, folder: Path, *, moments: list[float]) -> dict[str, Any]:
    ends = [_child(lambda: _train(config, folder), seconds=moment) for moment in moments]
    ends.append(_child(lambda: _train(config, folder)))
    return {"ends": ends, "sha256": _weights(folder)}


def _weights(folder: Path) -> str:
    return sha256_file(folder / "checkpoints" / "best" / "weights.safetensors")


def main() -> None:
    folder, plan = Path(sys.argv[1]), json.loads(sys.argv[2])
    config = as_config(plan["config"], where="the plan")
    running._plots = lambda *_: []  # type: ignore[assignment]
    running.run(config=config, folder=folder / "warm")
    began = time.monotonic()
    found: dict[str, Any] = {"end": _child(lambda: _train(config, folder / "unbroken"))}
    found["seconds"] = time.monotonic() - began
    found["unbroken"] = _weights(folder / "unbroken")
    for step in plan["steps"]:
        found[f"step {step}"] = _broken(config, folder / f"step-{step}", kill_at=step)
    for number, shares in enumerate(plan["moments"]):
        moments = [share * found["seconds"] for share in shares]
        found[f"hunted {number}"] = _hunted(config, folder / f"hunted-{number}", moments=moments)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
