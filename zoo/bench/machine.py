"""What a measurement ran on: the cores, who else uses them, and how fast they can go at best.

Load is counted in cores: 1.0 is one core kept busy. With other work running, figures of two sides
fall by different factors and their ratio means nothing, so a bench stops unless it is told not to.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from zoo.errors import ZooError

QUIET = 0.15
"""Cores that other processes may use while something is measured."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """Average use of the cores over some seconds; `stolen` is what a hypervisor took away."""

    own: float
    others: float
    stolen: float
    seconds: float


class LoadMeter:
    """Reads the load since it was made. Child processes count as our own."""

    def __init__(self) -> None:
        self._begin = _counters()

    def read(self) -> Load:
        began, end = self._begin, _counters()
        wall, busy, stolen, own = (b - a for a, b in zip(began, end, strict=True))
        wall = max(wall, 1e-9)
        return Load(
            own=own / wall,
            others=max(0.0, busy - own) / wall,
            stolen=max(0.0, stolen) / wall,
            seconds=wall,
        )


def _counters() -> tuple[float, float, float, float]:
    """Seconds: wall, busy (all processes, all cores), stolen, busy with this process."""
    t = psutil.cpu_times()
    busy = sum(getattr(t, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq"))
    me = psutil.Process()
    own = sum(me.cpu_times()[:4])  # its own and of children that ended
    for child in me.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            own += sum(child.cpu_times()[:4])
    return time.monotonic(), busy, getattr(t, "steal", 0.0), own


def _by_process() -> dict[int, tuple[str, float]]:
    """Name and CPU seconds so far of every process that can be seen."""
    found = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None:
            found[process.pid] = (process.info["name"] or "?", times.user + times.system)
    return found


def check_quiet(*, force: bool = False, seconds: float = 1.0) -> Load:
    """The load while this process waits; ZooError when others use more than `QUIET` of a core.

    `force` measures anyway.
    """
    before = _by_process()
    meter = LoadMeter()
    time.sleep(seconds)
    load = meter.read()
    if load.others > QUIET and not force:
        used = {
            pid: (now - before.get(pid, (name, 0.0))[1], name)
            for pid, (name, now) in _by_process().items()
            if pid != os.getpid()
        }
        pid, (most, name) = max(used.items(), key=lambda item: item[1], default=(0, (0.0, "?")))
        who = f"{name} (process {pid}) most" if most > 0 else "by processes already gone"
        raise busy_error(load, who=who)
    return load


def busy_error(load: Load, *, who: str = "") -> ZooError:
    """The error for figures that other work would spoil."""
    return ZooError(
        f"something else is using the cores: {load.others:.2f} of a core"
        + (f", {who}" if who else f" over {load.seconds:.0f} s")
        + "\nwait for it or stop it; --force measures anyway, and such figures mean little"
    )


def describe() -> dict[str, Any]:
    """CPU, cores, threads and what else decides speed."""
    import torch

    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "cpu": _cpu_model(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "unset"),
        "zoo_kernels": os.environ.get("ZOO_KERNELS", "unset"),
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def flush_denormals() -> bool:
    """Make all of torch's threads treat denormal numbers as zero; whether that took.

    Threads take the setting from the one that starts them: call it before any work.
    """
    import torch

    torch.set_flush_denormal(True)
    # Large enough to be shared out among all threads.
    tiny = torch.full((1 << 22,), 2e-38) * 0.1  # normal times normal: denormal
    return not bool(tiny.any())


def peaks(*, seconds: float = 0.5, size: int = 2048, megabytes: int = 256) -> dict[str, float]:
    """The best of many tries: square matrix products in GFLOP/s, a copy in GB/s (read + written).

    The copied array should be larger than the last cache.
    """
    import torch

    found = {}
    for name, dtype in (("float32_gflops", torch.float32), ("bf16_gflops", torch.bfloat16)):
        rate = 0.0
        for side in (min(256, size), size):
            if rate and 2 * side**3 / rate > seconds:
                break  # without instructions for it bfloat16 is a hundred times slower
            a, b = (torch.rand(side, side).to(dtype) for _ in range(2))
            c = torch.empty_like(a)
            best = _best(lambda a=a, b=b, c=c: torch.mm(a, b, out=c), seconds)  # type: ignore[misc]
            rate = 2 * side**3 / best
        found[name] = rate / 1e9
    source = torch.ones(megabytes * 250_000)
    target = torch.empty_like(source)
    found["copy_gb_per_s"] = 2 * source.nbytes / _best(lambda: target.copy_(source), seconds) / 1e9
    return found


def _best(work: Callable[[], object], seconds: float) -> float:
    work()
    best, until = float("inf"), time.perf_counter() + seconds
    while True:
        began = time.perf_counter()
        work()
        now = time.perf_counter()
        best = min(best, now - began)
        if now > until:
            return best
