"""CPU kernels of `zoo.ops.propagate_relation`: serial, nogil, one chunk of rows or queries a call.

Rows [B * D] are taken in blocks of columns, whose accumulators stay in the first cache. An entry of
node n is its start (number -1) or one of its edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.ops.rows_kernel import first_row
from zoo.ops.setup import helper, njit

Array = Any

MULTIPLY, ADD, ROTATE = 0, 1, 2
SUM, MAX, MOMENTS = 0, 1, 2
BLOCK = 128
FLOOR = 1e-6
"""Smallest variance."""


@helper
def message(kind: int, a: Array, b: Array, out: Array) -> None:
    """out = a * b, a + b, or the product of neighbouring pairs as complex numbers."""
    if kind == MULTIPLY:
        for f in range(out.shape[0]):
            out[f] = a[f] * b[f]
    elif kind == ADD:
        for f in range(out.shape[0]):
            out[f] = a[f] + b[f]
    else:
        for f in range(0, out.shape[0] - 1, 2):
            out[f] = a[f] * b[f] - a[f + 1] * b[f + 1]
            out[f + 1] = a[f] * b[f + 1] + a[f + 1] * b[f]


@helper
def take_back(kind: int, d: Array, a: Array, b: Array, d_a: Array, d_b: Array) -> None:
    """Add to d_a and d_b what a message's slope `d` gives them."""
    if kind == MULTIPLY:
        for f in range(d.shape[0]):
            d_a[f] += d[f] * b[f]
            d_b[f] += d[f] * a[f]
    elif kind == ADD:
        for f in range(d.shape[0]):
            d_a[f] += d[f]
            d_b[f] += d[f]
    else:
        for f in range(0, d.shape[0] - 1, 2):
            d_a[f] += d[f] * b[f] + d[f + 1] * b[f + 1]
            d_a[f + 1] += d[f + 1] * b[f] - d[f] * b[f + 1]
            d_b[f] += d[f] * a[f] + d[f + 1] * a[f + 1]
            d_b[f + 1] += d[f + 1] * a[f] - d[f] * a[f + 1]


@njit
def reduce_messages(
    x: Array,
    relations: Array,
    start: Array,
    types: Array,
    keep: Array,
    src: Array,
    ptr: Array,
    kind: int,
    reduce: int,
    width: int,
    out: Array,
    most: Array,
    least: Array,
    chunks: int,
    chunk: int,
) -> None:
    """Reduce each node's start and messages: x, start [N, F], relations [R, F], F of queries times
    `width`; out [N, F], or [N, 4 F] of each query's means, maxima, minima and deviations. `most`
    and `least` receive which entry was the largest and the smallest, where they aren't empty.
    """
    columns, real = x.shape[1], x.dtype.type
    m = np.empty(BLOCK, x.dtype)
    total, square = np.empty(BLOCK, x.dtype), np.empty(BLOCK, x.dtype)
    high, low = np.empty(BLOCK, x.dtype), np.empty(BLOCK, x.dtype)
    top, bottom = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.int32)
    for n in range(first_row(ptr, chunks, chunk), first_row(ptr, chunks, chunk + 1)):
        for begin in range(0, columns, BLOCK):
            end = min(columns, begin + BLOCK)
            size = end - begin
            first = start[n, begin:end]
            for f in range(size):
                value = first[f]
                total[f], square[f] = value, value * value
                high[f], low[f] = value, value
                top[f], bottom[f] = -1, -1
            count = 1
            for e in range(ptr[n], ptr[n + 1]):
                if not keep[e]:
                    continue
                count += 1
                mine = m[:size]
                message(kind, x[src[e], begin:end], relations[types[e], begin:end], mine)
                if reduce != MAX:
                    for f in range(size):
                        total[f] += mine[f]
                if reduce == MOMENTS:
                    for f in range(size):
                        square[f] += mine[f] * mine[f]
                if reduce != SUM:
                    number = np.int32(e)
                    for f in range(size):
                        value = mine[f]
                        better = (value > high[f]) | (value != value)
                        high[f] = value if better else high[f]
                        top[f] = number if better else top[f]
                if reduce == MOMENTS:
                    for f in range(size):
                        value = mine[f]
                        better = (value < low[f]) | (value != value)
                        low[f] = value if better else low[f]
                        bottom[f] = number if better else bottom[f]
            if reduce == SUM:
                out[n, begin:end] = total[:size]
            elif reduce == MAX:
                out[n, begin:end] = high[:size]
            else:
                share = real(1) / real(count)
                for f in range(size):
                    query, column = divmod(begin + f, width)
                    place = 4 * width * query + column
                    mean = total[f] * share
                    out[n, place] = mean
                    out[n, place + width] = high[f]
                    out[n, place + 2 * width] = low[f]
                    variance = max(square[f] * share - mean * mean, real(FLOOR))
                    out[n, place + 3 * width] = np.sqrt(variance)
            if most.shape[0]:
                most[n, begin:end] = top[:size]
            if least.shape[0]:
                least[n, begin:end] = bottom[:size]


@njit
def take_messages_back(
    grad: Array,
    out: Array,
    x: Array,
    relations: Array,
    start: Array,
    types: Array,
    keep: Array,
    src: Array,
    ptr: Array,
    most: Array,
    least: Array,
    kind: int,
    reduce: int,
    width: int,
    d_x: Array,
    d_relations: Array,
    d_start: Array,
    chunks: int,
    chunk: int,
) -> None:
    """Add to d_x, d_relations and d_start what `grad`, of `reduce_messages`, gives them.

    A chunk owns some queries: nothing that it adds to is another's.
    """
    nodes, columns = x.shape
    queries = columns // width
    left, right = queries * chunk // chunks, queries * (chunk + 1) // chunks
    real = x.dtype.type
    m, d = np.empty(BLOCK, x.dtype), np.empty(BLOCK, x.dtype)
    plain, times = np.empty(BLOCK, x.dtype), np.empty(BLOCK, x.dtype)
    to_most, to_least = np.empty(BLOCK, x.dtype), np.empty(BLOCK, x.dtype)
    for begin in range(left * width, right * width, BLOCK):
        end = min(right * width, begin + BLOCK)
        size = end - begin
        for n in range(nodes):
            # a message's slope is plain + times m, and more where it is the largest or smallest
            if reduce == SUM:
                plain[:size] = grad[n, begin:end]
            elif reduce == MAX:
                to_most[:size] = grad[n, begin:end]
            else:
                count = 1
                for e in range(ptr[n], ptr[n + 1]):
                    count += keep[e]
                share = real(1) / real(count)
                for f in range(size):
                    query, column = divmod(begin + f, width)
                    place = 4 * width * query + column
                    deviation = out[n, place + 3 * width]
                    slope = grad[n, place + 3 * width] * share / deviation
                    slope = slope if deviation * deviation > real(1.0001 * FLOOR) else real(0)
                    times[f] = slope
                    plain[f] = grad[n, place] * share - slope * out[n, place]
                    to_most[f] = grad[n, place + width]
                    to_least[f] = grad[n, place + 2 * width]
            for e in range(ptr[n] - 1, ptr[n + 1]):
                own = e < ptr[n]  # the start
                if not own and not keep[e]:
                    continue
                mine, slope_of = m[:size], d[:size]
                if own:
                    mine[:] = start[n, begin:end]
                else:
                    message(kind, x[src[e], begin:end], relations[types[e], begin:end], mine)
                number = np.int32(-1 if own else e)
                if reduce == SUM:
                    slope_of[:] = plain[:size]
                elif reduce == MAX:
                    chosen = most[n, begin:end]
                    for f in range(size):
                        slope_of[f] = to_most[f] if chosen[f] == number else real(0)
                else:
                    chosen, other = most[n, begin:end], least[n, begin:end]
                    for f in range(size):
                        value = plain[f] + times[f] * mine[f]
                        value += to_most[f] if chosen[f] == number else real(0)
                        value += to_least[f] if other[f] == number else real(0)
                        slope_of[f] = value
                if own:
                    d_start[n, begin:end] = slope_of
                else:
                    take_back(
                        kind,
                        slope_of,
                        x[src[e], begin:end],
                        relations[types[e], begin:end],
                        d_x[src[e], begin:end],
                        d_relations[types[e], begin:end],
                    )
