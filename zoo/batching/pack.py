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
    from zoo.batching.pack_kernel import best_fit

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
    if count and (graphs.min() < 0 or graphs.max() >= len(store)):
        raise RequestError(f"graphs {graphs.min()} to {graphs.max()} of a store of {len(store)}")
    real_nodes = int((store.node_ptr[graphs + 1] - store.node_ptr[graphs]).sum())
    if count > G - 1 or real_nodes > N - 1:
        raise DataError(f"{count} graphs with {real_nodes} nodes don't fit {shape}")
    batch = {
        name: _gathered(values, ptr=store.node_ptr, graphs=graphs, slots=N)
        for name, values in store.node.items()
    }
    node_ptr, of_graph = np.empty(G + 1, np.int32), np.empty(N, np.int32)
    nodes_mask, edges_mask = np.empty(N, np.bool_), np.empty(E, np.bool_)
    kernel.node_layout(store.node_ptr, graphs, node_ptr, of_graph, nodes_mask)
    src, dst, src_perm = (np.empty(E, np.int32) for _ in range(3))
    dst_ptr, src_ptr = np.empty(N + 1, np.int32), np.empty(N + 1, np.int32)
    if cutoff is not None:
        if "pos" not in batch:
            raise DataError("this store holds no positions to find edges within a cutoff from")
        pos = batch["pos"].numpy()
        ends = kernel.edges_within(pos, node_ptr, count, float(cutoff), src, dst, dst_ptr)
    elif store.edge_ptr is None:
        raise DataError("this store holds no edges, and no cutoff was given to find them")
    else:
        stored = (store.edge_ptr, store.edge["src"], store.edge["dst"], graphs, node_ptr)
        ends = kernel.edges_stored(*stored, src, dst, dst_ptr)
    if ends == kernel.TOO_MANY:
        raise DataError(f"the edges of {count} graphs don't fit the {E} edge slots of the batch")
    if ends == kernel.DAMAGED:
        raise DataError(f"the edges of the store {store.folder} are damaged; make it anew")
    if cutoff is None:
        for name in sorted(set(store.edge) - {"src", "dst"}):
            batch[name] = _gathered(store.edge[name], ptr=store.edge_ptr, graphs=graphs, slots=E)
    tables = (src, dst, dst_ptr, src_ptr, src_perm, edges_mask)
    kernel.finish_edges(ends, real_nodes, cutoff is not None, *tables)
    graph_id = np.full(G, -1, np.int32)
    graph_id[:count] = graphs
    graphs_mask = graph_id >= 0
    arrays = {
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
        if "y" in batch:
            raise DataError("this store's nodes or edges have labels y; targets would hide them")
        y = np.full((G, targets.shape[1]), np.nan, targets.dtype)
        y[:count] = targets[graphs]
        arrays["y"] = y
    batch.update({name: torch.from_numpy(values) for name, values in arrays.items()})
    return batch


def _gathered(
    values: np.ndarray, *, ptr: np.ndarray | None, graphs: np.ndarray, slots: int
) -> Tensor:
    """The rows of these graphs end to end in `slots` rows, the rest zero; integers as int32."""
    from zoo.batching.pack_kernel import copy_rows

    kept = np.int32 if values.dtype.kind in "iu" else values.dtype
    rows = np.zeros((slots, *values.shape[1:]), kept)
    if values.size:
        copy_rows(values.reshape(len(values), -1), ptr, graphs, rows.reshape(slots, -1))
    return torch.from_numpy(rows)
