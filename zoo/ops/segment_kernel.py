"""CPU kernels of `zoo.ops.segment`: serial, nogil, one chunk of work a call.

Entry k of segment n, k in ptr[n]:ptr[n + 1], is row k of x, or row perm[k] where `indirect`.
Everything a chunk writes is its own, and a segment is reduced in the order of its entries: the same
bits whatever the number of chunks and threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.ops.rows_kernel import empty_until, first_row
from zoo.ops.setup import njit
from zoo.ops.vector import address_of, numbers_at, reduce_rows, rows_at

Array = Any

sum_rows, sum_listed = reduce_rows("sum"), reduce_rows("sum", permuted=True)
max_rows, max_listed = reduce_rows("max"), reduce_rows("max", permuted=True)
min_rows, min_listed = reduce_rows("min"), reduce_rows("min", permuted=True)


@njit
def sum_segments(
    x_at: int,
    ptr_at: int,
    perm_at: int,
    out_at: int,
    segments: int,
    features: int,
    indirect: bool,
    mean: bool,
    like: Any,
    id_like: Any,
    chunks: int,
    chunk: int,
) -> None:
    """out[n] = sum over the rows of segment n, over their number if `mean`; zero for none."""
    out = rows_at(out_at, segments, features, like)
    ptr, flat = numbers_at(ptr_at, segments + 1, id_like), out.reshape(-1)
    n, stop = first_row(ptr, chunks, chunk), first_row(ptr, chunks, chunk + 1)
    while n < stop:
        begin, end = ptr[n], ptr[n + 1]
        if begin == end:
            after = empty_until(ptr, n, stop)
            flat[n * features : after * features] = 0
            n = after
            continue
        scale = out.dtype.type(1.0 / (end - begin) if mean else 1.0)
        row = address_of(out, n)
        if indirect:
            sum_listed(x_at, perm_at, 0, 0, row, begin, end, features, scale, like, id_like)
        else:
            sum_rows(x_at, perm_at, 0, 0, row, begin, end, features, scale, like, id_like)
        n += 1


@njit
def extreme_segments(
    x_at: int,
    ptr_at: int,
    perm_at: int,
    out_at: int,
    segments: int,
    features: int,
    indirect: bool,
    largest: bool,
    like: Any,
    id_like: Any,
    chunks: int,
    chunk: int,
) -> None:
    """out[n] = maximum (or minimum) over the rows of segment n; zero for none."""
    out = rows_at(out_at, segments, features, like)
    ptr, flat = numbers_at(ptr_at, segments + 1, id_like), out.reshape(-1)
    one = out.dtype.type(1)
    n, stop = first_row(ptr, chunks, chunk), first_row(ptr, chunks, chunk + 1)
    while n < stop:
        begin, end = ptr[n], ptr[n + 1]
        if begin == end:
            after = empty_until(ptr, n, stop)
            flat[n * features : after * features] = 0
            n = after
            continue
        row = address_of(out, n)
        if largest and indirect:
            max_listed(x_at, perm_at, 0, 0, row, begin, end, features, one, like, id_like)
        elif largest:
            max_rows(x_at, perm_at, 0, 0, row, begin, end, features, one, like, id_like)
        elif indirect:
            min_listed(x_at, perm_at, 0, 0, row, begin, end, features, one, like, id_like)
        else:
            min_rows(x_at, perm_at, 0, 0, row, begin, end, features, one, like, id_like)
        n += 1


@njit
def find_first(
    x: Array,
    found: Array,
    ptr: Array,
    perm: Array,
    indirect: bool,
    out: Array,
    chunks: int,
    chunk: int,
) -> None:
    """out[n, f] = the first row of segment n that holds its extreme found[n, f]; -1 if empty.

    Where the extreme is NaN it is the first NaN.
    """
    features = x.shape[1]
    for n in range(first_row(ptr, chunks, chunk), first_row(ptr, chunks, chunk + 1)):
        row, extreme = out[n], found[n]
        row[:] = -1
        # backwards, so that the first one is the last one written
        for k in range(ptr[n + 1] - 1, ptr[n] - 1, -1):
            e = np.int32(perm[k] if indirect else k)
            values = x[e]
            for f in range(features):
                hit = (values[f] == extreme[f]) | (values[f] != values[f])
                row[f] = e if hit else row[f]


@njit
def expand(
    rows: Array,
    ptr: Array,
    perm: Array,
    indirect: bool,
    mean: bool,
    out: Array,
    chunks: int,
    chunk: int,
) -> None:
    """out[e] = the row of the segment that e belongs to, over the segment's size if `mean`.

    Rows that belong to none stay as they are.
    """
    features = rows.shape[1]
    for n in range(first_row(ptr, chunks, chunk), first_row(ptr, chunks, chunk + 1)):
        begin, end = ptr[n], ptr[n + 1]
        if begin == end:
            continue
        share = rows.dtype.type(1) / rows.dtype.type(end - begin if mean else 1)
        values = rows[n]
        for k in range(begin, end):
            target = out[perm[k] if indirect else k]
            for f in range(features):
                target[f] = share * values[f]


@njit
def place(values: Array, at: Array, out: Array, chunks: int, chunk: int) -> None:
    """out[at[n, f], f] = values[n, f] wherever at[n, f] >= 0; no row twice in a column."""
    rows, features = values.shape
    for n in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
        for f in range(features):
            if at[n, f] >= 0:
                out[at[n, f], f] = values[n, f]


@njit
def pick(x: Array, at: Array, out: Array, chunks: int, chunk: int) -> None:
    """out[n, f] = x[at[n, f], f], zero where at[n, f] < 0."""
    rows, features = out.shape
    for n in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
        for f in range(features):
            out[n, f] = x[at[n, f], f] if at[n, f] >= 0 else 0
