"""CPU kernels that choose packs and fill batches: serial and nogil, like those of `zoo.ops`."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.ops.setup import njit

Array = Any

TOO_MANY = -1
"""The edges don't fit the slots."""
DAMAGED = -2
"""Stored edges are unsorted, or leave their graph."""


@njit
def count_within(
    pos: Array, node_ptr: Array, cutoff: float, out: Array, chunks: int, chunk: int
) -> None:
    """out[g] = ordered pairs of different nodes of graph g closer than `cutoff`."""
    graphs = out.shape[0]
    limit = cutoff * cutoff
    for g in range(graphs * chunk // chunks, graphs * (chunk + 1) // chunks):
        count = 0
        begin, end = node_ptr[g], node_ptr[g + 1]
        for i in range(begin, end):
            for j in range(begin, i):
                dx = np.float64(pos[i, 0]) - pos[j, 0]
                dy = np.float64(pos[i, 1]) - pos[j, 1]
                dz = np.float64(pos[i, 2]) - pos[j, 2]
                if dx * dx + dy * dy + dz * dz < limit:
                    count += 2
        out[g] = count


@njit
def best_fit(
    nodes: Array,
    edges: Array,
    max_nodes: int,
    max_edges: int,
    max_graphs: int,
    window: int,
    order: Array,
    pack_ptr: Array,
) -> int:
    """Pack a stream of graphs; returns the number of packs.

    `nodes`, `edges` [graphs] are the counts in stream order. A pack takes graphs in that order
    while they fit, then from the next `window` graphs the one that fits with the most nodes, until
    none does. `order` [graphs] receives stream positions pack by pack, `pack_ptr` [graphs + 1]
    where each pack begins. Every graph must fit an empty pack.
    """
    total = nodes.shape[0]
    waiting = np.empty(window, np.int64)
    held, next_graph, packs, placed = 0, 0, 0, 0
    pack_ptr[0] = 0
    while placed < total:
        free_nodes, free_edges, free_graphs = max_nodes, max_edges, max_graphs
        in_order = True
        while free_graphs > 0:
            while held < window and next_graph < total:
                waiting[held] = next_graph
                held += 1
                next_graph += 1
            best = -1
            if in_order and held > 0:
                g = waiting[0]
                if nodes[g] <= free_nodes and edges[g] <= free_edges:
                    best = 0
                else:
                    in_order = False
            if not in_order:
                most = -1
                for slot in range(held):
                    g = waiting[slot]
                    if most < nodes[g] <= free_nodes and edges[g] <= free_edges:
                        best, most = slot, nodes[g]
                        if most == free_nodes:
                            break
            if best < 0:
                break
            g = waiting[best]
            for slot in range(best, held - 1):
                waiting[slot] = waiting[slot + 1]
            held -= 1
            order[placed] = g
            placed += 1
            free_nodes -= nodes[g]
            free_edges -= edges[g]
            free_graphs -= 1
        packs += 1
        pack_ptr[packs] = placed
    return packs


@njit
def copy_rows(values: Array, ptr: Array, graphs: Array, out: Array) -> int:
    """Copy the rows of each of `graphs` end to end into `out` [slots, width]; returns the count."""
    at = 0
    width = values.shape[1]
    for g in graphs:
        for row in range(ptr[g], ptr[g + 1]):
            for c in range(width):
                out[at, c] = values[row, c]
            at += 1
    return at


@njit
def node_layout(
    node_ptr: Array, graphs: Array, pack_node_ptr: Array, batch: Array, nodes_mask: Array
) -> None:
    """Where each graph of the pack begins, each node's graph, and which nodes are real.

    The nodes that are left over belong to the first padding graph; further ones are empty.
    """
    at = 0
    count = graphs.shape[0]
    pack_node_ptr[0] = 0
    for number in range(count):
        size = node_ptr[graphs[number] + 1] - node_ptr[graphs[number]]
        for row in range(at, at + size):
            batch[row] = number
            nodes_mask[row] = True
        at += size
        pack_node_ptr[number + 1] = at
    for row in range(at, batch.shape[0]):
        batch[row] = count
        nodes_mask[row] = False
    for number in range(count + 1, pack_node_ptr.shape[0]):
        pack_node_ptr[number] = batch.shape[0]


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
def edges_within(
    pos: Array, pack_node_ptr: Array, graphs: int, cutoff: float, src: Array, dst: Array, ptr: Array
) -> int:
    """All ordered pairs closer than `cutoff` inside each graph of the pack, sorted by destination,
    then source; returns their count or TOO_MANY.
    """
    limit = cutoff * cutoff
    at = 0
    ptr[0] = 0
    for g in range(graphs):
        begin, end = pack_node_ptr[g], pack_node_ptr[g + 1]
        size = end - begin
        if at + size * (size - 1) <= src.shape[0] and small(pos, begin, end, cutoff):
            for i in range(begin, end):
                for j in range(begin, i):
                    src[at + j - begin] = j
                for j in range(i + 1, end):
                    src[at + j - begin - 1] = j
                dst[at : at + size - 1] = i
                at += size - 1
                ptr[i + 1] = at
            continue
        for i in range(begin, end):
            x, y, z = np.float64(pos[i, 0]), np.float64(pos[i, 1]), np.float64(pos[i, 2])
            for j in range(begin, end):
                dx, dy, dz = x - pos[j, 0], y - pos[j, 1], z - pos[j, 2]
                if dx * dx + dy * dy + dz * dz < limit and i != j:
                    if at == src.shape[0]:
                        return TOO_MANY
                    src[at] = j
                    dst[at] = i
                    at += 1
            ptr[i + 1] = at
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
) -> int:
    """The stored edges of each graph of the pack, shifted to its nodes.

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
    return at


@njit
def finish_edges(
    count: int,
    real_nodes: int,
    symmetric: bool,
    src: Array,
    dst: Array,
    dst_ptr: Array,
    src_ptr: Array,
    src_perm: Array,
    edges_mask: Array,
) -> None:
    """Padding edges (self-loops spread over the padding nodes), masks, and the transpose.

    `symmetric` promises that each edge's reverse is there: then rows and columns are equally long.
    """
    nodes = dst_ptr.shape[0] - 1
    for row in range(real_nodes, nodes):
        dst_ptr[row + 1] = count
    edges_mask[:count] = True
    edges_mask[count:] = False
    pad = real_nodes
    for e in range(count, src.shape[0]):
        src[e] = pad
        dst[e] = pad
        src_perm[e] = e
        pad = pad + 1 if pad + 1 < nodes else real_nodes
    if symmetric:
        src_ptr[:] = dst_ptr
    else:
        src_ptr[:] = 0
        for e in range(count):
            src_ptr[src[e] + 1] += 1
        for row in range(nodes):
            src_ptr[row + 1] += src_ptr[row]
    place = src_ptr[:-1].copy()
    for e in range(count):
        j = src[e]
        src_perm[place[j]] = e
        place[j] += 1
