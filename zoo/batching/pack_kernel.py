"""CPU kernels that fill batches: serial and nogil, like those of `zoo.ops`."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.ops.setup import njit

Array = Any

TOO_MANY = -1
"""The graphs, their nodes or their edges don't fit the slots."""
DAMAGED = -2
"""Stored edges are unsorted, or leave their graph."""
ABSENT = -3
"""The store has no such graph."""


@njit
def layout(
    store_ptr: Array,
    graphs: Array,
    node_ptr: Array,
    batch: Array,
    nodes_mask: Array,
    graph_id: Array,
    graphs_mask: Array,
) -> int:
    """Where each graph of the pack begins, each node's graph, the ids, and what is real; returns
    the number of real nodes, TOO_MANY or ABSENT.

    The nodes that are left over belong to the first padding graph; further ones are empty.
    """
    at, count, slots = 0, graphs.shape[0], batch.shape[0]
    if count >= graph_id.shape[0]:
        return TOO_MANY
    node_ptr[0] = 0
    for number in range(count):
        g = graphs[number]
        if g < 0 or g >= store_ptr.shape[0] - 1:
            return ABSENT
        end = at + store_ptr[g + 1] - store_ptr[g]
        if end >= slots:
            return TOO_MANY
        for row in range(at, end):
            batch[row] = number
        at = end
        node_ptr[number + 1] = at
        graph_id[number] = g
    batch[at:] = count
    node_ptr[count + 1 :] = slots
    graph_id[count:] = -1
    nodes_mask[:at] = True
    nodes_mask[at:] = False
    graphs_mask[:count] = True
    graphs_mask[count:] = False
    return at


@njit
def copy_rows(values: Array, ptr: Array, graphs: Array, width: int, out: Array) -> None:
    """Copy the rows of each of `graphs` end to end into `out`, both flat, and zero the rest."""
    at = 0
    for g in graphs:
        begin = ptr[g] * width
        size = ptr[g + 1] * width - begin
        for c in range(size):
            out[at + c] = values[begin + c]
        at += size
    out[at:] = 0


@njit
def small(pos: Array, begin: int, end: int, cutoff: float) -> bool:
    """Whether the box around some atoms is so small that all pairs lie within the cutoff.

    Most small molecules pass at the usual cutoffs, and their pairs need no look. False where a
    coordinate is not finite.
    """
    square = 0.0
    for axis in range(3):
        low, high = np.inf, -np.inf
        total = 0.0
        for i in range(begin, end):
            value = np.float64(pos[i, axis])
            low, high = min(low, value), max(high, value)
            total += value
        # min and max pass NaN over; the sum doesn't
        square += (high - low) ** 2 + 0.0 * total
    return square < 0.999 * cutoff * cutoff


@njit
def copy_shifted(values: Array, begin: int, size: int, to: int, shift: int) -> None:
    """values[to : to + size] = values[begin : begin + size] + shift."""
    source, target = values[begin : begin + size], values[to : to + size]
    for k in range(size):
        target[k] = source[k] + shift


@njit
def edges_within(
    pos: Array,
    node_ptr: Array,
    graphs: int,
    cutoff: float,
    src: Array,
    dst: Array,
    ptr: Array,
    src_perm: Array,
) -> int:
    """All ordered pairs closer than `cutoff` inside each graph of the pack, sorted by destination,
    then source, and their transpose; returns their count or TOO_MANY.
    """
    limit = cutoff * cutoff
    at = 0
    ptr[0] = 0
    slots = src.shape[0]
    place = np.empty(ptr.shape[0], np.int64)
    # Complete graphs of one size differ in nothing but where they begin. These are the first node
    # and the first edge of one of each size (edge -1: none yet).
    like_node, like_edge = np.empty(ptr.shape[0], np.int64), np.full(ptr.shape[0], -1, np.int64)
    for g in range(graphs):
        begin, end = node_ptr[g], node_ptr[g + 1]
        size = end - begin
        first, pairs = at, size * (size - 1)
        like = like_edge[size]
        if like >= 0 and at + pairs <= slots and small(pos, begin, end, cutoff):
            copy_shifted(src, like, pairs, at, begin - like_node[size])
            copy_shifted(dst, like, pairs, at, begin - like_node[size])
            copy_shifted(src_perm, like, pairs, at, at - like)
            for i in range(begin, end):
                at += size - 1
                ptr[i + 1] = at
            continue
        for i in range(begin, end):
            place[i] = at
            x, y, z = np.float64(pos[i, 0]), np.float64(pos[i, 1]), np.float64(pos[i, 2])
            for j in range(begin, end):
                dx, dy, dz = x - pos[j, 0], y - pos[j, 1], z - pos[j, 2]
                if dx * dx + dy * dy + dz * dz < limit and i != j:
                    if at == slots:
                        return TOO_MANY
                    src[at] = j
                    dst[at] = i
                    at += 1
            ptr[i + 1] = at
        # Each pair is there both ways, so rows and columns are equally long.
        for e in range(first, at):
            src_perm[place[src[e]]] = e
            place[src[e]] += 1
        if at - first == pairs:
            like_node[size], like_edge[size] = begin, first
    return at


@njit
def edges_stored(
    edge_ptr: Array,
    stored_src: Array,
    stored_dst: Array,
    graphs: Array,
    pack_node_ptr: Array,
    src: Array,
    dst: Array,
    ptr: Array,
    src_ptr: Array,
    src_perm: Array,
) -> int:
    """The stored edges of each graph of the pack, shifted to its nodes, and their transpose.

    Returns their count, TOO_MANY or DAMAGED: a large store's edges aren't read when it is opened,
    so this is where they are checked.
    """
    at = 0
    row = 0
    ptr[0] = 0
    for number in range(graphs.shape[0]):
        shift = pack_node_ptr[number]
        size = pack_node_ptr[number + 1] - shift
        for e in range(edge_ptr[graphs[number]], edge_ptr[graphs[number] + 1]):
            if at == src.shape[0]:
                return TOO_MANY
            j, i = stored_src[e], stored_dst[e]
            if j < 0 or j >= size or i < 0 or i >= size or i + shift < row:
                return DAMAGED
            i += shift
            while row < i:
                row += 1
                ptr[row] = at
            src[at] = j + shift
            dst[at] = i
            at += 1
    while row < pack_node_ptr[graphs.shape[0]]:
        row += 1
        ptr[row] = at
    src_ptr[:] = 0
    for e in range(at):
        src_ptr[src[e] + 1] += 1
    for row in range(src_ptr.shape[0] - 1):
        src_ptr[row + 1] += src_ptr[row]
    place = src_ptr[:-1].copy()
    for e in range(at):
        src_perm[place[src[e]]] = e
        place[src[e]] += 1
    return at


@njit
def pad_edges(
    count: int,
    real_nodes: int,
    src: Array,
    dst: Array,
    dst_ptr: Array,
    src_perm: Array,
    edges_mask: Array,
) -> None:
    """Padding edges: self-loops spread over the padding nodes."""
    nodes = dst_ptr.shape[0] - 1
    dst_ptr[real_nodes + 1 :] = count
    edges_mask[:count] = True
    edges_mask[count:] = False
    pad = real_nodes
    for e in range(count, src.shape[0]):
        src[e] = pad
        dst[e] = pad
        src_perm[e] = e
        pad = pad + 1 if pad + 1 < nodes else real_nodes
