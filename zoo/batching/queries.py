"""Batches of queries against one constant graph: which tail completes (head, relation, ?)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from zoo.batching.pack import Batch
from zoo.batching.shape import FixedSize
from zoo.errors import RequestError

_ROUNDS = 20
"""Times that tails which turn out to be true are drawn again, before they are looked for."""


class QueryLoader:
    """Facts of a graph as queries, with tails that aren't true to tell them from.

    `edges` holds src, dst, edge_type int32 [E] and dst_ptr int32 [N + 1]; of both directions, the
    inverse of relation r being r + relations. `facts` int64 [F, 3] are the queries of an epoch,
    each once: half of a batch asks for the tail, half for the head by the inverse relation. A
    batch's edges are the graph's but those that would give its answers away: all between head and
    tail (`hide` "pair"), or the fact itself ("fact"). `known` int64 [K, 3] are the facts that no
    drawn tail may make.

    A batch holds the graph, keep bool [E], head, relation int64 [B], tails int64 [B, 1 +
    negatives], the true one first, graphs_mask bool [B] (True = real) and graph_id int64 [B], the
    number of the fact. A query counts as a graph. Padding asks what the first query asks.
    """

    def __init__(
        self,
        *,
        edges: Mapping[str, np.ndarray],
        relations: int,
        facts: np.ndarray,
        known: np.ndarray,
        queries: int,
        negatives: int,
        hide: str = "fact",
        seed: int = 0,
        rank: int = 0,
        replicas: int = 1,
    ) -> None:
        self.epoch = self.position = 0
        self._facts, self._relations, self._hide = facts, relations, hide
        self._queries, self._negatives = queries, negatives
        self._seed, self._rank, self._replicas = seed, rank, replicas
        self._nodes = len(edges["dst_ptr"]) - 1
        self.shape = FixedSize(nodes=self._nodes, edges=len(edges["src"]), graphs=queries)
        self._graph = {
            name: torch.from_numpy(edges[name]) for name in ("src", "dst", "edge_type", "dst_ptr")
        }
        wide = {name: edges[name].astype(np.int64) for name in ("src", "dst", "edge_type")}
        keys = self._edge_keys(wide["src"], wide["edge_type"], wide["dst"])
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        head, relation, tail = known.T
        both = (
            self._fact_keys(head, relation, tail),
            self._fact_keys(tail, relation + relations, head),
        )
        self._known = np.unique(np.concatenate(both))

    def _edge_keys(self, src: np.ndarray, kind: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """One number for what is hidden together."""
        pair: np.ndarray = src * self._nodes + dst
        return pair if self._hide == "pair" else pair * (2 * self._relations) + kind

    def _fact_keys(self, head: np.ndarray, relation: np.ndarray, tail: np.ndarray) -> np.ndarray:
        keys: np.ndarray = (head * (2 * self._relations) + relation) * self._nodes + tail
        return keys

    def __len__(self) -> int:
        batches = -(-len(self._facts) // self._queries)
        return -(-batches // self._replicas)

    def __iter__(self) -> Iterator[Batch]:
        order = np.random.default_rng((self._seed, self.epoch)).permutation(len(self._facts))
        while self.position < len(self):
            number = self.position * self._replicas + self._rank
            self.position += 1
            yield self._batch(order[number * self._queries : (number + 1) * self._queries], number)
        self.epoch += 1
        self.position = 0

    def example(self) -> Batch:
        """A batch, for those who compile."""
        return self._batch(np.arange(min(self._queries, len(self._facts))), 0)

    def _batch(self, ids: np.ndarray, number: int) -> Batch:
        head, relation, tail = self._facts[ids].T.copy()
        back = np.arange(len(ids)) >= len(ids) // 2
        head[back], tail[back] = tail[back], head[back]
        relation[back] += self._relations
        random = np.random.default_rng((self._seed, self.epoch, number))
        tails = np.concatenate([tail[:, None], self._untrue(head, relation, random)], axis=1)
        missing = self._queries - len(ids)

        def padded(values: np.ndarray) -> torch.Tensor:
            if not missing:
                return torch.from_numpy(values)
            first = values[:1] if len(values) else np.zeros((1, *values.shape[1:]), np.int64)
            return torch.from_numpy(np.concatenate([values, np.repeat(first, missing, axis=0)]))

        return {
            **self._graph,
            "keep": torch.from_numpy(self._kept(head, relation, tail)),
            "head": padded(head),
            "relation": padded(relation),
            "tails": padded(tails),
            "graphs_mask": torch.arange(self._queries) < len(ids),
            "graph_id": padded(ids.astype(np.int64)),
        }

    def _kept(self, head: np.ndarray, relation: np.ndarray, tail: np.ndarray) -> np.ndarray:
        inverse = (relation + self._relations) % (2 * self._relations)
        hidden = np.concatenate(
            [self._edge_keys(head, relation, tail), self._edge_keys(tail, inverse, head)]
        )
        begins = np.searchsorted(self._sorted, hidden, side="left")
        ends = np.searchsorted(self._sorted, hidden, side="right")
        keep = np.ones(len(self._sorted), np.bool_)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            keep[self._order[begin:end]] = False
        return keep

    def _untrue(
        self, head: np.ndarray, relation: np.ndarray, random: np.random.Generator
    ) -> np.ndarray:
        """Tails that make no known fact: int64 [queries, negatives]."""
        tails = random.integers(0, self._nodes, (len(head), self._negatives))
        for _ in range(_ROUNDS):
            true = self._true(head[:, None], relation[:, None], tails)
            if not true.any():
                return tails
            tails[true] = random.integers(0, self._nodes, int(true.sum()))
        for row in np.flatnonzero(self._true(head[:, None], relation[:, None], tails).any(1)):
            every = np.arange(self._nodes)
            free = every[~self._true(head[row], relation[row], every)]
            if len(free):  # else every entity is a true tail, and whichever is drawn is one
                tails[row] = random.choice(free, self._negatives)
        return tails

    def _true(self, head: Any, relation: Any, tail: np.ndarray) -> np.ndarray:
        keys = self._fact_keys(head, relation, tail)
        at = np.searchsorted(self._known, keys)
        found: np.ndarray = self._known[np.minimum(at, len(self._known) - 1)] == keys
        return found

    def filling(self) -> dict[str, np.ndarray]:
        """Real over slots of each batch of the epoch: [batches] each."""
        count = -(-len(self._facts) // self._queries)
        full = np.ones(count)
        queries = np.full(count, self._queries)
        queries[-1] = len(self._facts) - (count - 1) * self._queries
        return {"nodes": full, "edges": full, "graphs": queries / self._queries}

    def efficiency(self) -> dict[str, float]:
        """Real over slots, of the whole epoch."""
        return {"queries": round(float(self.filling()["graphs"].mean()), 4)}

    def state_dict(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "position": self.position,
            "seed": self._seed,
            "replicas": self._replicas,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["position"] and state["replicas"] != self._replicas:
            raise RequestError(
                f"this run stopped within an epoch shared by {state['replicas']} replicas; "
                f"it can't go on with {self._replicas}"
            )
        self.epoch, self.position, self._seed = state["epoch"], state["position"], state["seed"]
