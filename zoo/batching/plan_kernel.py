"""CPU kernels that choose packs: serial and nogil, like those of `zoo.ops`."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.ops.setup import njit

Array = Any


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
    # Those that wait are waiting[first:end], in stream order; room for two windows, so that they
    # are moved to the front once in a window of graphs.
    waiting = np.empty(2 * window, np.int64)
    first, end, next_graph, packs, placed = 0, 0, 0, 0, 0
    pack_ptr[0] = 0
    while placed < total:
        free_nodes, free_edges, free_graphs = max_nodes, max_edges, max_graphs
        in_order = True
        while free_graphs > 0:
            while end - first < window and next_graph < total:
                if end == waiting.shape[0]:
                    waiting[: end - first] = waiting[first:end].copy()
                    first, end = 0, end - first
                waiting[end] = next_graph
                end += 1
                next_graph += 1
            best = -1
            if in_order and first < end:
                g = waiting[first]
                if nodes[g] <= free_nodes and edges[g] <= free_edges:
                    best = first
                else:
                    in_order = False
            if not in_order:
                most = -1
                for slot in range(first, end):
                    g = waiting[slot]
                    if most < nodes[g] <= free_nodes and edges[g] <= free_edges:
                        best, most = slot, nodes[g]
                        if most == free_nodes:
                            break
            if best < 0:
                break
            g = waiting[best]
            for slot in range(best, first, -1):
                waiting[slot] = waiting[slot - 1]
            first += 1
            order[placed] = g
            placed += 1
            free_nodes -= nodes[g]
            free_edges -= edges[g]
            free_graphs -= 1
        packs += 1
        pack_ptr[packs] = placed
    return packs
