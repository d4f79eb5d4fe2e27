"""What the training loop asks of a loader, and the loader of packed graphs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Protocol

import numpy as np
import torch

from zoo.batching.pack import Batch, Plan, check_fit, fill_batch, make_plan
from zoo.batching.shape import FixedSize
from zoo.batching.store import Store
from zoo.errors import RequestError


class Loader(Protocol):
    """An endless-epochs source of fixed-shape batches, whatever they hold.

    Iterating yields the rest of the current epoch for this replica, then moves to the next one. All
    replicas yield the same number of batches (the last ones may be all padding).
    """

    shape: FixedSize
    epoch: int
    position: int

    def __iter__(self) -> Iterator[Batch]: ...

    def __len__(self) -> int: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def groups(loader: Loader, *, size: int) -> Iterator[list[Batch]]:
    """The rest of the epoch, `size` batches at a time; the last group may be smaller.

    The loader moves to the next epoch when it is asked for what comes after the last group, not
    before: until then its position says that the epoch is done.
    """
    batches = iter(loader)
    while left := len(loader) - loader.position:
        yield list(islice(batches, min(size, left)))
    next(batches, None)


class PackLoader:
    """Packs of graphs from a flat store, shuffled by seed and epoch.

    `ids` are the store indices of the split, `targets` [graphs of the store, T] its labels (NaN =
    unknown). Each replica draws every `replicas`-th pack, so every real graph appears exactly once
    an epoch on exactly one replica. `skip_oversize` leaves out graphs that fit no pack and counts
    them in `skipped`; otherwise they are a RequestError. With `draws` a batch also holds seed int32
    [1], another one for each pack of each epoch: what dropout draws from.
    """

    def __init__(
        self,
        *,
        store: Store,
        ids: np.ndarray,
        shape: FixedSize,
        cutoff: float | None,
        targets: np.ndarray | None = None,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        replicas: int = 1,
        skip_oversize: bool = False,
        draws: bool = False,
    ) -> None:
        self.shape = shape
        self.epoch = 0
        self.position = 0
        self._store, self._cutoff, self._targets = store, cutoff, targets
        self._seed, self._shuffle = seed, shuffle
        self._rank, self._replicas, self._draws = rank, replicas, draws
        self._nodes = store.nodes_per_graph()
        self._edges = store.edges_per_graph(cutoff=cutoff)
        self.skipped = 0
        self._ids = np.asarray(ids, np.int64)
        if skip_oversize:
            fits = check_fit(
                nodes=self._nodes[self._ids],
                edges=self._edges[self._ids],
                shape=shape,
            )
            self.skipped = int((~fits).sum())
            self._ids = self._ids[fits]
        self._plan: tuple[int, Plan] | None = None

    @property
    def graphs(self) -> int:
        """Real graphs of one epoch, over all replicas."""
        return len(self._ids)

    def plan(self) -> Plan:
        """The packs of the current epoch, over all replicas."""
        if self._plan is None or self._plan[0] != self.epoch:
            ids = self._ids
            if self._shuffle:
                ids = np.random.default_rng((self._seed, self.epoch)).permutation(ids)
            plan = make_plan(ids=ids, nodes=self._nodes, edges=self._edges, shape=self.shape)
            self._plan = (self.epoch, plan)
        return self._plan[1]

    def __len__(self) -> int:
        return -(-len(self.plan()) // self._replicas)

    def __iter__(self) -> Iterator[Batch]:
        while self.position < len(self):
            number = self.position * self._replicas + self._rank
            self.position += 1
            yield self._pack(number)
        self.epoch += 1
        self.position = 0

    def example(self) -> Batch:
        """The first pack of the epoch, for those who compile."""
        return self._pack(0)

    def _pack(self, number: int) -> Batch:
        batch = self.batch(self.plan().pack(number))
        if self._draws:
            state = np.random.SeedSequence((self._seed, self.epoch, number)).generate_state(1)
            batch["seed"] = torch.from_numpy((state >> 1).astype(np.int32))
        return batch

    def batch(self, graphs: np.ndarray) -> Batch:
        """The batch that holds these graphs of the store."""
        return fill_batch(
            store=self._store,
            graphs=graphs,
            shape=self.shape,
            cutoff=self._cutoff,
            targets=self._targets,
        )

    def filling(self) -> dict[str, np.ndarray]:
        """Real over slots of each pack of the epoch, for nodes, edges and graphs: [packs] each."""
        plan = self.plan()
        starts = plan.ptr[:-1]
        return {
            "nodes": np.add.reduceat(self._nodes[plan.graphs], starts) / self.shape.nodes,
            "edges": np.add.reduceat(self._edges[plan.graphs], starts) / self.shape.edges,
            "graphs": np.diff(plan.ptr) / self.shape.graphs,
        }

    def efficiency(self) -> dict[str, float]:
        """Real over slots, of the whole epoch."""
        return {k: round(float(v.mean()), 4) for k, v in self.filling().items() if k != "graphs"}

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
        self._plan = None
