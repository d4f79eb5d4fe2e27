"""The fixed shape that every batch of a run has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zoo.errors import RequestError


def _round_up(value: float, multiple: int) -> int:
    return int(-(-value // multiple) * multiple)


@dataclass(frozen=True, kw_only=True)
class FixedSize:
    """Slots of a batch: nodes, edges and graphs, each counting the padding.

    One graph slot and one node slot always belong to the padding graph, also at an exact fill; a
    pack therefore holds at most `nodes - 1` real nodes, `edges` real edges and `graphs - 1` graphs.
    """

    nodes: int
    edges: int
    graphs: int

    def __post_init__(self) -> None:
        if self.nodes < 2 or self.edges < 1 or self.graphs < 2:
            raise RequestError(
                f"batch shape {self.nodes} nodes, {self.edges} edges, {self.graphs} graphs is too "
                "small: the padding graph alone takes one node and one graph"
            )

    def holds(self, *, nodes: int, edges: int, graphs: int = 1) -> bool:
        """Whether a pack of this content fits beside the padding graph."""
        return nodes <= self.nodes - 1 and edges <= self.edges and graphs <= self.graphs - 1

    @classmethod
    def fit(cls, *, nodes: np.ndarray, edges: np.ndarray, graphs: int) -> FixedSize:
        """A shape for about `graphs` graphs drawn from these node and edge counts [graphs].

        Nodes fill up first: edges get four standard deviations of room above what that many nodes
        bring, so that packs are limited by nodes and node efficiency stays high.
        """
        if len(nodes) == 0:
            raise RequestError("no graphs to fit a batch shape to")
        n, e = nodes.astype(np.float64), edges.astype(np.float64)
        spread = n.var()
        slope = ((n - n.mean()) * (e - e.mean())).mean() / spread if spread > 0 else 0.0
        left = (e - e.mean() - slope * (n - n.mean())).std()
        room = 4 * left * graphs**0.5
        per_graph = n.std() / n.mean() if n.mean() > 0 else 0.0
        return cls(
            nodes=_round_up(max(n.mean() * graphs, n.max()) + 1, 8),
            edges=_round_up(max(e.mean() * graphs + slope * n.mean() + room, e.max(), 1), 64),
            graphs=_round_up(graphs + 5 * per_graph * graphs**0.5 + 2, 4),
        )
