"""Work on many molecules in spawned processes, a part of them at a time and in order."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from typing import Any, TypeVar

CHUNK = 500
"""Molecules that a process takes at a time."""
FEW = 2000
"""Below this many molecules a process of its own takes longer to start than to be of use."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def cores() -> int:
    """How many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def map_chunks(
    function: Callable[[list[_Item]], _Result], items: Iterable[_Item], *, workers: int
) -> Iterator[_Result]:
    """`function` of `CHUNK` items at a time, in order; with several `workers` as many processes, if
    there are enough items.

    They are spawned: forked ones would inherit threads' locks. So `function` is a module's own.
    They run nothing of the program that asks, so that a script needs no guard against being run
    anew.
    """
    chunks = _chunked(items)
    first = list(islice(chunks, FEW // CHUNK))
    if workers <= 1 or len(first) < FEW // CHUNK:
        yield from map(function, first)
        yield from map(function, chunks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        with _no_program():  # all processes start with the first chunk
            waiting = deque(pool.submit(function, chunk) for chunk in first)
        while waiting:
            # No more is read than is being worked on: an input of any length is held in part.
            waiting.extend(pool.submit(function, chunk) for chunk in islice(chunks, 1))
            yield waiting.popleft().result()


@contextlib.contextmanager
def _no_program() -> Iterator[None]:
    """Hide from `multiprocessing` where the program came from, which processes else import."""
    main: dict[str, Any] = vars(sys.modules["__main__"])
    known: dict[str, Any] = {name: main[name] for name in ("__spec__", "__file__") if name in main}
    main.update(dict.fromkeys(known))
    try:
        yield
    finally:
        main.update(known)


def _chunked(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    source = iter(items)
    while chunk := list(islice(source, CHUNK)):
        yield chunk
