"""Memory that kernels write their results to."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

LARGE = 1 << 25
"""Bytes from which on the system gives fresh memory for each tensor, page by page (32 MB, the most
that glibc keeps for the next). Writing 64 MB of it takes 20 ms, 7 ms where it was in use before,
and 10 ms in pages of 2 MB, which numpy asks the system for and torch doesn't.
"""

SMALL = 1 << 14
"""Bytes below which vectors may straddle cache lines: numpy makes an array 1 µs faster."""

_LINE = 64
_KINDS: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}


def new_rows(rows: int, features: int, *, dtype: torch.dtype) -> Tensor:
    """An uninitialised tensor [rows, features] of floats on the CPU, in large pages if large."""
    size = rows * features * dtype.itemsize
    if SMALL <= size < LARGE:
        return torch.empty((rows, features), dtype=dtype)
    if size < SMALL:
        return torch.from_numpy(np.empty((rows, features), _KINDS[dtype]))
    raw = np.empty(size + _LINE, np.uint8)
    begin = -raw.ctypes.data % _LINE
    array = raw[begin : begin + size].view(_KINDS[dtype]).reshape(rows, features)
    return torch.from_numpy(array)
