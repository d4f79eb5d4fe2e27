"""Memory that kernels write their results to."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor

LARGE = 1 << 22
"""Bytes from which on a tensor takes the memory of an earlier one. The system may give fresh memory
for each, page by page: writing 64 MB takes 14 ms then, 4.5 ms in pages of 2 MB, which numpy asks
for and torch doesn't, and 2.5 ms where it was in use before."""

KEPT = 1 << 28
"""Bytes of large results that are kept for the next ones of their size, when nobody needs them."""

SMALL = 1 << 14
"""Bytes below which vectors may straddle cache lines: numpy makes an array 1 µs faster."""

_LINE = 64
_KINDS: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}


def new_rows(rows: int, features: int, *, dtype: torch.dtype) -> Tensor:
    """An uninitialised tensor [rows, features] of floats on the CPU."""
    size = rows * features * dtype.itemsize
    if SMALL <= size < LARGE:
        return torch.empty((rows, features), dtype=dtype)
    if size < SMALL:
        return torch.from_numpy(np.empty((rows, features), _KINDS[dtype]))
    raw = _large(size + _LINE)
    begin = -raw.ctypes.data % _LINE
    array = raw[begin : begin + size].view(_KINDS[dtype]).reshape(rows, features)
    # the tensor, and all that shares its memory, keep this array alive
    weakref.finalize(array, _give_back, raw).atexit = False
    return torch.from_numpy(array)


_free: list[Any] = []
_lock = threading.RLock()  # a tensor may be collected, and give back, while one is being taken


def _large(size: int) -> Any:
    """Bytes: those of an earlier result, if some of this size are free."""
    with _lock:
        for place in reversed(range(len(_free))):  # the last one may still be in the cache
            if _free[place].nbytes == size:
                return _free.pop(place)
    return np.empty(size, np.uint8)


def _give_back(raw: Any) -> None:
    with _lock:
        _free.append(raw)
        while sum(held.nbytes for held in _free) > KEPT:
            _free.pop(0)  # unused for longest
