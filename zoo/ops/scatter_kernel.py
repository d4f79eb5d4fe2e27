"""CPU kernels of `zoo.ops.scatter`: serial, nogil, one chunk of work a call."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.ops.setup import njit
from zoo.ops.vector import numbers_at, rows_at

Array = Any

SUM, MEAN, MAX, MIN = 0, 1, 2, 3


@njit
def larger(a: float, b: float) -> float:
    """The larger of two numbers, or NaN where one is: without a branch, so that it vectorises."""
    return a if (a > b) | (a != a) else b


@njit
def smaller(a: float, b: float) -> float:
    return a if (a < b) | (a != a) else b


@njit
def fits(index: Array, size: int) -> bool:
    """Whether every index is in 0..size-1."""
    low, high = index.dtype.type(0), index.dtype.type(0)
    for e in range(index.shape[0]):
        low, high = min(low, index[e]), max(high, index[e])
    return bool(index.shape[0] == 0 or (low >= 0 and high < size))


@njit
def within(index_at: int, entries: int, size: int, id_like: Any) -> bool:
    """`fits` for the index at an address."""
    return bool(fits(numbers_at(index_at, entries, id_like), size))


@njit
def count_sort(
    index_at: int, perm_at: int, ptr_at: int, entries: int, size: int, id_like: Any
) -> None:
    """Sort the entries by `index`, stably: `perm` (int32) receives their numbers, `ptr` (int32
    [size + 1]) where each value begins.
    """
    index = numbers_at(index_at, entries, id_like)
    perm = numbers_at(perm_at, entries, np.int32(0))
    ptr = numbers_at(ptr_at, size + 1, np.int32(0))
    ptr[:] = 0
    # Counted two places on, summed one place on: then each place moves to where the next begins.
    for e in range(entries):
        if index[e] + 2 <= size:
            ptr[index[e] + 2] += 1
    total = np.int32(0)
    for n in range(2, size + 1):
        total += ptr[n]
        ptr[n] = total
    for e in range(entries):
        slot = ptr[index[e] + 1]
        perm[slot] = e
        ptr[index[e] + 1] = slot + 1


@njit
def scatter(
    x_at: int,
    index_at: int,
    out_at: int,
    entries: int,
    size: int,
    features: int,
    kind: int,
    like: Any,
    id_like: Any,
    chunks: int,
    chunk: int,
) -> bool:
    """out[n] = sum, mean, maximum or minimum over the rows e of x with index[e] == n, in their
    order; zero where there is none. False, and nothing done, where an index is out of range.

    A chunk owns a range of `out` and looks through the whole index for it.
    """
    x, out = rows_at(x_at, entries, features, like), rows_at(out_at, size, features, like)
    index = numbers_at(index_at, entries, id_like)
    if not fits(index, size):
        return False
    begin, end = size * chunk // chunks, size * (chunk + 1) // chunks
    flat = out.reshape(-1)
    flat[begin * features : end * features] = 0
    count = np.zeros(end - begin if kind != SUM else 0, np.int32)
    for e in range(entries):
        n = index[e]
        if n < begin or n >= end:
            continue
        row, values = out[n], x[e]
        if kind == SUM:
            for f in range(features):
                row[f] += values[f]
            continue
        count[n - begin] += 1
        if kind == MEAN:
            for f in range(features):
                row[f] += values[f]
        elif count[n - begin] == 1:
            for f in range(features):
                row[f] = values[f]
        elif kind == MAX:
            for f in range(features):
                row[f] = larger(row[f], values[f])
        else:
            for f in range(features):
                row[f] = smaller(row[f], values[f])
    if kind == MEAN:
        for n in range(begin, end):
            if count[n - begin] > 1:
                row = out[n]
                share = out.dtype.type(1) / out.dtype.type(count[n - begin])
                for f in range(features):
                    row[f] *= share
    return True
