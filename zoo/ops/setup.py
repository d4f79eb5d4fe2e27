"""Numba's set-up: where compiled kernels are cached, and how they are compiled.

Numba decides at decoration time where a kernel's machine code is cached and raises when no place
is writable, so the place is chosen here, before numba is imported. Kernel modules import `njit`
from here and are themselves imported at the first call of their op, never by `import zoo`.
"""

from __future__ import annotations

import os
import sys
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


def _choose_cache() -> bool:
    """Point NUMBA_CACHE_DIR at a writable folder; False when there is none."""
    if "numba" in sys.modules or "NUMBA_CACHE_DIR" in os.environ:
        configured = os.environ.get("NUMBA_CACHE_DIR")
        return configured is None or _writable(Path(configured))
    if _writable(Path(__file__).parent / "__pycache__"):
        return True
    user_cache = Path(os.environ.get("ZOO_CACHE") or platformdirs.user_cache_path("gnn-zoo"))
    if _writable(user_cache / "kernels"):
        os.environ["NUMBA_CACHE_DIR"] = str(user_cache / "kernels")
        return True
    warnings.warn(
        "no writable folder for compiled kernels: they are compiled anew in each process "
        "(set ZOO_CACHE to a writable folder)",
        stacklevel=2,
    )
    return False


_CACHE = _choose_cache()

import numba  # noqa: E402  (the cache folder must be chosen first)

# NaN and infinity keep their meaning (a diverging run must be seen); sums may be reordered and
# products fused, which is what lets a reduction use vector registers.
_FAST = {"contract", "reassoc", "nsz", "arcp"}


def njit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a serial kernel that releases the GIL, lazily, once per combination of dtypes."""
    compiled: Callable[..., Any] = numba.njit(
        nogil=True, fastmath=_FAST, cache=_CACHE, error_model="numpy"
    )(function)
    return compiled
