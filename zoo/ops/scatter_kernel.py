"""CPU kernels of `zoo.ops.scatter`: serial, nogil, one chunk of work a call."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.ops.setup import helper, njit
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


@helper
def put(perm: Array, places: Array, index: Array, entry: int) -> None:
    """Give an entry the next place of its value."""
    value = np.uintp(index[entry])  # numba wraps signed ones
    place = places[value]
    perm[np.uintp(place)] = entry
    places[value] = place + 1


@helper
def count(counts: Array, index: Array, entry: int) -> None:
    counts[np.uintp(index[entry])] += 1


@njit
def count_sort(
    index_at: int, perm_at: int, ptr_at: int, entries: int, size: int, id_like: Any
) -> bool:
    """Sort the entries by `index`, stably: `perm` (int32) receives their numbers, `ptr` (int32
    [size + 1]) where each value begins. False, and nothing done, where one is out of range.

    To add to a counter that was just added to takes five times as long as to add to another. So
    the entries are counted in as many parts as pay, a few at a time from each.
    """
    index = numbers_at(index_at, entries, id_like)
    if not fits(index, size):
        return False
    perm = numbers_at(perm_at, entries, np.int32(0))
    ptr = numbers_at(ptr_at, size + 1, np.int32(0))
    parts = 4 if entries >= 2 * size else 1
    part = entries // parts
    counts = np.zeros((parts, size), np.int32)
    first, last = counts[0], counts[parts - 1]
    if parts == 4:
        second, third = counts[1], counts[2]
        for e in range(part):
            count(first, index, e)
            count(second, index, e + part)
            count(third, index, e + 2 * part)
            count(last, index, e + 3 * part)
        for e in range(4 * part, entries):
            count(last, index, e)
    else:
        for e in range(entries):
            count(first, index, e)
    # from how many there are to where the next goes
    total = np.int32(0)
    for n in range(size):
        ptr[n] = total
        for p in range(parts):
            held = counts[p, n]
            counts[p, n] = total
            total += held
    ptr[size] = total
    if parts == 4:
        for e in range(part):
            put(perm, first, index, e)
            put(perm, second, index, e + part)
            put(perm, third, index, e + 2 * part)
            put(perm, last, index, e + 3 * part)
        for e in range(4 * part, entries):
            put(perm, last, index, e)
    else:
        for e in range(entries):
            put(perm, first, index, e)
    return True


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
) -> None:
    """out[n] = sum, mean, maximum or minimum over the rows e of x with index[e] == n, in their
    order; zero where there is none.

    A chunk owns a range of `out` and looks through the whole index for it.
    """
    x, out = rows_at(x_at, entries, features, like), rows_at(out_at, size, features, like)
    index = numbers_at(index_at, entries, id_like)
    begin, end = size * chunk // chunks, size * (chunk + 1) // chunks
    out.reshape(-1)[begin * features : end * features] = 0
    seen = np.zeros(end - begin if kind != SUM else 0, np.int32)
    for e in range(entries):
        n = index[e]
        if n < begin or n >= end:
            continue
        row, values = out[n], x[e]
        if kind == SUM:
            for f in range(features):
                row[f] += values[f]
            continue
        seen[n - begin] += 1
        if kind == MEAN:
            for f in range(features):
                row[f] += values[f]
        elif seen[n - begin] == 1:
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
            if seen[n - begin] > 1:
                row = out[n]
                share = out.dtype.type(1) / out.dtype.type(seen[n - begin])
                for f in range(features):
                    row[f] *= share
