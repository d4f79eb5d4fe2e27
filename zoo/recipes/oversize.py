"""Graphs that fit no pack."""

from __future__ import annotations

import numpy as np

from zoo.batching.pack import check_fit, oversize_error
from zoo.batching.shape import FixedSize
from zoo.batching.store import Store
from zoo.errors import RequestError


def count_oversize(
    *,
    store: Store,
    ids: np.ndarray,
    split: str,
    shape: FixedSize,
    cutoff: float | None,
    allowed: bool,
) -> int:
    """How many graphs of a split fit no pack. RequestError unless they may be left out, and where
    nothing else is left.
    """
    nodes, edges = store.nodes_per_graph()[ids], store.edges_per_graph(cutoff=cutoff)[ids]
    large = np.flatnonzero(~check_fit(nodes=nodes, edges=edges, shape=shape))
    if len(large) and not allowed:
        at = int(large[0])
        name = f"{split} graph {ids[at]}"
        raise oversize_error(nodes=int(nodes[at]), edges=int(edges[at]), name=name, shape=shape)
    if len(large) == len(ids):
        raise RequestError(
            f"no {split} molecule fits the batch shape, so nothing is left: {shape}\n"
            "give batch.nodes and batch.edges more room, or leave them to be chosen (0)"
        )
    return len(large)
