"""Geometries for molecules that come without one, within a time limit that holds."""

from __future__ import annotations

import atexit
import base64
import contextlib
import json
import math
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zoo.errors import DataError, RequestError, UnavailableError

_START_SECONDS = 120.0


class Conformer(NamedTuple):
    """numbers: int32 [n]; positions: float64 [n, 3] in Å; how: "ETKDGv3" or "random coordinates";
    warnings: what a person should know of it.
    """

    numbers: NDArray[np.int32]
    positions: NDArray[np.float64]
    how: str
    warnings: tuple[str, ...]


def embed(smiles_or_mol: Any, *, seed: int = 0, seconds: float = 10.0) -> Conformer:
    """Add hydrogens, place the atoms (ETKDGv3, then from random coordinates) and relax with MMFF94.

    The same molecule and seed give the same geometry. DataError with the reason if RDKit refuses
    the SMILES or Mol, or finds no conformer in `seconds`; UnavailableError if no process starts.
    """
    check_request(seed=seed, seconds=seconds)
    request: dict[str, Any] = {"seed": seed, "seconds": seconds}
    if isinstance(smiles_or_mol, str):
        request["smiles"] = smiles_or_mol
    else:
        request["mol"] = base64.b64encode(smiles_or_mol.ToBinary()).decode("ascii")
    answer = _ask(request, seconds=seconds)
    if "reason" in answer:
        raise DataError(answer["reason"])
    return Conformer(
        numbers=np.array(answer["numbers"], dtype=np.int32),
        positions=np.array(answer["positions"], dtype=np.float64).reshape(-1, 3),
        how=answer["how"],
        warnings=tuple(answer["warnings"]),
    )


def geometry_warning(*, how: str, level: str | None = None) -> str:
    """The warning that a made-up geometry isn't what the model was trained on.

    level: of theory, by which the training geometries were relaxed. QM9's is
    "DFT (B3LYP/6-31G(2df,p))"; a force field's geometry shifts the energies of its models.
    """
    wants = f"relaxed with {level}" if level else "like those it was trained on"
    return f"geometry made up ({how}); the model expects one {wants}"


def check_request(*, seed: int, seconds: float) -> None:
    """RequestError for a seed or a time limit that RDKit or a clock can't take."""
    if not 0 <= seed < 2**31:
        raise RequestError(f"a conformer's seed is between 0 and {2**31 - 1}, not {seed}")
    if not (math.isfinite(seconds) and seconds > 0):
        raise RequestError(f"the time limit of a conformer is a number of seconds, not {seconds}")


@dataclass(slots=True)
class _Worker:
    process: subprocess.Popen[str]
    owner: int  # the process that started it: a fork has no part in its pipes


_lock = threading.Lock()
_worker: _Worker | None = None


def _ask(request: dict[str, Any], *, seconds: float) -> dict[str, Any]:
    global _worker
    with _lock:
        if _worker is None or _worker.owner != os.getpid() or _worker.process.poll() is not None:
            _worker = None  # one that died between two molecules is simply replaced
            _worker = _start()
        process = _worker.process
        try:
            answer, late = _exchange(process, request, seconds=seconds)
        except BaseException:  # Ctrl-C: an answer that comes later would be taken for the next
            _stop(process)
            raise
        if answer is None or late:
            _stop(process)
        if answer is not None:
            return answer
        if late:
            return {"reason": f"no conformer within {seconds:g} s: give a geometry or more time"}
        return {"reason": f"RDKit crashed on this molecule (exit status {process.returncode})"}


def _start() -> _Worker:
    # Not multiprocessing's spawn, which would run an unguarded script of the user's again.
    code = f"import sys; sys.path[:] = {sys.path!r}; from zoo.chem import worker; worker.serve()"
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    except OSError as error:
        raise UnavailableError(
            f"cannot start {sys.executable!r} to make conformers: {error}"
        ) from error
    ready, _ = _exchange(process, None, seconds=_START_SECONDS)
    if ready is None or not ready["ready"]:
        _stop(process)
        why = ready["reason"] if ready else f"it ended with status {process.returncode}"
        raise UnavailableError(f"the process that makes conformers did not start: {why}")
    return _Worker(process=process, owner=os.getpid())


def _exchange(
    process: subprocess.Popen[str], request: dict[str, Any] | None, *, seconds: float
) -> tuple[dict[str, Any] | None, bool]:
    """Send a line and await one: the answer, or None if there is none, and whether the time was up
    (then the process is killed, also where an answer slipped through at the last moment).
    """
    assert process.stdin is not None and process.stdout is not None
    turn = threading.Lock()
    done = late = False

    def kill() -> None:
        nonlocal late
        with turn:
            if not done:
                late = True
                process.kill()

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        if request is not None:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        line = process.stdout.readline()
    except OSError:  # it died while we wrote
        line = ""
    finally:
        timer.cancel()
        with turn:
            done = True
    return (json.loads(line) if line.endswith("\n") else None), late


def _stop(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(OSError):
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # unsent text in a broken pipe
                pipe.close()


@atexit.register
def _stop_at_exit() -> None:
    if _worker is not None and _worker.owner == os.getpid():
        _stop(_worker.process)
