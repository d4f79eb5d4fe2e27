"""The one place that owns kernel parallelism.

Kernels are serial functions over a range of chunks. `launch` has the chunks drawn by
`torch.get_num_threads()` threads (the caller is one of them): those of the OpenMP library that
torch computes with, so that there is one pool, which is awake after an operator of torch, and not
two that take each other's cores. Numba's `prange` isn't used: its OpenMP layer kills forked
workers, and its own work-queue aborts when two Python threads launch at once.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

CHUNKS = 16
"""Chunks a launch is divided into: more than cores, so that a slow one doesn't hold the rest."""

_SLEEPING = os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE"
CHUNK_SIZE = 1 << 19 if _SLEEPING else 1 << 16
"""Numbers a chunk should move at least. To share work out among threads that spin takes 5 µs; to
wake those that sleep takes 50 to 100, in which one core moves a million numbers."""

_forked = False
"""True in a forked child: OpenMP's threads don't survive a fork, and to start new ones hangs."""


def _note_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def chunks_for(moved: int) -> int:
    """Chunks for a kernel that reads and writes so many numbers, and whose results have the same
    bits in any number of chunks: one, in the caller's thread, for small work.
    """
    return max(1, min(CHUNKS, moved // CHUNK_SIZE))


def launch(kernel: Callable[..., None], *args: Any, chunks: int = CHUNKS) -> None:
    """Run `kernel(*args, chunk)` for every chunk in 0..chunks-1; return when all are done.

    `kernel` is compiled by `zoo.ops.setup.njit`. RuntimeError where it raised.
    """
    if chunks == 1:
        kernel(*args, 0)
        return
    threads = 1 if _forked else torch.get_num_threads()
    parallel, number = _openmp()
    task = _native().job(
        kernel, args, chunks=chunks, threads=threads, number=number if threads > 1 else 0
    )
    if threads == 1:
        _function(task.address)(task.words)
    elif parallel:
        # always of all threads: OpenMP ends and starts threads where their number changes
        parallel(task.address, task.words, threads, 0)
    else:
        run = _function(task.address)
        waiting = [_threads(threads - 1).submit(run, task.words) for _ in range(threads - 1)]
        run(task.words)
        concurrent.futures.wait(waiting)
    if task.failed:
        raise RuntimeError(f"kernel {kernel.__name__} failed")


@cache
def _native() -> Any:
    """Imports numba: at the first launch, not with `import zoo`."""
    from zoo.ops import native

    return native


@cache
def _function(address: int) -> Callable[..., None]:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)


@cache
def _openmp() -> tuple[Callable[..., None] | None, int]:
    """What runs a C function on each of torch's threads, and the address of what numbers them;
    None and 0 where torch doesn't compute with GNU's OpenMP.
    """
    if "OpenMP" not in torch.__config__.parallel_info() or not hasattr(os, "RTLD_NOLOAD"):
        return None, 0
    try:
        library = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None, 0
    parallel = library.GOMP_parallel
    parallel.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    parallel.restype = None
    return parallel, ctypes.cast(library.omp_get_thread_num, ctypes.c_void_p).value or 0


@cache
def _threads(count: int) -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(count, thread_name_prefix="zoo-kernel")
