"""The one place that owns kernel parallelism.

Kernels are serial functions over a range of chunks. `launch` splits the chunks among a pool of
`torch.get_num_threads()` threads (the caller is one of them). Chunk boundaries depend on the data
alone, so results have the same bits on any number of threads. Threads are used, not numba's
`prange`: its OpenMP layer brings a second runtime that kills forked workers, and its own
work-queue aborts when two Python threads launch at once.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

import torch

CHUNKS = 16
"""Chunks a launch is divided into: more than cores, so that a slow one doesn't hold the rest."""

CHUNK_SIZE = 1 << 19
"""Numbers a chunk should move at least: waking a thread and drawing chunks costs 15 µs, in which
one core moves about as many."""


def chunks_for(moved: int) -> int:
    """Chunks for a kernel that reads and writes so many numbers: one, in the caller's thread, for
    small work. Depends on sizes alone, never on the number of threads.
    """
    return max(1, min(CHUNKS, moved // CHUNK_SIZE))


class _Job:
    """One launch: chunks are drawn by whichever thread is free."""

    def __init__(self, *, kernel: Callable[..., None], args: tuple[Any, ...], chunks: int) -> None:
        self.kernel = kernel
        self.args = args
        self.chunks = chunks
        self.drawn = itertools.count()  # next() holds the GIL: atomic
        self.error: BaseException | None = None

    def work(self) -> None:
        try:
            while (chunk := next(self.drawn)) < self.chunks:
                self.kernel(*self.args, chunk)
        except BaseException as error:
            self.error = error


_Task = tuple[_Job, "threading.Semaphore"]
_tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
_workers = 0
_lock = threading.Lock()


def _worker(tasks: queue.SimpleQueue[_Task]) -> None:
    while True:
        job, done = tasks.get()
        job.work()
        done.release()
        del job, done  # a parked worker must not keep the last launch's tensors alive


def _forget_workers() -> None:
    """After a fork the child has no workers: start with a new queue and lock."""
    global _tasks, _workers, _lock
    _tasks, _workers, _lock = queue.SimpleQueue(), 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)


def launch(kernel: Callable[..., None], *args: Any, chunks: int = CHUNKS) -> None:
    """Run `kernel(*args, chunk)` for every chunk in 0..chunks-1; return when all are done."""
    global _workers
    if chunks == 1:
        kernel(*args, 0)
        return
    helpers = min(torch.get_num_threads(), chunks) - 1
    job = _Job(kernel=kernel, args=args, chunks=chunks)
    if helpers > 0:
        if _workers < helpers:
            with _lock:
                while _workers < helpers:
                    threading.Thread(target=_worker, args=(_tasks,), daemon=True).start()
                    _workers += 1
        done = threading.Semaphore(0)
        for _ in range(helpers):
            _tasks.put((job, done))
        job.work()
        for _ in range(helpers):
            done.acquire()
    else:
        job.work()
    if job.error is not None:
        raise job.error
