"""Numba's set-up: where compiled kernels are cached, and how they are compiled.

Numba decides at decoration time where a kernel's machine code is cached and raises when no place
is writable, so the place is chosen here, before any kernel is decorated: what NUMBA_CACHE_DIR
names, the package's own folder, the user's cache, or none. Kernel modules import `njit` from here
and are themselves imported at the first call of their op, never by `import zoo`.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _choose_cache() -> tuple[bool, str]:
    """Whether kernels can be cached, and in which folder ("": beside each source file)."""
    if configured := os.environ.get("NUMBA_CACHE_DIR"):
        folder, advice = Path(configured), "NUMBA_CACHE_DIR names no such folder"
    elif _writable(Path(__file__).parent / "__pycache__"):
        return True, ""
    else:
        user_cache = Path(os.environ.get("ZOO_CACHE") or platformdirs.user_cache_path("gnn-zoo"))
        folder, advice = user_cache / "kernels", "set ZOO_CACHE to a writable folder"
    if _writable(folder):
        return True, str(folder)
    warnings.warn(
        "no writable folder for compiled kernels: they are compiled anew in each process "
        f"({advice})",
        stacklevel=2,
    )
    return False, ""


_CACHE, _FOLDER = _choose_cache()
if _FOLDER:
    os.environ["NUMBA_CACHE_DIR"] = _FOLDER  # for numba's import, and for spawned workers

import numba  # noqa: E402  (the cache folder must be chosen first)

if _FOLDER:
    # someone may have imported numba before
    numba.config.CACHE_DIR = _FOLDER  # type: ignore[attr-defined]

# NaN and infinity keep their meaning (a diverging run must be seen); sums may be reordered and
# products fused, which is what lets a reduction use vector registers.
_FAST = {"contract", "reassoc", "nsz", "arcp"}


def njit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a serial kernel that releases the GIL, lazily, once per combination of dtypes."""
    compiled: Callable[..., Any] = _compile(cache=_CACHE)(function)
    return compiled


def helper(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile what kernels call, into each of them: their own caches hold it."""
    compiled: Callable[..., Any] = _compile(cache=False, forceinline=True)(function)
    return compiled


def _compile(**options: Any) -> Any:
    return numba.njit(nogil=True, fastmath=_FAST, error_model="numpy", **options)
