"""Packs of one step side by side on the threads of one process.

Splitting each small operator over cores costs a wake-up per operator; giving each core a pack of
its own costs one per step, and keeps that pack in the core's own cache. Every pack is computed by
one thread and results are combined in the order of the packs, so the bits don't depend on how many
lanes there are.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import torch

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="lane", initializer=_use_one_thread)


def _use_one_thread() -> None:
    """The number of operator threads is a thread's own setting; a lane has one."""
    # Asked first, since a thread takes the process's number over at its first operator, which would
    # undo what was set before.
    torch.get_num_threads()
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def lane_map(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """`map` on as many lanes as torch has threads, in order, reading ahead by one item a lane."""
    threads = torch.get_num_threads()
    source = iter(items)
    if threads == 1:
        yield from map(function, source)
        return
    pool = _pool(threads)
    waiting = [pool.submit(function, item) for item in islice(source, 2 * threads)]
    torch.set_num_threads(threads)  # the lanes' own setting also became the default of new threads
    while waiting:
        result = waiting.pop(0).result()
        waiting.extend(pool.submit(function, item) for item in islice(source, 1))
        yield result
