"""From and to PyTorch Geometric's `Data` and `Batch`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from zoo.batching.pack import Batch
from zoo.batching.store import Store, make_store
from zoo.errors import DataError, RequestError

if TYPE_CHECKING:
    from torch_geometric.data import Batch as PygBatch
    from torch_geometric.data import Data

_OF_BATCH = {
    *("batch", "node_ptr", "nodes_mask", "edges_mask", "graphs_mask"),
    *("src", "dst", "dst_ptr", "src_ptr", "src_perm"),
}

_COUNTED = {"x", "pos"}
"""Attributes that PyG tells the number of nodes by; without one it must be set."""


def from_pyg(graphs: Sequence[Data]) -> Store:
    """A store of PyG graphs with the same attributes; edges sorted by destination, then source.

    As in PyG, an attribute with a row per node (edge) of every graph is one of nodes (edges), one
    that fits both is an edges' if its name says "edge", and every other is one of graphs: tensors
    of one shape, whose leading dimension of one becomes the graphs', numbers, or strings. DataError
    names the attribute and graph that don't conform.
    """
    _check_kinds(graphs)
    nodes = np.array([_node_count(graph, at) for at, graph in enumerate(graphs)], np.int64)
    names = list(graphs[0].keys())
    edges, edge, order = None, {}, None
    if "edge_index" in names:
        ends = [_edge_index(graph.edge_index, at) for at, graph in enumerate(graphs)]
        edges = np.array([pair.shape[1] for pair in ends], np.int64)
        src, dst = np.concatenate(ends, axis=1)
        order = np.lexsort((src, dst, np.repeat(np.arange(len(graphs)), edges)))
        edge = {"src": src[order], "dst": dst[order]}
    node: dict[str, np.ndarray] = {}
    whole: dict[str, np.ndarray] = {}
    for name in sorted(set(names) - {"edge_index", "num_nodes"}):
        values = _values(name, graphs)
        kind = _kind(name, values, nodes=nodes, edges=edges)
        if kind == "graph":
            whole[name] = _stacked(name, values, nodes=nodes, edges=edges)
        else:
            joined = _joined(name, values)
            if kind == "node":
                node[name] = joined
            else:
                edge[name] = joined[order]
    return make_store(
        node_ptr=_ptr(nodes),
        node=node,
        graph=whole,
        edge=edge,
        edge_ptr=None if edges is None else _ptr(edges),
    )


def to_pyg_list(*, store: Store, ids: Sequence[int] | np.ndarray) -> list[Data]:
    """Graphs of a store as PyG `Data`: integers as int64, attributes of graphs with a leading
    dimension of one. In their names "index" becomes "idx": PyG takes the former for node ids.
    """
    from torch_geometric.data import Data

    chosen = np.asarray(ids, np.int64)
    if len(chosen) and (chosen.min() < 0 or chosen.max() >= len(store)):
        raise RequestError(f"graphs {chosen.min()} to {chosen.max()} of a store of {len(store)}")
    made = []
    for graph in chosen.tolist():
        begin, end = store.node_ptr[graph], store.node_ptr[graph + 1]
        data = Data(**{name: _tensor(values[begin:end]) for name, values in store.node.items()})
        if not _COUNTED & set(store.node):
            data.num_nodes = int(end - begin)
        if store.edge_ptr is not None:
            begin, end = store.edge_ptr[graph], store.edge_ptr[graph + 1]
            part = {name: _tensor(values[begin:end]) for name, values in store.edge.items()}
            data.edge_index = torch.stack([part.pop("src"), part.pop("dst")])
            data.update(part)
        for name, values in store.graph.items():
            value = values[graph]
            text = values.dtype.kind == "U"
            data[name.replace("index", "idx")] = str(value) if text else _tensor(value[None])
        made.append(data)
    return made


def to_pyg(batch: Batch) -> PygBatch:
    """The real graphs of a batch as PyG's `Batch`, which `to_data_list()` splits: no padding and no
    masks, integers as int64. Gradients flow through.
    """
    from torch_geometric.data import Batch as PygBatch

    N, E, G = (len(batch[f"{kind}_mask"]) for kind in ("nodes", "edges", "graphs"))
    nodes, edges, graphs = (
        int(batch[f"{kind}_mask"].sum()) for kind in ("nodes", "edges", "graphs")
    )
    ptr = batch["node_ptr"][: graphs + 1].long()
    edge_ptr = batch["dst_ptr"].long()[ptr]
    one_each = torch.arange(graphs + 1, device=ptr.device)
    made = {
        "edge_index": torch.stack([batch["src"][:edges], batch["dst"][:edges]]).long(),
        "batch": batch["batch"][:nodes].long(),
        "ptr": ptr,
    }
    slices = {"edge_index": edge_ptr}
    for name in sorted(batch.keys() - _OF_BATCH):
        value = batch[name]
        rows = len(value)
        if name in ("y", "graph_id") and rows == G:
            kept, slices[name] = graphs, one_each
        elif rows == E and (rows != N or "edge" in name):
            kept, slices[name] = edges, edge_ptr
        elif rows == N:
            kept, slices[name] = nodes, ptr
        elif rows == G:
            kept, slices[name] = graphs, one_each
        else:
            raise DataError(f"{name!r} has {rows} rows, the batch {N} nodes, {E} edges, {G} graphs")
        made[name] = _widened(value[:kept])
    result = PygBatch(**made)
    if not _COUNTED & set(slices):
        result.num_nodes = nodes
        result._num_nodes = torch.diff(ptr).tolist()
    # What PyG's own collation leaves behind for to_data_list().
    result._num_graphs = graphs
    result._slice_dict = slices
    result._inc_dict = dict.fromkeys(slices) | {"edge_index": ptr[:-1]}
    return result


def _check_kinds(graphs: Sequence[Data]) -> None:
    from torch_geometric.data import Batch as PygBatch
    from torch_geometric.data import Data

    if len(graphs) == 0:
        raise DataError("no graphs to make a store from")
    for at, graph in enumerate(graphs):
        if isinstance(graph, PygBatch):
            raise DataError(f"graph {at} is a batch; give its to_data_list()")
        if not isinstance(graph, Data):
            raise DataError(f"graph {at} is a {type(graph).__name__}, not a PyG Data")
        for name in (set(graph.keys()) ^ set(graphs[0].keys())) - {"num_nodes"}:
            lacks = at if name in graphs[0] else 0
            raise DataError(
                f"graph {lacks} has no {name!r}, and graph {0 if lacks else at} has: all graphs of "
                "a store have the same attributes"
            )


def _node_count(graph: Data, at: int) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # PyG's word for a guess
        try:
            count = graph.num_nodes
        except UserWarning:
            count = None
    if count is None:
        raise DataError(f"graph {at} doesn't say how many nodes it has; set its num_nodes")
    return int(count)


def _edge_index(value: Any, at: int) -> np.ndarray:
    if not isinstance(value, Tensor) or value.dim() != 2 or len(value) != 2:
        raise DataError(f"edge_index of graph {at} is not a tensor [2, edges]")
    return np.asarray(value.detach().cpu().numpy())


def _values(name: str, graphs: Sequence[Data]) -> list[Any]:
    """An attribute of each graph: all arrays, all numbers or all strings."""
    values = [graph[name] for graph in graphs]
    kinds: list[type | tuple[type, ...]] = [(Tensor, np.ndarray), (int, float), str]
    for kind in kinds:
        if isinstance(values[0], kind):
            for at, value in enumerate(values):
                if not isinstance(value, kind):
                    raise DataError(
                        f"{name!r} is a {type(value).__name__} in graph {at}, "
                        f"a {type(values[0]).__name__} in graph 0"
                    )
            break
    else:
        raise DataError(
            f"{name!r} is a {type(values[0]).__name__}: a store holds tensors, numbers and strings"
        )
    if not isinstance(values[0], Tensor | np.ndarray):
        return values
    if "index" in name or "batch" in name or name in ("face", "ptr"):
        raise DataError(f"{name!r} holds node ids to PyG, which a store can't shift; rename it")
    try:
        return [v.detach().cpu().numpy() if isinstance(v, Tensor) else v for v in values]
    except (TypeError, RuntimeError) as error:
        raise DataError(f"{name!r} has no plain array in it: {error}") from error


def _kind(name: str, values: list[Any], *, nodes: np.ndarray, edges: np.ndarray | None) -> str:
    """Of what an attribute is: node, edge or graph."""
    if not all(isinstance(value, np.ndarray) and value.ndim for value in values):
        return "graph"
    rows = np.array([len(value) for value in values])
    of_nodes = bool((rows == nodes).all())
    of_edges = edges is not None and bool((rows == edges).all())
    if of_edges and (not of_nodes or "edge" in name):
        return "edge"
    return "node" if of_nodes else "graph"


def _joined(name: str, values: list[np.ndarray]) -> np.ndarray:
    first = values[0]
    for at, value in enumerate(values):
        if value.shape[1:] != first.shape[1:] or value.dtype != first.dtype:
            raise DataError(
                f"{name!r} has rows of {value.dtype} {value.shape[1:]} in graph {at}, "
                f"of {first.dtype} {first.shape[1:]} in graph 0"
            )
    return np.concatenate(values)


def _stacked(
    name: str, values: list[Any], *, nodes: np.ndarray, edges: np.ndarray | None
) -> np.ndarray:
    first = values[0]
    if not isinstance(first, np.ndarray):
        return np.array(values)
    for at, value in enumerate(values):
        if value.shape != first.shape or value.dtype != first.dtype:
            raise DataError(
                f"{name!r} is {value.dtype} {list(value.shape)} in graph {at} ({nodes[at]} nodes, "
                f"{0 if edges is None else edges[at]} edges), {first.dtype} {list(first.shape)} in "
                "graph 0: neither a row per node or edge nor of one shape"
            )
    stacked = np.stack(values)
    return stacked[:, 0] if first.ndim and len(first) == 1 else stacked


def _ptr(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)])


def _tensor(values: np.ndarray) -> Tensor:
    return _widened(torch.from_numpy(np.array(values)))


def _widened(value: Tensor) -> Tensor:
    integer = not value.is_floating_point() and not value.is_complex() and value.dtype != torch.bool
    return value.long() if integer else value
