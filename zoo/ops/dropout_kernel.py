"""CPU kernel of `zoo.ops.dropout`."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.ops.setup import njit

Array = Any


@njit
def mixed(value: Any) -> Any:
    """The same 32 bits as the reference makes of a number, in uint32 arithmetic."""
    value = np.uint32(value ^ (value >> np.uint32(16))) * np.uint32(0x7FEB352D)
    value = np.uint32(value)
    value = np.uint32(value ^ (value >> np.uint32(15))) * np.uint32(0x846CA68B)
    value = np.uint32(value)
    return np.uint32(value ^ (value >> np.uint32(16)))


def key_of(seed: int, stream: int) -> np.uint32:
    """What the places of a call are counted from."""
    first = int(mixed(np.uint32(seed & 0xFFFFFFFF)))
    return np.uint32(mixed(np.uint32((first + (stream + 1) * 0x9E3779B9) & 0xFFFFFFFF)))


def limit_of(p: float) -> np.uint32:
    return np.uint32(int(p * 2**32))


@njit
def drop(x: Array, key: Any, limit: Any, scale: float, out: Array, chunks: int, chunk: int) -> None:
    """out = 0 where the place's number is below `limit`, else x * scale."""
    size = x.shape[0]
    begin, end = size * chunk // chunks, size * (chunk + 1) // chunks
    a, b = x[begin:end], out[begin:end]
    factor = x.dtype.type(scale)
    zero = x.dtype.type(0)
    first = np.uint32(key + np.uint32(begin))
    for k in range(b.shape[0]):
        b[k] = zero if mixed(np.uint32(first + np.uint32(k))) < limit else a[k] * factor
