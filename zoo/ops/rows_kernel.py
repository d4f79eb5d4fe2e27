"""How kernels share out rows: those of segments, of nodes with their edges."""

from __future__ import annotations

from typing import Any

from zoo.ops.setup import njit

Array = Any


@njit
def first_row(ptr: Array, chunks: int, chunk: int) -> int:
    """Where a chunk begins: at its share of segments and entries, which cost about the same."""
    rows = int(ptr.shape[0]) - 1
    if chunk == chunks:
        return rows
    goal = (rows + ptr[rows]) * chunk // chunks
    low, high = 0, rows
    while low < high:
        middle = (low + high) // 2
        if middle + ptr[middle] < goal:
            low = middle + 1
        else:
            high = middle
    return int(low)


@njit
def empty_until(ptr: Array, n: int, stop: int) -> int:
    """The first segment after n, which is empty, that isn't: looked for in strides, since ptr never
    falls. In a sparse graph most segments are empty, and one fill does for all that follow.
    """
    after = n + 1
    while after + 8 < stop and ptr[after + 8] == ptr[n]:
        after += 8
    while after < stop and ptr[after + 1] == ptr[n]:
        after += 1
    return after
