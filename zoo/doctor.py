"""What `zoo doctor` looks at: versions, tools, places to write, data and weights."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zoo import hub, registry

Check = dict[str, str]


def examine() -> dict[str, Any]:
    """Every check and its state: ok, missing (an option that isn't there), bad (to be mended)."""
    checks = [
        _survived("versions", _versions),
        _survived("threads", _threads),
        _survived("g++", _compiler),
        _survived("GPU", _gpu),
        _survived("cache", lambda: _writable("cache", hub.cache_dir())),
        _survived("this folder", lambda: _writable("this folder (runs, mlflow.db)", Path.cwd())),
        _survived("kernels", _kernels),
        _survived("QM9", _qm9),
        _survived("weights", _weights),
        _survived("network", _offline),
    ]
    return {"ok": all(c["state"] != "bad" for c in checks), "checks": checks}


def _check(name: str, state: str, says: str) -> Check:
    return {"name": name, "state": state, "says": says}


def _versions() -> Check:
    names = ("gnn-zoo", "torch", "torch-geometric", "numba", "rdkit", "ase", "mlflow")
    found = []
    for name in names:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            return _check("versions", "bad", f"{name} is not installed")
    return _check("versions", "ok", f"Python {platform.python_version()}, " + ", ".join(found))


def _threads() -> Check:
    import torch

    policy = os.environ.get("OMP_WAIT_POLICY", "not set")
    return _check(
        "threads",
        "ok",
        f"{torch.get_num_threads()} for torch and kernels, OMP_WAIT_POLICY {policy}",
    )


def _compiler() -> Check:
    path = shutil.which("g++")
    if path:
        return _check("g++", "ok", f"{path}: the inductor backend can compile")
    return _check("g++", "missing", "the inductor backend needs it; eager, the default, doesn't")


def _gpu() -> Check:
    import torch

    if torch.cuda.is_available():
        return _check("GPU", "ok", torch.cuda.get_device_name(0))
    return _check("GPU", "missing", "none that torch sees; everything runs on the CPU")


def _writable(name: str, folder: Path) -> Check:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free / 1e9
    except OSError as error:
        return _check(name, "missing", f"{folder} can't be written ({error.strerror})")
    return _check(name, "ok", f"{folder}, {free:.0f} GB free")


def _kernels() -> Check:
    from zoo.ops.dispatch import kernels_enabled

    if not kernels_enabled():
        return _check("kernels", "missing", "switched off by ZOO_KERNELS=reference")

    def try_one() -> None:
        import numpy as np

        from zoo.batching.kernels import count_within

        count = np.zeros(1, np.int32)
        count_within(np.eye(2, 3, dtype=np.float32), np.array([0, 2]), 2.0, count)
        assert count[0] == 2, count

    return _try("kernels", try_one, "numba compiles and runs them")


def _qm9() -> Check:
    if find_spec("qm9pack"):
        return _check("QM9", "ok", "qm9pack is installed")
    data = os.environ.get("ZOO_DATA", "not set")
    return _check("QM9", "missing", f"install gnn-zoo[qm9], or name its folder (ZOO_DATA: {data})")


def _weights() -> Check:
    names = [
        (f"{e.name}.{tag}", block.weights)
        for e in registry.entries().values()
        for tag, block in e.tags.items()
        if block.weights
    ]

    def verify() -> None:
        for _, weights in names:
            assert weights is not None
            hub.locate(weights=weights)

    says = f"{len(names)} verified: {', '.join(n for n, _ in names)}" if names else "none shipped"
    return _try("weights", verify, says)


def _offline() -> Check:
    says = "ZOO_OFFLINE=1: no socket is opened" if hub.offline() else "downloads are allowed"
    return _check("network", "ok", says)


def _try(name: str, work: Callable[[], None], says: str) -> Check:
    def check() -> Check:
        work()
        return _check(name, "ok", says)

    return _survived(name, check)


def _survived(name: str, check: Callable[[], Check]) -> Check:
    """A check whose own failure, of whatever kind, is what it found."""
    try:
        return check()
    except Exception as error:
        first = str(error).strip().split("\n")[0]
        return _check(name, "bad", first or type(error).__name__)
