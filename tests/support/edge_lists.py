"""Small graphs in the form that ops take: edges sorted by destination, their transpose, padding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class EdgeList:
    """Edges with distances; `count` of them are real, the others padding."""

    nodes: int
    count: int
    symmetric: bool
    distance: Tensor
    src: Tensor
    dst: Tensor
    dst_ptr: Tensor
    src_ptr: Tensor
    src_perm: Tensor
    pair: Tensor
    """Which pair each real edge belongs to (edge and reverse share one)."""

    @property
    def graph(self) -> tuple[Tensor, ...]:
        """src, dst, dst_ptr, src_ptr, src_perm."""
        return self.src, self.dst, self.dst_ptr, self.src_ptr, self.src_perm


def edge_list(
    pairs: np.ndarray,
    *,
    nodes: int,
    distance: np.ndarray,
    symmetric: bool,
    padding_nodes: int = 3,
    padding_edges: int = 7,
) -> EdgeList:
    """From directed `pairs` [E, 2] (source, destination) in any order, with their distances [E].

    Padding distances are NaN; padding edges join padding nodes.
    """
    order = np.lexsort((pairs[:, 0], pairs[:, 1]))
    src, dst = pairs[order].T.astype(np.int32)
    total, count = nodes + padding_nodes, len(pairs)
    pad = (nodes + np.arange(padding_edges) % max(padding_nodes, 1)).astype(np.int32)
    back = np.lexsort((dst, src))
    low, high = np.minimum(src, dst), np.maximum(src, dst)
    pair = np.unique(low.astype(np.int64) * total + high, return_inverse=True)[1]
    row = np.arange(total + 1)
    arrays = {
        "distance": np.concatenate([distance[order], np.full(padding_edges, np.nan)]),
        "src": np.concatenate([src, pad]),
        "dst": np.concatenate([dst, pad]),
        "dst_ptr": np.searchsorted(dst, row).astype(np.int32),
        "src_ptr": np.searchsorted(src[back], row).astype(np.int32),
        "src_perm": np.concatenate([back, count + np.arange(padding_edges)]).astype(np.int32),
        "pair": pair.reshape(-1).astype(np.int64),
    }
    tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
    return EdgeList(nodes=total, count=count, symmetric=symmetric, **tensors)


def complete(sizes: list[int], *, seed: int = 0, reach: float = 6.0, **padding: int) -> EdgeList:
    """Graphs of these sizes, every pair of nodes of a graph joined both ways, random distances."""
    generator = np.random.default_rng(seed)
    pairs, distances, begin = [np.zeros((0, 2), np.int64)], [np.zeros(0)], 0
    for size in sizes:
        i, j = np.triu_indices(size, 1)
        length = generator.uniform(0.3, reach, len(i))
        for ends in ((i, j), (j, i)):
            pairs.append(begin + np.stack(ends, 1))
            distances.append(length)
        begin += size
    return edge_list(
        np.concatenate(pairs),
        nodes=begin,
        distance=np.concatenate(distances),
        symmetric=True,
        **padding,
    )


def directed(*, nodes: int, edges: int, seed: int = 0, reach: float = 6.0) -> EdgeList:
    """Random directed edges, some doubled, some from a node to itself; many nodes have none."""
    generator = np.random.default_rng(seed)
    pairs = generator.integers(0, nodes, (edges, 2))
    distance = generator.uniform(0.0, reach, edges)
    return edge_list(pairs, nodes=nodes, distance=distance, symmetric=False)
