"""CPU kernels of `zoo.ops.propagate_relation`: serial, nogil, one chunk of rows or queries a call.

An entry of a node is its start, number -1, or one of its edges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from zoo.ops.propagate_relation_vector import WIDE, reducing, returning
from zoo.ops.rows_kernel import first_row
from zoo.ops.setup import helper, njit
from zoo.ops.vector import address_of, pointer

Array = Any

MULTIPLY, ADD, ROTATE = 0, 1, 2
SUM, MAX, MOMENTS = 0, 1, 2
BLOCK = 128
"""Columns whose slopes a chunk holds at a time, in the first cache."""
FLOOR = 1e-6
"""Smallest variance."""


def _of_kind(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function for kernels that calls what `make` makes for a message and a reduction."""
    ms, mx, mm = (make("multiply", reduce) for reduce in ("sum", "max", "moments"))
    as_, ax, am = (make("add", reduce) for reduce in ("sum", "max", "moments"))
    rs, rx, rm = (make("rotate", reduce) for reduce in ("sum", "max", "moments"))

    @helper
    def call(kind: int, reduce: int, given: Any) -> None:
        if kind == MULTIPLY:
            if reduce == SUM:
                ms(*given)
            elif reduce == MAX:
                mx(*given)
            else:
                mm(*given)
        elif kind == ADD:
            if reduce == SUM:
                as_(*given)
            elif reduce == MAX:
                ax(*given)
            else:
                am(*given)
        elif reduce == SUM:
            rs(*given)
        elif reduce == MAX:
            rx(*given)
        else:
            rm(*given)

    return call


def _smallest(message: str) -> int:
    """Columns that what is left over is done by: rotations turn pairs."""
    return 2 if message == "rotate" else 1


def _returning_row(message: str, reduce: str) -> Callable[..., Any]:
    """`returning` for `size` columns."""
    wide, step = returning(message, reduce, WIDE), _smallest(message)
    rest = returning(message, reduce, step)

    @helper
    def run(
        x: Any,
        relations: Any,
        d_x: Any,
        d_relations: Any,
        s: int,
        t: int,
        columns: int,
        begin: int,
        slopes: Any,
        block: int,
        size: int,
    ) -> None:
        g = 0
        while g + WIDE <= size:
            wide(x, relations, d_x, d_relations, s, t, columns, begin + g, slopes, block, g)
            g += WIDE
        while g < size:
            rest(x, relations, d_x, d_relations, s, t, columns, begin + g, slopes, block, g)
            g += step

    return run


reduce_wide = _of_kind(lambda message, reduce: reducing(message, reduce, WIDE))
reduce_rest = _of_kind(lambda message, reduce: reducing(message, reduce, _smallest(message)))
return_row = _of_kind(_returning_row)


@helper
def rest_of(kind: int) -> int:
    """Columns that what is left over is done by."""
    return 2 if kind == ROTATE else 1


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
    chunks: int,
    chunk: int,
) -> None:
    """Reduce each node's start and messages: x, start [N, F], relations [R, F], F of queries times
    `width`; out [N, F], or [N, 4 F] of each query's means, maxima, minima and deviations.
    """
    columns, like = x.shape[1], x.dtype.type(0)
    held = np.empty((5, WIDE), x.dtype)
    x_at, relations_at = pointer(address_of(x, 0), like), pointer(address_of(relations, 0), like)
    src_at = pointer(address_of(src, 0), np.int32(0))
    types_at = pointer(address_of(types, 0), np.int32(0))
    keep_at = pointer(address_of(keep, 0), np.uint8(0))
    held_at = pointer(address_of(held, 0), like)
    for n in range(first_row(ptr, chunks, chunk), first_row(ptr, chunks, chunk + 1)):
        begin, end = int(ptr[n]), int(ptr[n + 1])
        for query in range(columns // width):
            first = query * width
            f = first
            while f < first + width:
                size = WIDE if f + WIDE <= first + width else rest_of(kind)
                held[0, :size] = start[n, f : f + size]
                given = (
                    x_at,
                    relations_at,
                    src_at,
                    types_at,
                    keep_at,
                    begin,
                    end,
                    columns,
                    f,
                    held_at,
                )
                if size == WIDE:
                    reduce_wide(kind, reduce, given)
                else:
                    reduce_rest(kind, reduce, given)
                if reduce == SUM:
                    out[n, f : f + size] = held[0, :size]
                elif reduce == MAX:
                    out[n, f : f + size] = held[2, :size]
                else:
                    at = 3 * first + f
                    finish(held, size, out[n, at : at + 4 * width], width)
                f += size


@helper
def finish(held: Array, size: int, out: Array, width: int) -> None:
    """Write the moments of `size` columns, `width` apart, of what was held."""
    real = held.dtype.type
    share = real(1) / held[4, 0]
    total, square, most, least = held[0, :size], held[1, :size], held[2, :size], held[3, :size]
    means, deviations = out[:size], out[3 * width : 3 * width + size]
    for g in range(size):
        means[g] = total[g] * share
    out[width : width + size] = most
    out[2 * width : 2 * width + size] = least
    for g in range(size):
        variance = square[g] * share - means[g] * means[g]
        deviations[g] = np.sqrt(variance if variance > real(FLOOR) else real(FLOOR))


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
    kind: int,
    reduce: int,
    width: int,
    d_x: Array,
    d_relations: Array,
    d_start: Array,
    chunks: int,
    chunk: int,
) -> None:
    """Add to d_x and d_relations, and write to d_start, what `grad`, of `reduce_messages`, gives
    them.

    A chunk owns some queries: nothing that it adds to is another's.
    """
    columns, like = x.shape[1], x.dtype.type(0)
    queries = columns // width
    left, right = queries * chunk // chunks * width, queries * (chunk + 1) // chunks * width
    block = max(BLOCK // width, 1) * width
    slopes = np.zeros((6, block), x.dtype)
    x_at, relations_at = pointer(address_of(x, 0), like), pointer(address_of(relations, 0), like)
    d_x_at = pointer(address_of(d_x, 0), like)
    d_relations_at = pointer(address_of(d_relations, 0), like)
    slopes_at = pointer(address_of(slopes, 0), like)
    for begin in range(left, right, block):
        end = min(right, begin + block)
        size = end - begin
        for n in range(ptr.shape[0] - 1):
            place = (n, begin, size)
            owe(
                place,
                grad,
                out,
                start,
                keep,
                ptr,
                reduce,
                width,
                slopes,
                d_start,
            )
            for e in range(ptr[n], ptr[n + 1]):
                if not keep[e]:
                    continue
                s, t = int(src[e]), int(types[e])
                given = (
                    x_at,
                    relations_at,
                    d_x_at,
                    d_relations_at,
                    s,
                    t,
                    columns,
                    begin,
                    slopes_at,
                    block,
                    size,
                )
                return_row(kind, reduce, given)


@helper
def owe(
    place: tuple[int, int, int],
    grad: Array,
    out: Array,
    start: Array,
    keep: Array,
    ptr: Array,
    reduce: int,
    width: int,
    slopes: Array,
    d_start: Array,
) -> None:
    """What each entry of a node owes to its slope, in some columns, as `returning` wants it; and
    what that is for the start, the first entry.
    """
    n, begin, size = place
    real = slopes.dtype.type
    first, own = start[n, begin : begin + size], d_start[n, begin : begin + size]
    if reduce == SUM:
        slopes[0, :size] = grad[n, begin : begin + size]
        own[:] = grad[n, begin : begin + size]
        return
    if reduce == MAX:
        slopes[2, :size] = out[n, begin : begin + size]
        slopes[4, :size] = grad[n, begin : begin + size]
        own[:] = 0
        take_first(slopes[2], slopes[4], first, own)
        return
    count = 1
    for e in range(ptr[n], ptr[n + 1]):
        count += keep[e]
    share = real(1) / real(count)
    for at in range(0, size, width):
        moments = out[n, 4 * (begin + at) : 4 * (begin + at + width)]
        given = grad[n, 4 * (begin + at) : 4 * (begin + at + width)]
        deviations, to_deviations = moments[3 * width :], given[3 * width :]
        plain, times = slopes[0, at : at + width], slopes[1, at : at + width]
        for g in range(width):
            varies = deviations[g] * deviations[g] > real(1.0001 * FLOOR)
            times[g] = to_deviations[g] * share / deviations[g] if varies else real(0)
        for g in range(width):
            plain[g] = given[g] * share - times[g] * moments[g]
        slopes[2, at : at + width] = moments[width : 2 * width]
        slopes[3, at : at + width] = moments[2 * width : 3 * width]
        slopes[4, at : at + width] = given[width : 2 * width]
        slopes[5, at : at + width] = given[2 * width : 3 * width]
    for g in range(size):
        own[g] = slopes[0, g] + slopes[1, g] * first[g]
    take_first(slopes[2], slopes[4], first, own)
    take_first(slopes[3], slopes[5], first, own)


@helper
def take_first(extreme: Array, owed: Array, values: Array, slopes: Array) -> None:
    """Where values are the extreme, add what is owed to it to their slopes, and owe no more."""
    for g in range(values.shape[0]):
        found = not (values[g] < extreme[g]) and not (values[g] > extreme[g])
        slopes[g] += owed[g] if found else owed.dtype.type(0)
        owed[g] = owed.dtype.type(0) if found else owed[g]
