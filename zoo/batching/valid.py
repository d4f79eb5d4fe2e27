"""What a store must hold before kernels index by it: they check no bounds of their own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from zoo.errors import DataError

RESERVED = {
    *("batch", "node_ptr", "graph_id", "nodes_mask", "edges_mask", "graphs_mask"),
    *("src_perm", "dst_ptr", "src_ptr"),
}
"""Names of the batch contract, which no attribute may take."""


def check_ptr(ptr: np.ndarray, *, name: str) -> None:
    """A row pointer starts at 0 and never falls. DataError names the graph where it does."""
    if ptr.ndim != 1 or len(ptr) == 0 or ptr.dtype.kind not in "iu":
        raise DataError(f"{name} is not a list of offsets: {ptr.dtype} {ptr.shape}")
    if ptr[0] != 0:
        raise DataError(f"{name} starts at {ptr[0]}, not 0")
    falls = ptr[1:] < ptr[:-1]
    if falls.any():
        raise DataError(f"{name} falls at graph {int(falls.argmax())}")


def check_lengths(
    *,
    node_ptr: np.ndarray,
    edge_ptr: np.ndarray | None,
    node: Mapping[str, np.ndarray],
    edge: Mapping[str, np.ndarray],
    graph: Mapping[str, np.ndarray],
) -> None:
    """Pointers rise, and every attribute has a row for each node, edge or graph."""
    check_ptr(node_ptr, name="node_ptr")
    rows = {"node": int(node_ptr[-1]), "graph": len(node_ptr) - 1, "edge": 0}
    if edge_ptr is not None:
        check_ptr(edge_ptr, name="edge_ptr")
        if len(edge_ptr) != len(node_ptr):
            raise DataError(f"edges of {len(edge_ptr) - 1} graphs, nodes of {rows['graph']}")
        rows["edge"] = int(edge_ptr[-1])
    if (edge_ptr is None) == ({"src", "dst"} <= set(edge)) or (edge and edge_ptr is None):
        raise DataError("edges need all of edge_ptr, src and dst")
    for kind, attributes in (("node", node), ("graph", graph), ("edge", edge)):
        for name, values in attributes.items():
            if values.ndim == 0 or len(values) != rows[kind]:
                raise DataError(
                    f"{kind} attribute {name!r} has {len(values) if values.ndim else 'no'} rows, "
                    f"its graphs have {rows[kind]}"
                )
    pos = node.get("pos")
    if pos is not None and (pos.shape[1:] != (3,) or pos.dtype.kind != "f"):
        raise DataError(f"positions are [nodes, 3] floats, not {pos.dtype} {pos.shape}")


def check_names(
    *, node: Mapping[str, np.ndarray], edge: Mapping[str, np.ndarray], graph: Mapping[str, object]
) -> None:
    """Attributes become files and tensors of a batch: words, each once, none that is taken."""
    for name in (*node, *edge, *graph):
        if not name.isidentifier():
            raise DataError(f"{name!r} can't name an attribute: letters, digits and _ can")
    taken = (set(node) & (RESERVED | {"src", "dst"})) | (set(edge) & RESERVED)
    if taken:
        raise DataError(f"{sorted(taken)[0]!r} is a name of every batch; rename the attribute")
    both = set(node) & set(edge)
    if both:
        raise DataError(f"{sorted(both)[0]!r} is an attribute of nodes and of edges")


def check_integers(attributes: Mapping[str, np.ndarray]) -> None:
    """Integers fit the int32 that batches hold them in."""
    limits = np.iinfo(np.int32)
    for name, values in attributes.items():
        if values.dtype.kind in "iu" and values.itemsize >= 4 and values.size:
            low, high = int(values.min()), int(values.max())
            if low < limits.min or high > limits.max:
                raise DataError(f"{name!r} spans {low} to {high}; batches hold 32-bit integers")


def check_edges(
    *, node_ptr: np.ndarray, edge_ptr: np.ndarray, src: np.ndarray, dst: np.ndarray
) -> None:
    """Edges join nodes of their graph, sorted by destination, then source."""
    if src.dtype.kind not in "iu" or dst.dtype.kind not in "iu":
        raise DataError(f"src and dst are node ids, not {src.dtype} and {dst.dtype}")
    per_graph = np.diff(edge_ptr)
    sizes = np.repeat(np.diff(node_ptr), per_graph)
    outside = (src < 0) | (dst < 0) | (src >= sizes) | (dst >= sizes)
    if outside.any():
        at = int(outside.argmax())
        graph = int(np.searchsorted(edge_ptr, at, side="right")) - 1
        raise DataError(
            f"graph {graph} has an edge from node {int(src[at])} to {int(dst[at])}, "
            f"and {int(sizes[at])} nodes"
        )
    falls = (dst[1:] < dst[:-1]) | ((dst[1:] == dst[:-1]) & (src[1:] < src[:-1]))
    falls[edge_ptr[1:-1][(edge_ptr[1:-1] > 0) & (edge_ptr[1:-1] < len(src))] - 1] = False
    if falls.any():
        graph = int(np.searchsorted(edge_ptr, int(falls.argmax()), side="right")) - 1
        raise DataError(f"edges of graph {graph} are not sorted by destination, then source")
