"""CPU kernels of `zoo.ops.propagate_edge`: serial, nogil, one chunk of rows a call.

Rows are taken as slices, whose loops over features need no test for negative indices and become
vector instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.ops.setup import njit

Array = Any


@njit
def chunk_rows(ptr: Array, chunks: int, chunk: int) -> tuple[int, int]:
    """Rows of a chunk: boundaries lie where the running edge count passes equal shares."""
    rows = ptr.shape[0] - 1
    total = ptr[rows]
    begin = np.searchsorted(ptr, total * chunk // chunks, side="left")
    end = np.searchsorted(ptr, total * (chunk + 1) // chunks, side="left")
    if chunk == 0:
        begin = 0
    if chunk == chunks - 1:
        end = rows
    return min(begin, rows), min(end, rows)


@njit
def relu_messages(
    x: Array,
    table: Array,
    types: Array,
    src: Array,
    ptr: Array,
    out: Array,
    chunks: int,
    chunk: int,
) -> None:
    """out[i] = sum of relu(x[src_e] + table[type_e]) over the edges of row i."""
    zero = x.dtype.type(0)
    begin, end = chunk_rows(ptr, chunks, chunk)
    for i in range(begin, end):
        row = out[i]
        row[:] = zero
        for e in range(ptr[i], ptr[i + 1]):
            a, b = x[src[e]], table[types[e]]
            for f in range(row.shape[0]):
                summed = a[f] + b[f]
                row[f] += zero if summed <= zero else summed


@njit
def masked_messages(
    v: Array,
    w: Array,
    x: Array,
    table: Array,
    types: Array,
    src: Array,
    ptr: Array,
    out: Array,
    chunks: int,
    chunk: int,
) -> None:
    """out[i] = sum of v[src_e] + w[type_e] over the edges of row i, where the mask is open."""
    zero = x.dtype.type(0)
    begin, end = chunk_rows(ptr, chunks, chunk)
    for i in range(begin, end):
        row = out[i]
        row[:] = zero
        for e in range(ptr[i], ptr[i + 1]):
            a, b = x[src[e]], table[types[e]]
            c, d = v[src[e]], w[types[e]]
            for f in range(row.shape[0]):
                row[f] += zero if a[f] + b[f] <= zero else c[f] + d[f]


@njit
def to_nodes(
    g: Array,
    x: Array,
    table: Array,
    types: Array,
    dst: Array,
    ptr: Array,
    perm: Array,
    out: Array,
    chunks: int,
    chunk: int,
) -> None:
    """out[j] = sum of g[dst_e] over the edges that leave j, where the mask is open."""
    zero = x.dtype.type(0)
    begin, end = chunk_rows(ptr, chunks, chunk)
    for j in range(begin, end):
        row, a = out[j], x[j]
        row[:] = zero
        for slot in range(ptr[j], ptr[j + 1]):
            e = perm[slot]
            b, c = table[types[e]], g[dst[e]]
            for f in range(row.shape[0]):
                row[f] += zero if a[f] + b[f] <= zero else c[f]


@njit
def to_types(
    g: Array,
    x: Array,
    table: Array,
    types: Array,
    src: Array,
    ptr: Array,
    parts: Array,
    chunks: int,
    chunk: int,
) -> None:
    """parts[chunk, t] = sum of g[i] over the chunk's edges of type t, where the mask is open."""
    zero = x.dtype.type(0)
    mine = parts[chunk]
    mine[:] = zero
    begin, end = chunk_rows(ptr, chunks, chunk)
    for i in range(begin, end):
        c = g[i]
        for e in range(ptr[i], ptr[i + 1]):
            a, b, row = x[src[e]], table[types[e]], mine[types[e]]
            for f in range(row.shape[0]):
                row[f] += zero if a[f] + b[f] <= zero else c[f]
