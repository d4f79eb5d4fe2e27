"""CPU kernels of `zoo.ops.propagate`: serial, nogil, one chunk of rows (or of edges) a call.

Each row is summed by one chunk in the order of its edges: the same bits on any number of threads.
"""

from __future__ import annotations

from typing import Any

from zoo.ops.rows_kernel import empty_until, first_row
from zoo.ops.setup import njit
from zoo.ops.vector import address_of, numbers_at, reduce_rows, rows_at

Array = Any

along = reduce_rows("sum", named=True)
along_weighted = reduce_rows("sum", named=True, weighted=True)
against = reduce_rows("sum", permuted=True, named=True)
against_weighted = reduce_rows("sum", permuted=True, named=True, weighted=True)


@njit
def propagate(
    x_at: int,
    ptr_at: int,
    perm_at: int,
    other_at: int,
    weight_at: int,
    out_at: int,
    nodes: int,
    features: int,
    transposed: bool,
    weighted: bool,
    like: Any,
    id_like: Any,
    chunks: int,
    chunk: int,
) -> None:
    """out[i] = sum over the edges e of row i of weight_e x[other_e].

    Row i holds the edges ptr[i]:ptr[i + 1], or perm[ptr[i]:ptr[i + 1]] if `transposed`.
    """
    out, ptr = rows_at(out_at, nodes, features, like), numbers_at(ptr_at, nodes + 1, id_like)
    one, flat = out.dtype.type(1), out.reshape(-1)
    i, stop = first_row(ptr, chunks, chunk), first_row(ptr, chunks, chunk + 1)
    while i < stop:
        begin, end, row = ptr[i], ptr[i + 1], address_of(out, i)
        if begin == end:
            after = empty_until(ptr, i, stop)
            flat[i * features : after * features] = 0
            i = after
            continue
        if transposed and weighted:
            against_weighted(
                x_at, perm_at, other_at, weight_at, row, begin, end, features, one, like, id_like
            )
        elif transposed:
            against(
                x_at, perm_at, other_at, weight_at, row, begin, end, features, one, like, id_like
            )
        elif weighted:
            along_weighted(
                x_at, perm_at, other_at, weight_at, row, begin, end, features, one, like, id_like
            )
        else:
            along(x_at, perm_at, other_at, weight_at, row, begin, end, features, one, like, id_like)
        i += 1


@njit
def dots(
    to: Array, x: Array, src: Array, dst: Array, count: int, out: Array, chunks: int, chunk: int
) -> None:
    """out[e] = sum over features of to[dst_e] x[src_e]; zero for the edges from `count` on."""
    edges = out.shape[0]
    for e in range(edges * chunk // chunks, edges * (chunk + 1) // chunks):
        total = out.dtype.type(0)
        if e < count:
            target, source = to[dst[e]], x[src[e]]
            for f in range(x.shape[1]):
                total += target[f] * source[f]
        out[e] = total
