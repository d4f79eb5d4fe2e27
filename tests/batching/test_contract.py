"""What a batch holds, against graphs put together one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_store

from zoo.batching.pack import fill_batch
from zoo.batching.shape import FixedSize
from zoo.batching.store import make_store
from zoo.errors import DataError, RequestError


def brute_edges(store, graphs, cutoff):
    """(src, dst, attribute) of the pack, sorted by destination, then source."""
    found, shift = [], 0
    for graph in graphs:
        begin, end = store.node_ptr[graph], store.node_ptr[graph + 1]
        if cutoff is None:
            for e in range(store.edge_ptr[graph], store.edge_ptr[graph + 1]):
                ends = int(store.edge["src"][e]) + shift, int(store.edge["dst"][e]) + shift
                found.append((*ends, int(store.edge["edge_number"][e])))
        else:
            pos = store.node["pos"][begin:end].astype(np.float64)
            for i in range(end - begin):
                for j in range(end - begin):
                    if i != j and np.linalg.norm(pos[i] - pos[j]) < cutoff:
                        found.append((j + shift, i + shift, 0))
        shift += end - begin
    return sorted(found, key=lambda edge: (edge[1], edge[0]))


def check_contract(batch, *, store, graphs, shape, cutoff):
    """Everything that the ops and the models rely on."""
    N, E, G = shape.nodes, shape.edges, shape.graphs
    b = {name: value.numpy() for name, value in batch.items()}
    edges = brute_edges(store, graphs, cutoff)
    nodes = int(np.diff(store.node_ptr)[graphs].sum())
    kinds = {
        "int32": (
            *("batch", "node_ptr", "graph_id", "src", "dst", "src_perm"),
            "dst_ptr",
            "src_ptr",
        ),
        "bool": ("nodes_mask", "edges_mask", "graphs_mask"),
    }
    for kind, names in kinds.items():
        assert {str(b[name].dtype) for name in names} == {kind}
    lengths = {"batch": N, "nodes_mask": N, "graphs_mask": G, "graph_id": G, "node_ptr": G + 1}
    lengths |= dict.fromkeys(("src", "dst", "src_perm", "edges_mask"), E)
    lengths |= dict.fromkeys(("dst_ptr", "src_ptr"), N + 1)
    assert {name: len(b[name]) for name in lengths} == lengths
    # Real first, padding last, and always a padding graph with a node.
    for name, real in (("nodes", nodes), ("edges", len(edges)), ("graphs", len(graphs))):
        assert b[f"{name}_mask"].tolist() == [k < real for k in range(len(b[f"{name}_mask"]))]
    assert not b["nodes_mask"].all() and not b["graphs_mask"].all()
    # Nodes.
    sizes = np.diff(store.node_ptr)[graphs]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    assert b["node_ptr"].tolist() == [*starts, *[N] * (G - len(graphs))]
    owner = np.repeat(np.arange(len(graphs)), sizes)
    assert b["batch"].tolist() == [*owner, *[len(graphs)] * (N - nodes)]
    assert b["graph_id"].tolist() == [*graphs, *[-1] * (G - len(graphs))]
    rows = np.concatenate(
        [np.arange(store.node_ptr[g], store.node_ptr[g + 1]) for g in graphs] + [np.arange(0)]
    )
    for name, values in store.node.items():
        assert np.array_equal(b[name][:nodes], values[rows])
        assert not b[name][nodes:].any()
    # Edges, and their row pointer, which covers real ones only.
    assert list(zip(b["src"], b["dst"], strict=True))[: len(edges)] == [e[:2] for e in edges]
    for row in range(N):
        into = [k for k, edge in enumerate(edges) if edge[1] == row]
        assert list(range(b["dst_ptr"][row], b["dst_ptr"][row + 1])) == into
    assert b["dst_ptr"][0] == 0 and b["dst_ptr"][N] == len(edges)
    # The transpose: the same edges by source, then destination.
    assert sorted(b["src_perm"]) == list(range(E))
    for row in range(N):
        out = [k for k, edge in enumerate(edges) if edge[0] == row]
        assert b["src_perm"][b["src_ptr"][row] : b["src_ptr"][row + 1]].tolist() == out
    assert b["src_ptr"][0] == 0 and b["src_ptr"][N] == len(edges)
    # Padding edges join padding nodes alone, evenly.
    padding = b["dst"][len(edges) :]
    assert np.array_equal(padding, b["src"][len(edges) :])
    if len(padding):
        assert padding.min() >= nodes and padding.max() < N
        each = np.bincount(padding - nodes, minlength=N - nodes)
        assert each.max() - each.min() <= 1
    if cutoff is None:
        assert b["edge_number"][: len(edges)].tolist() == [edge[2] for edge in edges]
        assert not b["edge_number"][len(edges) :].any()


@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=6),
    room=st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 3)),
    density=st.sampled_from([0.0, 0.3, 1.0]),
    cutoff=st.sampled_from([None, 0.5, 2.0, 20.0]),
    seed=st.integers(0, 5),
)
@settings(max_examples=120, deadline=None)
def test_the_contract(sizes, room, density, cutoff, seed):
    rng = np.random.default_rng(seed)
    store = random_store(rng, sizes, density=density)
    graphs = rng.permutation(len(sizes))[: rng.integers(0, len(sizes) + 1)]
    # `room` of zero is an exact fill: of nodes, of edges, of graphs, of any two, of all.
    shape = FixedSize(
        nodes=max(2, int(np.diff(store.node_ptr)[graphs].sum()) + 1 + room[0]),
        edges=max(1, len(brute_edges(store, graphs, cutoff)) + room[1]),
        graphs=max(2, len(graphs) + 1 + room[2]),
    )
    batch = fill_batch(store=store, graphs=graphs, shape=shape, cutoff=cutoff)
    check_contract(batch, store=store, graphs=graphs, shape=shape, cutoff=cutoff)


@pytest.mark.parametrize("cutoff", [None, 20.0])
def test_full_nodes_with_free_edges(cutoff):
    """The one padding node takes every padding edge: none lands on a real one or beyond the end."""
    store = random_store(np.random.default_rng(0), [3, 4], density=1.0)
    shape = FixedSize(nodes=8, edges=40, graphs=3)
    batch = fill_batch(store=store, graphs=np.array([0, 1]), shape=shape, cutoff=cutoff)
    real = 25 if cutoff is None else 18
    assert batch["nodes_mask"].sum() == 7 and batch["edges_mask"].sum() == real
    assert set(batch["dst"][real:].tolist()) == set(batch["src"][real:].tolist()) == {7}
    assert batch["batch"].tolist() == [0] * 3 + [1] * 4 + [2]


def test_graphs_of_one_size_are_complete_or_not_each_for_itself():
    rng = np.random.default_rng(0)
    near = [rng.normal(size=(4, 3)) * 0.1 for _ in range(5)]
    for number in (0, 2):
        near[number][1] += 50.0
    near[3][2, 1] = np.nan
    pos = np.concatenate([*near, rng.normal(size=(2, 3))]).astype(np.float32)
    ptr = np.array([0, 4, 8, 12, 16, 20, 22])
    store = make_store(node_ptr=ptr, node={"pos": pos}, graph={})
    shape = FixedSize(nodes=23, edges=80, graphs=8)
    batch = fill_batch(store=store, graphs=np.arange(6), shape=shape, cutoff=9.0)
    edges = np.diff(batch["dst_ptr"].numpy()[ptr]).tolist()
    assert edges == [6, 12, 6, 6, 12, 2]
    real = sum(edges)
    src, dst = batch["src"][:real].numpy(), batch["dst"][:real].numpy()
    assert np.array_equal(np.lexsort((src, dst)), np.arange(real))
    assert np.array_equal(batch["src_perm"][:real].numpy(), np.lexsort((dst, src)))


def test_all_padding():
    store = random_store(np.random.default_rng(0), [3, 4])
    shape = FixedSize(nodes=4, edges=9, graphs=3)
    for cutoff in (None, 2.0):
        batch = fill_batch(
            store=store,
            graphs=np.zeros(0, np.int64),
            shape=shape,
            cutoff=cutoff,
            targets=store.graph["y"],
        )
        check_contract(batch, store=store, graphs=[], shape=shape, cutoff=cutoff)
        assert torch.isnan(batch["y"]).all() and batch["y"].shape == (3, 2)


def test_targets_follow_their_graphs():
    store = random_store(np.random.default_rng(0), [1, 2, 3])
    targets = store.graph["y"].astype(np.float32)
    shape = FixedSize(nodes=8, edges=20, graphs=4)
    graphs = np.array([2, 0])
    batch = fill_batch(store=store, graphs=graphs, shape=shape, cutoff=None, targets=targets)
    assert batch["y"].dtype == torch.float32
    assert np.array_equal(batch["y"][:2].numpy(), targets[[2, 0]])
    assert torch.isnan(batch["y"][2:]).all()


@given(
    points=st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=12, unique=True),
    step=st.sampled_from([0.1, 0.3, 0.7, 1.0]),
    steps=st.sampled_from([1, 2**0.5, 3**0.5, 2, 5**0.5, 3, 4]),
)
@settings(max_examples=100, deadline=None)
def test_the_count_that_packing_knows_is_the_number_of_edges_found(points, step, steps):
    """Also where distances equal the cutoff up to rounding."""
    pos = np.array(points, np.float32) * np.float32(step)
    ptr = np.array([0, len(points)])
    store = make_store(node_ptr=ptr, node={"pos": pos}, graph={})
    cutoff = step * steps
    count = int(store.edges_per_graph(cutoff=cutoff)[0])
    shape = FixedSize(nodes=len(points) + 1, edges=max(count, 1), graphs=2)
    batch = fill_batch(store=store, graphs=np.array([0]), shape=shape, cutoff=cutoff)
    assert int(batch["edges_mask"].sum()) == count


def test_more_than_fits_is_refused():
    store = random_store(np.random.default_rng(0), [3, 4], density=1.0)

    def fill(ids, cutoff=None, **slots):
        shape = FixedSize(**{"nodes": 8, "edges": 25, "graphs": 3} | slots)
        return fill_batch(store=store, graphs=np.array(ids), shape=shape, cutoff=cutoff)

    assert fill([0, 1])["edges_mask"].all()
    for slots in ({"nodes": 7}, {"graphs": 2}):
        with pytest.raises(DataError, match="2 graphs with 7 nodes don't fit"):
            fill([0, 1], **slots)
    for cutoff, edges in ((None, 24), (20.0, 17)):
        with pytest.raises(DataError, match=f"don't fit the {edges} edge slots"):
            fill([0, 1], cutoff, edges=edges)
    for ids in ([0, 2], [-1]):
        with pytest.raises(RequestError, match="of a store of 2"):
            fill(ids)


@pytest.mark.parametrize(
    ("name", "values"),
    [("src", [3, 0, 1]), ("src", [-1, 0, 1]), ("dst", [0, 3, 1]), ("dst", [1, 0, 2])],
)
def test_damaged_edges_are_seen_before_they_are_followed(name, values):
    """A large store's edges are not read when it is opened."""
    good = make_store(
        node_ptr=np.array([0, 3]),
        edge_ptr=np.array([0, 3]),
        node={},
        graph={},
        edge={"src": np.array([1, 0, 1]), "dst": np.array([0, 1, 2])},
    )
    shape = FixedSize(nodes=5, edges=4, graphs=2)
    fill_batch(store=good, graphs=np.array([0]), shape=shape, cutoff=None)
    bad = replace(good, edge={**good.edge, name: np.array(values, np.int32)})
    with pytest.raises(DataError, match="edges of the store .* are damaged"):
        fill_batch(store=bad, graphs=np.array([0]), shape=shape, cutoff=None)


def test_a_store_without_what_is_asked_for():
    bare = make_store(node_ptr=np.array([0, 1]), node={"z": np.ones(1, np.int8)}, graph={})
    shape = FixedSize(nodes=2, edges=1, graphs=2)
    for cutoff, message in ((None, "no edges, and no cutoff"), (1.0, "no positions")):
        with pytest.raises(DataError, match=message):
            fill_batch(store=bare, graphs=np.array([0]), shape=shape, cutoff=cutoff)


def test_labels_of_nodes_are_not_hidden_by_targets():
    store = make_store(
        node_ptr=np.array([0, 1]),
        node={"y": np.ones(1), "pos": np.zeros((1, 3))},
        graph={},
    )
    shape = FixedSize(nodes=3, edges=1, graphs=2)
    graphs = np.array([0])
    batch = fill_batch(store=store, graphs=graphs, shape=shape, cutoff=1.0)
    assert batch["y"].tolist() == [1.0, 0.0, 0.0]
    with pytest.raises(DataError, match="targets would hide them"):
        fill_batch(store=store, graphs=graphs, shape=shape, cutoff=1.0, targets=np.ones((1, 1)))


def test_integers_arrive_as_int32_and_others_as_they_are():
    node = {
        "a": np.arange(2, dtype=np.uint8),
        "b": np.arange(2),
        "c": np.array([True, False]),
        "d": np.ones((2, 2, 3), np.float32),
        "e": np.zeros((2, 0)),
    }
    store = make_store(
        node_ptr=np.array([0, 2]),
        edge_ptr=np.array([0, 1]),
        node=node,
        graph={},
        edge={"src": np.array([0]), "dst": np.array([1]), "weight": np.array([2.5])},
    )
    shape = FixedSize(nodes=4, edges=3, graphs=2)
    batch = fill_batch(store=store, graphs=np.array([0]), shape=shape, cutoff=None)
    assert {name: batch[name].dtype for name in node} == {
        "a": torch.int32,
        "b": torch.int32,
        "c": torch.bool,
        "d": torch.float32,
        "e": torch.float64,
    }
    assert batch["d"].shape == (4, 2, 3) and batch["e"].shape == (4, 0)
    assert batch["weight"].tolist() == [2.5, 0, 0]
