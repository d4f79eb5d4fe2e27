"""Packing graphs into batches of one fixed shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from zoo.batching.shape import FixedSize
from zoo.batching.store import Store
from zoo.errors import DataError, RequestError

Batch = dict[str, Tensor]

WINDOW = 512
"""Graphs looked over to finish a pack: enough that every size of molecule is among them."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The packs of one epoch: pack p holds graphs[ptr[p]:ptr[p + 1]] (store indices)."""

    graphs: np.ndarray
    ptr: np.ndarray

    def __len__(self) -> int:
        return len(self.ptr) - 1

    def pack(self, number: int) -> np.ndarray:
        """Store indices of one pack: int64 [graphs]; empty beyond the last."""
        if number >= len(self):
            return self.graphs[:0]
        return self.graphs[self.ptr[number] : self.ptr[number + 1]]


def check_fit(*, nodes: np.ndarray, edges: np.ndarray, shape: FixedSize) -> np.ndarray:
    """Which graphs fit an empty pack of this shape: bool [graphs]."""
    fits: np.ndarray = (nodes <= shape.nodes - 1) & (edges <= shape.edges)
    return fits


def oversize_error(*, nodes: int, edges: int, name: str, shape: FixedSize) -> RequestError:
    """The error for a graph larger than the batch shape, naming it and the shape needed."""
    return RequestError(
        f"{name} has {nodes} nodes and {edges} edges; the batch shape holds "
        f"{shape.nodes - 1} and {shape.edges}\n"
        f"use a shape of at least {nodes + 1} nodes and {edges} edges, or skip such graphs"
    )


def make_plan(*, ids: np.ndarray, nodes: np.ndarray, edges: np.ndarray, shape: FixedSize) -> Plan:
    """Pack graphs `ids` (in this order) by best fit on nodes and edges together.

    `nodes` and `edges` are the counts of all graphs of the store. Raises RequestError for a graph
    that fits no pack.
    """
    from zoo.batching.plan_kernel import best_fit

    n, e = nodes[ids], edges[ids]
    fits = check_fit(nodes=n, edges=e, shape=shape)
    if not fits.all():
        at = int(np.flatnonzero(~fits)[0])
        raise oversize_error(
            nodes=int(n[at]), edges=int(e[at]), name=f"graph {int(ids[at])}", shape=shape
        )
    order = np.empty(len(ids), np.int64)
    ptr = np.empty(len(ids) + 1, np.int64)
    packs = best_fit(*(n, e, shape.nodes - 1, shape.edges, shape.graphs - 1, WINDOW), order, ptr)
    return Plan(graphs=ids[order], ptr=ptr[: packs + 1].copy())


def fill_batch(
    *,
    store: Store,
    graphs: np.ndarray,
    shape: FixedSize,
    cutoff: float | None,
    targets: np.ndarray | None = None,
) -> Batch:
    """A batch of fixed shape from graphs of the store (none at all is legal: all padding).

    Returns z int32 [N], pos float [N, 3], every other node attribute of the store, batch int32 [N],
    node_ptr int32 [G + 1], graph_id int32 [G] (-1 for padding), nodes_mask [N], edges_mask [E],
    graphs_mask [G] (True = real), src, dst, src_perm int32 [E], dst_ptr, src_ptr int32 [N + 1] and,
    with `targets` [graphs of the store, T], y [G, T] (NaN in padding). Edges are those within
    `cutoff`, or the stored ones where it is None, with every edge attribute of the store [E, ...].
    """
    from zoo.batching import pack_kernel as kernel

    N, E, G = shape.nodes, shape.edges, shape.graphs
    graphs = np.asarray(graphs, np.int64)
    count = len(graphs)
    node_ptr, of_graph, graph_id = _ints(G + 1), _ints(N), _ints(G)
    nodes_mask, edges_mask, graphs_mask = (np.empty(size, np.bool_) for size in (N, E, G))
    layout = (node_ptr, of_graph, nodes_mask, graph_id, graphs_mask)
    nodes = kernel.layout(store.node_ptr, graphs, *layout)
    if nodes == kernel.ABSENT:
        raise RequestError(f"graphs {graphs.min()} to {graphs.max()} of a store of {len(store)}")
    if nodes == kernel.TOO_MANY:
        size = int((store.node_ptr[graphs + 1] - store.node_ptr[graphs]).sum())
        raise DataError(f"{count} graphs with {size} nodes don't fit {shape}")
    arrays = {
        name: _gathered(values, ptr=store.node_ptr, graphs=graphs, slots=N)
        for name, values in store.node.items()
    }
    src, dst, src_perm = _ints(E), _ints(E), _ints(E)
    dst_ptr = _ints(N + 1)
    if cutoff is not None:
        if "pos" not in arrays:
            raise DataError("this store holds no positions to find edges within a cutoff from")
        molecules = (arrays["pos"], node_ptr, count, float(cutoff))
        edges = kernel.edges_within(*molecules, src, dst, dst_ptr, src_perm)
    elif store.edge_ptr is None:
        raise DataError("this store holds no edges, and no cutoff was given to find them")
    else:
        src_ptr = _ints(N + 1)
        stored = (store.edge_ptr, store.edge["src"], store.edge["dst"], graphs, node_ptr)
        edges = kernel.edges_stored(*stored, src, dst, dst_ptr, src_ptr, src_perm)
    if edges == kernel.TOO_MANY:
        raise DataError(f"the edges of {count} graphs don't fit the {E} edge slots of the batch")
    if edges == kernel.DAMAGED:
        raise DataError(f"the edges of the store {store.folder} are damaged; make it anew")
    kernel.pad_edges(edges, nodes, src, dst, dst_ptr, src_perm, edges_mask)
    if cutoff is not None:
        src_ptr = dst_ptr.copy()  # each edge's reverse is there
    else:
        for name in sorted(set(store.edge) - {"src", "dst"}):
            arrays[name] = _gathered(store.edge[name], ptr=store.edge_ptr, graphs=graphs, slots=E)
    arrays |= {
        "batch": of_graph,
        "node_ptr": node_ptr,
        "graph_id": graph_id,
        "nodes_mask": nodes_mask,
        "edges_mask": edges_mask,
        "graphs_mask": graphs_mask,
        "src": src,
        "dst": dst,
        "src_perm": src_perm,
        "dst_ptr": dst_ptr,
        "src_ptr": src_ptr,
    }
    if targets is not None:
        if "y" in arrays:
            raise DataError("this store's nodes or edges have labels y; targets would hide them")
        y = np.full((G, targets.shape[1]), np.nan, targets.dtype)
        y[:count] = targets[graphs]
        arrays["y"] = y
    return {name: torch.from_numpy(values) for name, values in arrays.items()}


def _ints(size: int) -> np.ndarray:
    return np.empty(size, np.int32)


def _gathered(
    values: np.ndarray, *, ptr: np.ndarray | None, graphs: np.ndarray, slots: int
) -> np.ndarray:
    """The rows of these graphs end to end in `slots` rows, the rest zero; integers as int32."""
    from zoo.batching.pack_kernel import copy_rows

    kept = np.int32 if values.dtype.kind in "iu" else values.dtype
    rows = np.empty((slots, *values.shape[1:]), kept)
    if rows.size:
        copy_rows(values.reshape(-1), ptr, graphs, rows.size // slots, rows.reshape(-1))
    return rows
