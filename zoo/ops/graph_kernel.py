"""The kernel behind `zoo.ops.graph_check`."""

from __future__ import annotations

from typing import Any

from zoo.ops.setup import njit

Array = Any


@njit
def rows_fit(ptr: Array, edges: int) -> bool:
    falls = 0
    for row in range(ptr.shape[0] - 1):
        falls |= ptr[row + 1] < ptr[row]
    return falls == 0 and ptr[0] >= 0 and ptr[-1] <= edges


@njit
def ids_fit(ids: Array, count: int, limit: int) -> bool:
    # one pass without an early exit: minimum and maximum are vector instructions
    low, high = ids.dtype.type(0), ids.dtype.type(0)
    for e in range(count):
        low, high = min(low, ids[e]), max(high, ids[e])
    return count == 0 or (low >= 0 and high < limit)


@njit
def fits(src: Array, dst: Array, dst_ptr: Array, src_ptr: Array, src_perm: Array) -> bool:
    """Whether every row pointer lies within the edges and every real edge's ids within the rows."""
    rows, edges = dst_ptr.shape[0] - 1, src.shape[0]
    if not (rows_fit(dst_ptr, edges) and rows_fit(src_ptr, edges)):
        return False
    count, back = dst_ptr[rows], src_ptr[rows]
    # The transpose names real edges only: no more of them, and none beyond.
    return bool(
        ids_fit(src, count, rows)
        and ids_fit(dst, count, rows)
        and back <= count
        and ids_fit(src_perm, back, count)
    )


@njit
def segments_fit(ptr: Array, perm: Array, indirect: bool, rows: int) -> bool:
    """Whether segments begin at 0, lie within the entries, and name rows that there are."""
    if ptr[0] != 0 or not rows_fit(ptr, perm.shape[0] if indirect else rows):
        return False
    return not indirect or ids_fit(perm, ptr[-1], rows)
