"""Data-parallel copies: one process each, gradients averaged by DistributedDataParallel.

Without replicas everything here is the identity, so the loop reads the same with one process.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import (
    ProcessExitedException,
    ProcessRaisedException,
    start_processes,
)
from torch.nn.parallel import DistributedDataParallel

from zoo.errors import StoppedError, ZooError
from zoo.training.signals import stop_signals

# How long the other replicas may take to end by themselves when one has failed.
_GRACE_SECONDS = 20.0


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
    rank: int, replicas: int, folder: str, threads: int, work: Callable[..., Any], args: tuple[Any]
) -> None:
    torch.set_num_threads(threads)
    store = f"file://{Path(folder) / 'group'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=replicas)
    try:
        with stop_signals():
            work(*args)
    except ZooError as error:
        text = json.dumps([type(error).__name__, str(error)])
        (Path(folder) / f"error-{rank}").write_text(text, encoding="utf-8")
        # All replicas stop at the same step, and each has its own log to end: none is in a hurry.
        if not isinstance(error, StoppedError):
            raise
    # All leave together, and at once: threads of gloo's that still run when Python winds up abort
    # the process now and then, its work done.
    dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def spawn(work: Callable[..., Any], *args: Any, replicas: int) -> None:
    """Run `work(*args)` in `replicas` spawned processes that form one group (gloo).

    They meet in a file, not on a port; each gets an equal share of the threads. SIGTERM and SIGINT
    are passed on to them. A ZooError in one ends the others and is raised here; ZooError too for a
    replica that dies of something else.
    """
    threads = max(1, torch.get_num_threads() // replicas)
    with tempfile.TemporaryDirectory() as folder:
        everything = (replicas, folder, threads, work, args)
        context: Any = start_processes(_main, everything, nprocs=replicas, join=False)  # type: ignore[no-untyped-call]

        def pass_on() -> None:
            for process in context.processes:
                if process.is_alive():
                    process.terminate()

        try:
            with stop_signals(then=pass_on) as stop:
                while not context.join(grace_period=_GRACE_SECONDS):
                    pass
        except (ProcessRaisedException, ProcessExitedException) as error:
            raise _told(Path(folder)) or _untold(error, stopped=stop.asked) from error
        finally:
            for process in context.processes:
                if process.is_alive():
                    process.kill()
        if told := _told(Path(folder)):
            raise told


def _told(folder: Path) -> ZooError | None:
    """The error that a replica left word of, the first one's if several did."""
    known: tuple[type[ZooError], ...] = (ZooError, *ZooError.__subclasses__())
    kinds = {kind.__name__: kind for kind in known}
    for path in sorted(folder.glob("error-*")):
        kind, text = json.loads(path.read_text(encoding="utf-8"))
        return kinds[kind](text)
    return None


def _untold(error: Exception, *, stopped: bool) -> ZooError:
    """What to say of a replica that died without a word."""
    if stopped:
        return StoppedError("stopped outside of training: what was saved before is kept")
    number = getattr(error, "error_index", 0)
    if isinstance(error, ProcessExitedException):
        how = error.signal_name or f"exit code {error.exit_code}"
        if error.exit_code == 1:
            how += "\na script that asks for replicas needs: if __name__ == '__main__':"
        elif error.signal_name == "SIGKILL":
            how += ", as when memory runs out\nthe last checkpoint is kept"
        return ZooError(f"replica {number} ended with {how}")
    last = str(error).strip().splitlines()[-1]
    return ZooError(f"replica {number} failed: {last}\nZOO_DEBUG=1 shows where it came from")


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
