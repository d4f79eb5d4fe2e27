"""Data-parallel copies: one process each, gradients averaged by DistributedDataParallel.

Without replicas everything here is the identity, so the loop reads the same with one process.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn as spawn_processes
from torch.nn.parallel import DistributedDataParallel


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def count() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def wrap(module: nn.Module) -> nn.Module:
    """The module whose backward pass averages gradients over replicas."""
    return DistributedDataParallel(module) if dist.is_initialized() else module


def without_sync(module: nn.Module) -> contextlib.AbstractContextManager[None]:
    """Skip the averaging: for all but the last pack of an accumulated step."""
    if isinstance(module, DistributedDataParallel):
        return module.no_sync()
    return contextlib.nullcontext()


def total(values: Tensor) -> Tensor:
    """The sum of a tensor over replicas, in place."""
    if dist.is_initialized():
        dist.all_reduce(values)
    return values


def any_true(flag: bool) -> bool:
    """Whether the flag is set on any replica."""
    return bool(total(torch.tensor(float(flag))) > 0) if dist.is_initialized() else flag


def _main(
    rank: int, replicas: int, store: str, threads: int, work: Callable[..., Any], args: tuple[Any]
) -> None:
    torch.set_num_threads(threads)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=replicas)
    try:
        work(*args)
    finally:
        dist.destroy_process_group()


def spawn(work: Callable[..., Any], *args: Any, replicas: int) -> None:
    """Run `work(*args)` in `replicas` spawned processes that form one group (gloo).

    They meet in a file, not on a port; each gets an equal share of the threads. An error in one
    ends the others and is raised here.
    """
    threads = max(1, torch.get_num_threads() // replicas)
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "group")
        everything = (replicas, store, threads, work, args)
        spawn_processes(_main, everything, nprocs=replicas)  # type: ignore[no-untyped-call]


def join_torchrun() -> bool:
    """Whether this process is one of `torchrun`'s; joins the group that its environment says."""
    if "LOCAL_RANK" not in os.environ:
        return False
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    return True


def agree(text: str) -> str:
    """The first replica's text, on each of them."""
    if not dist.is_initialized():
        return text
    values = [text]
    dist.broadcast_object_list(values)
    return values[0]


def wait_for_all() -> None:
    """Return when every replica has come here."""
    if dist.is_initialized():
        dist.barrier()


def gather(values: Tensor) -> Tensor:
    """Every replica's rows, end to end, on each of them (rows may differ in number)."""
    if not dist.is_initialized():
        return values
    parts: list[Any] = [None] * count()
    dist.all_gather_object(parts, values)
    return torch.cat(parts)
