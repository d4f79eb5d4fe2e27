"""CPU kernels of `zoo.ops.cfconv`: serial, nogil, one chunk of rows (or of knots) a call.

A filter table is [knots, 2, features]: value and slope at each knot, so the four rows that an
interval needs lie side by side. Everything a chunk writes is its own: no atomics, and the same
bits whatever the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.ops.setup import njit

Array = Any


@njit
def hermite(order: int, t: float, step: float) -> tuple[float, float, float, float]:
    """Weights of (value, slope, next value, next slope) for a derivative of the interpolant.

    `t` in [0, 1] is the place inside the interval, `step` its width; `order` counts derivatives
    with respect to distance.
    """
    if order == 0:
        return (
            (1 + 2 * t) * (1 - t) * (1 - t),
            t * (1 - t) * (1 - t) * step,
            t * t * (3 - 2 * t),
            t * t * (t - 1) * step,
        )
    if order == 1:
        return (
            6 * t * (t - 1) / step,
            (3 * t - 1) * (t - 1),
            6 * t * (1 - t) / step,
            t * (3 * t - 2),
        )
    if order == 2:
        return (
            (12 * t - 6) / (step * step),
            (6 * t - 4) / step,
            (6 - 12 * t) / (step * step),
            (6 * t - 2) / step,
        )
    if order == 3:
        cube = step * step * step
        return 12 / cube, 6 / (step * step), -12 / cube, 6 / (step * step)
    return 0.0, 0.0, 0.0, 0.0


@njit
def interval_of(place: float, knots: int) -> int:
    """The table's interval that `place` (distance in steps) lies in; the first one also for NaN and
    for negative places, so that no bad distance reads beyond the table.
    """
    return min(int(place), knots - 2) if place > 0 else 0


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
def conv(
    x: Array,
    table: Array,
    distance: Array,
    weight: Array,
    ptr: Array,
    edges: Array,
    other: Array,
    cutoff: float,
    order: int,
    out: Array,
    chunks: int,
    chunk: int,
) -> None:
    """out[i] = sum over edges e of row i of weight_e * x[other_e] * filter^(order)(distance_e).

    Row i holds the edges edges[ptr[i]:ptr[i+1]], or ptr[i]:ptr[i+1] themselves when `edges` is
    empty; an empty `weight` stands for ones.
    """
    knots, _, features = table.shape
    step = cutoff / (knots - 1)
    indirect = edges.shape[0] > 0
    weighted = weight.shape[0] > 0
    begin, end = chunk_rows(ptr, chunks, chunk)
    for i in range(begin, end):
        row = out[i]
        row[:] = 0
        for slot in range(ptr[i], ptr[i + 1]):
            e = edges[slot] if indirect else slot
            d = distance[e]
            if d >= cutoff:
                continue
            k = interval_of(d / step, knots)
            c = hermite(order, d / step - k, step)
            w = weight[e] if weighted else table.dtype.type(1)
            c0, c1 = table.dtype.type(c[0] * w), table.dtype.type(c[1] * w)
            c2, c3 = table.dtype.type(c[2] * w), table.dtype.type(c[3] * w)
            near, far = table[k], table[k + 1]
            source = x[other[e]]
            for f in range(features):
                row[f] += source[f] * (
                    c0 * near[0, f] + c1 * near[1, f] + c2 * far[0, f] + c3 * far[1, f]
                )


@njit
def blocks(ptr: Array, src: Array, chunks: int, out: Array) -> None:
    """Row boundaries [chunks + 1] that no edge crosses, near equal shares of the edges.

    Needs symmetric edges with ascending sources in each row: then a row starts a block when no
    earlier row reaches it. Graphs of a pack are such blocks.
    """
    rows = ptr.shape[0] - 1
    total = ptr[rows]
    reach = -1
    out[0] = 0
    filled = 1
    for r in range(rows):
        if reach < r:
            while filled < chunks and ptr[r] >= total * filled // chunks:
                out[filled] = r
                filled += 1
        if ptr[r + 1] > ptr[r]:
            reach = max(reach, src[ptr[r + 1] - 1])
    while filled <= chunks:
        out[filled] = rows
        filled += 1


@njit
def conv_symmetric(
    x: Array,
    table: Array,
    distance: Array,
    ptr: Array,
    src: Array,
    cutoff: float,
    order: int,
    boundaries: Array,
    out: Array,
    chunk: int,
) -> None:
    """`conv` without weights where each edge has its reverse: one filter serves both directions."""
    knots, _, features = table.shape
    step = cutoff / (knots - 1)
    begin, end = boundaries[chunk], boundaries[chunk + 1]
    for i in range(begin, end):
        out[i] = 0
    for i in range(begin, end):
        row, own = out[i], x[i]
        for e in range(ptr[i], ptr[i + 1]):
            j = src[e]
            if j >= i:
                break
            d = distance[e]
            if d >= cutoff:
                continue
            k = interval_of(d / step, knots)
            c = hermite(order, d / step - k, step)
            c0, c1 = table.dtype.type(c[0]), table.dtype.type(c[1])
            c2, c3 = table.dtype.type(c[2]), table.dtype.type(c[3])
            near, far = table[k], table[k + 1]
            source, back = x[j], out[j]
            for f in range(features):
                w = c0 * near[0, f] + c1 * near[1, f] + c2 * far[0, f] + c3 * far[1, f]
                row[f] += source[f] * w
                back[f] += own[f] * w


@njit
def pairs(
    grad: Array,
    x: Array,
    table: Array,
    distance: Array,
    src: Array,
    dst: Array,
    count: int,
    cutoff: float,
    order: int,
    out: Array,
    chunks: int,
    chunk: int,
) -> None:
    """out[e] = sum over features of grad[dst_e] * x[src_e] * filter^(order)(distance_e)."""
    knots, _, features = table.shape
    step = cutoff / (knots - 1)
    for e in range(count * chunk // chunks, count * (chunk + 1) // chunks):
        d = distance[e]
        if d >= cutoff:
            out[e] = 0
            continue
        k = interval_of(d / step, knots)
        c = hermite(order, d / step - k, step)
        c0, c1 = table.dtype.type(c[0]), table.dtype.type(c[1])
        c2, c3 = table.dtype.type(c[2]), table.dtype.type(c[3])
        near, far = table[k], table[k + 1]
        target, source = grad[dst[e]], x[src[e]]
        total = table.dtype.type(0)
        for f in range(features):
            total += (
                target[f]
                * source[f]
                * (c0 * near[0, f] + c1 * near[1, f] + c2 * far[0, f] + c3 * far[1, f])
            )
        out[e] = total


@njit
def sort_by_knot(
    distance: Array,
    src: Array,
    dst: Array,
    count: int,
    cutoff: float,
    half: bool,
    order: Array,
    ptr: Array,
) -> None:
    """Counting sort of the first `count` edges by their interval, those past the cutoff left out.

    `half` keeps one of each edge and its reverse. `order` [count] receives edge numbers, `ptr`
    [knots] where each interval begins.
    """
    knots = ptr.shape[0]
    step = cutoff / (knots - 1)
    ptr[:] = 0
    for e in range(count):
        if not distance[e] >= cutoff and (src[e] < dst[e] or not half):
            ptr[interval_of(distance[e] / step, knots) + 1] += 1
    for k in range(knots - 1):
        ptr[k + 1] += ptr[k]
    place = ptr.copy()
    for e in range(count):
        if not distance[e] >= cutoff and (src[e] < dst[e] or not half):
            k = interval_of(distance[e] / step, knots)
            order[place[k]] = e
            place[k] += 1


@njit
def filter_grad(
    grad: Array,
    x: Array,
    distance: Array,
    weight: Array,
    src: Array,
    dst: Array,
    sorted_edges: Array,
    interval_ptr: Array,
    cutoff: float,
    order: int,
    moments: Array,
    chunks: int,
    chunk: int,
) -> None:
    """moments[k] = sum over the edges of interval k of (four Hermite weights) x (grad * x).

    [knots - 1, 4, features]: an interval's share of its two knots' value and slope; the caller
    adds neighbouring intervals. Each chunk owns whole intervals.
    """
    features = x.shape[1]
    knots = interval_ptr.shape[0]
    step = cutoff / (knots - 1)
    weighted = weight.shape[0] > 0
    begin, end = chunk_rows(interval_ptr, chunks, chunk)
    for k in range(begin, end):
        m0, m1, m2, m3 = moments[k, 0], moments[k, 1], moments[k, 2], moments[k, 3]
        moments[k] = 0
        for slot in range(interval_ptr[k], interval_ptr[k + 1]):
            e = sorted_edges[slot]
            c = hermite(order, distance[e] / step - k, step)
            w = weight[e] if weighted else x.dtype.type(1)
            c0, c1 = x.dtype.type(c[0] * w), x.dtype.type(c[1] * w)
            c2, c3 = x.dtype.type(c[2] * w), x.dtype.type(c[3] * w)
            target, source = grad[dst[e]], x[src[e]]
            for f in range(features):
                product = target[f] * source[f]
                m0[f] += c0 * product
                m1[f] += c1 * product
                m2[f] += c2 * product
                m3[f] += c3 * product


@njit
def filter_grad_symmetric(
    grad: Array,
    x: Array,
    distance: Array,
    src: Array,
    dst: Array,
    sorted_edges: Array,
    interval_ptr: Array,
    cutoff: float,
    order: int,
    moments: Array,
    chunks: int,
    chunk: int,
) -> None:
    """`filter_grad` without weights over one of each edge and its reverse, two pairs at a time."""
    features = x.shape[1]
    knots = interval_ptr.shape[0]
    step = cutoff / (knots - 1)
    real = x.dtype.type
    begin, end = chunk_rows(interval_ptr, chunks, chunk)
    for k in range(begin, end):
        m0, m1, m2, m3 = moments[k, 0], moments[k, 1], moments[k, 2], moments[k, 3]
        moments[k] = 0
        last = interval_ptr[k + 1]
        for slot in range(interval_ptr[k], last, 2):
            ea = sorted_edges[slot]
            # an odd pair at the end is joined by itself with weight zero
            eb = sorted_edges[min(slot + 1, last - 1)]
            joined = 1.0 if slot + 1 < last else 0.0
            a = hermite(order, distance[ea] / step - k, step)
            b = hermite(order, distance[eb] / step - k, step)
            a0, a1, a2, a3 = real(a[0]), real(a[1]), real(a[2]), real(a[3])
            b0, b1 = real(b[0] * joined), real(b[1] * joined)
            b2, b3 = real(b[2] * joined), real(b[3] * joined)
            ga_i, ga_j, xa_i, xa_j = grad[dst[ea]], grad[src[ea]], x[dst[ea]], x[src[ea]]
            gb_i, gb_j, xb_i, xb_j = grad[dst[eb]], grad[src[eb]], x[dst[eb]], x[src[eb]]
            for f in range(features):
                pa = ga_i[f] * xa_j[f] + ga_j[f] * xa_i[f]
                pb = gb_i[f] * xb_j[f] + gb_j[f] * xb_i[f]
                m0[f] += a0 * pa + b0 * pb
                m1[f] += a1 * pa + b1 * pb
                m2[f] += a2 * pa + b2 * pb
                m3[f] += a3 * pa + b3 * pb
