"""Small random stores for tests."""

from __future__ import annotations

import numpy as np

from zoo.batching.store import Store, make_store


def random_store(
    rng: np.random.Generator, sizes: list[int], *, edges: bool = True, density: float = 0.4
) -> Store:
    """Graphs of these sizes: node z, pos in a box of side 4 and x [., 2], graph y [graphs, 2], and
    with `edges` random directed ones (no two alike) with an attribute that tells them apart.
    """
    node_ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    total = int(node_ptr[-1])
    node = {
        "z": rng.integers(1, 10, total).astype(np.uint8),
        "pos": rng.uniform(0, 4, (total, 3)).astype(np.float32),
        "x": rng.normal(size=(total, 2)),
    }
    graph = {"y": rng.normal(size=(len(sizes), 2))}
    if not edges:
        return make_store(node_ptr=node_ptr, node=node, graph=graph)
    ends = []
    for size in sizes:
        dst, src = np.nonzero(rng.random((size, size)) < density)
        ends.append(np.stack([src, dst]))
    counts = [pair.shape[1] for pair in ends]
    src, dst = np.concatenate(ends, axis=1)
    return make_store(
        node_ptr=node_ptr,
        node=node,
        graph=graph,
        edge={"src": src, "dst": dst, "edge_number": np.arange(len(src))},
        edge_ptr=np.concatenate([[0], np.cumsum(counts)]),
    )


def same_arrays(left: Store, right: Store) -> bool:
    """Whether two stores hold the same attributes, values and types."""
    pairs = [(left.node_ptr, right.node_ptr)]
    if (left.edge_ptr is None) != (right.edge_ptr is None):
        return False
    if left.edge_ptr is not None and right.edge_ptr is not None:
        pairs.append((left.edge_ptr, right.edge_ptr))
    for kind in ("node", "edge", "graph"):
        ours, theirs = getattr(left, kind), getattr(right, kind)
        if ours.keys() != theirs.keys():
            return False
        pairs += [(ours[name], theirs[name]) for name in ours]
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)
