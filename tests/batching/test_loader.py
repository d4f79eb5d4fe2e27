"""The loader: every graph once an epoch, on one replica, and the same after a resume."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from random_graphs import random_store

from zoo.batching.loader import PackLoader, groups
from zoo.batching.shape import FixedSize
from zoo.errors import RequestError

SIZES = np.random.default_rng(5).integers(1, 9, 60).tolist()
SHAPE = FixedSize(nodes=25, edges=200, graphs=7)


@pytest.fixture(scope="module")
def store():
    return random_store(np.random.default_rng(0), SIZES)


def loader(store, **changes):
    settings = {
        "store": store,
        "ids": np.arange(5, 60),
        "shape": SHAPE,
        "cutoff": 2.0,
        "targets": store.graph["y"],
        "seed": 3,
    }
    return PackLoader(**{**settings, **changes})


def graphs_of(batches):
    return [batch["graph_id"][batch["graphs_mask"]].tolist() for batch in batches]


def flat(packs):
    return [graph for pack in packs for graph in pack]


def same(left, right):
    assert left.keys() == right.keys()
    return all(torch.equal(left[k].nan_to_num(-9), right[k].nan_to_num(-9)) for k in left)


@pytest.mark.parametrize("cutoff", [None, 2.0])
def test_every_graph_is_there_once_an_epoch(store, cutoff):
    packs = loader(store, cutoff=cutoff)
    epochs = []
    for epoch in range(3):
        assert packs.epoch == epoch and packs.position == 0
        batches = list(packs)
        assert len(batches) == len(packs.plan())
        for batch in batches:
            assert {len(batch[f"{k}_mask"]) for k in ("nodes", "edges", "graphs")} == {25, 200, 7}
        epochs.append(graphs_of(batches))
        assert Counter(flat(epochs[-1])) == Counter(range(5, 60))
    assert epochs[0] != epochs[1] != epochs[2]  # packed anew
    assert graphs_of(list(loader(store, cutoff=cutoff))) == epochs[0]
    assert graphs_of(list(loader(store, cutoff=cutoff, seed=4))) != epochs[0]


def test_unshuffled_epochs_are_alike(store):
    packs = loader(store, shuffle=False)
    assert graphs_of(list(packs)) == graphs_of(list(packs))


def test_labels_are_those_of_the_graphs(store):
    for batch in loader(store):
        ids = batch["graph_id"][batch["graphs_mask"]].numpy()
        assert np.array_equal(batch["y"][batch["graphs_mask"]].numpy(), store.graph["y"][ids])
        assert torch.isnan(batch["y"][~batch["graphs_mask"]]).all()
    assert "y" not in next(iter(loader(store, targets=None)))


def test_a_resumed_loader_goes_on_where_it_stood(store):
    unbroken = loader(store)
    states, batches = [unbroken.state_dict()], []
    for _ in range(2):
        for batch in unbroken:
            batches.append(batch)
            states.append(unbroken.state_dict())
    for done in range(0, len(states), 5):
        resumed = loader(store, seed=99)  # the state brings its seed
        list(zip(resumed, range(2), strict=False))  # whatever it did before
        resumed.load_state_dict(states[done])
        rest = []
        while resumed.epoch < 2:
            rest += list(resumed)
        assert len(rest) == len(batches) - done
        assert all(same(a, b) for a, b in zip(rest, batches[done:], strict=True))


@pytest.mark.parametrize("replicas", [2, 3, 7])
def test_replicas_share_an_epoch(store, replicas):
    parts = [loader(store, rank=rank, replicas=replicas) for rank in range(replicas)]
    for _ in range(2):
        lengths = {len(part) for part in parts}
        batches = [list(part) for part in parts]
        assert {len(part) for part in batches} == lengths and len(lengths) == 1
        seen = flat(graphs for part in batches for graphs in graphs_of(part))
        assert Counter(seen) == Counter(range(5, 60))
    # The packs are those of one loader alone, dealt out.
    alone = graphs_of(list(loader(store)))
    first = [graphs_of(list(loader(store, rank=r, replicas=replicas))) for r in range(replicas)]
    dealt = [first[k % replicas][k // replicas] for k in range(len(alone))]
    assert dealt == alone


def test_more_replicas_than_packs_get_all_padding(store):
    parts = [list(loader(store, ids=np.array([1, 2]), rank=r, replicas=3)) for r in range(3)]
    assert [len(part) for part in parts] == [1, 1, 1]
    assert sorted(flat(graphs for part in parts for graphs in graphs_of(part))) == [1, 2]
    assert not parts[2][0]["graphs_mask"].any() and torch.isnan(parts[2][0]["y"]).all()


def test_no_graphs_no_batches(store):
    packs = loader(store, ids=np.arange(0))
    assert list(packs) == [] and packs.epoch == 1
    assert {name: len(values) for name, values in packs.filling().items()} == {
        "nodes": 0,
        "edges": 0,
        "graphs": 0,
    }


def test_filling_is_real_over_slots(store):
    packs = loader(store)
    filling = packs.filling()
    for number, batch in enumerate(packs):
        for kind, shares in filling.items():
            assert shares[number] == pytest.approx(batch[f"{kind}_mask"].double().mean().item())


def test_graphs_too_large_are_named_or_skipped_and_counted(store):
    shape = FixedSize(nodes=7, edges=200, graphs=7)
    large = [g for g in range(5, 60) if SIZES[g] > 6]
    with pytest.raises(RequestError, match=r"graph \d+ has [78] nodes"):
        next(iter(loader(store, shape=shape)))
    packs = loader(store, shape=shape, skip_oversize=True)
    assert packs.skipped == len(large) > 0 and packs.graphs == 55 - len(large)
    assert Counter(flat(graphs_of(list(packs)))) == Counter(set(range(5, 60)) - set(large))
    assert loader(store, skip_oversize=True).skipped == 0


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_groups_are_an_epoch_whose_end_is_seen_before_the_next_begins(store, size):
    packs = loader(store)
    whole = graphs_of(loader(store))
    found = []
    for group in groups(packs, size=size):
        assert packs.epoch == 0 and 1 <= len(group) <= size
        found += graphs_of(group)
        assert packs.position == len(found)
    assert found == whole
    assert (packs.epoch, packs.position) == (1, 0)
    assert list(groups(packs, size=size)) and packs.epoch == 2
