"""PyG graphs in and out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from random_graphs import random_store, same_arrays
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import GCNConv

from zoo.batching.pack import fill_batch
from zoo.batching.pyg import from_pyg, to_pyg, to_pyg_list
from zoo.batching.shape import FixedSize
from zoo.batching.store import open_store, write_store
from zoo.errors import DataError, RequestError


def graph(seed, nodes=None, **more):
    g = torch.Generator().manual_seed(seed)
    nodes = nodes or int(torch.randint(2, 7, (1,), generator=g))
    edges = int(torch.randint(0, 9, (1,), generator=g))
    return Data(
        z=torch.randint(1, 9, (nodes,), generator=g),
        pos=torch.rand(nodes, 3, generator=g),
        x=torch.rand(nodes, 2, generator=g, dtype=torch.float64),
        train_mask=torch.rand(nodes, generator=g) < 0.5,
        edge_index=torch.randint(0, nodes, (2, edges), generator=g),
        edge_attr=torch.rand(edges, 3, generator=g),
        y=torch.rand(1, 4, generator=g),
        **more,
    )


def sorted_edges(data):
    """The same graph, edges by destination, then source."""
    order = np.lexsort((data.edge_index[0], data.edge_index[1]))
    data = data.clone()
    data.edge_index, data.edge_attr = data.edge_index[:, order], data.edge_attr[order]
    return data


def assert_same(left, right):
    assert set(left.keys()) == set(right.keys())
    for name in left.keys():  # noqa: SIM118 (a Data iterates over pairs)
        a, b = left[name], right[name]
        if isinstance(a, torch.Tensor):
            assert a.dtype == b.dtype and torch.equal(a, b), name
        else:
            assert a == b, name


def test_a_round_trip(tmp_path):
    graphs = [graph(seed, smiles=f"C{seed}", energy=torch.tensor([seed / 3])) for seed in range(9)]
    store = from_pyg(graphs)
    assert set(store.node) == {"z", "pos", "x", "train_mask"}
    assert set(store.edge) == {"src", "dst", "edge_attr"}
    assert set(store.graph) == {"y", "smiles", "energy"}
    assert store.graph["y"].shape == (9, 4) and store.graph["energy"].shape == (9,)
    mapped = write_store(folder=tmp_path / "s", store=store)
    for back in (to_pyg_list(store=store, ids=range(9)), to_pyg_list(store=mapped, ids=range(9))):
        for left, right in zip(back, graphs, strict=True):
            assert_same(left, sorted_edges(right))
    picked = to_pyg_list(store=store, ids=[4, 4, 1])
    assert [data.smiles for data in picked] == ["C4", "C4", "C1"]
    assert same_arrays(from_pyg(to_pyg_list(store=store, ids=range(9))), store)
    assert same_arrays(open_store(folder=tmp_path / "s"), store)


def test_a_batch_is_what_pyg_would_make():
    graphs = [graph(seed) for seed in range(6)]
    store = from_pyg(graphs)
    ids = np.array([5, 0, 2])
    batch = fill_batch(
        store=store,
        graphs=ids,
        shape=FixedSize(nodes=40, edges=60, graphs=9),
        cutoff=None,
        targets=store.graph["y"],
    )
    ours = to_pyg(batch)
    assert ours.graph_id.tolist() == ids.tolist()
    del ours.graph_id, ours._slice_dict["graph_id"]
    theirs = Batch.from_data_list([sorted_edges(graphs[k]) for k in ids])
    assert_same(ours, theirs)
    assert ours.num_graphs == 3 and ours.num_nodes == theirs.num_nodes
    for left, right in zip(ours.to_data_list(), theirs.to_data_list(), strict=True):
        assert_same(left, right)


def test_pyg_layers_take_it_and_gradients_flow():
    store = from_pyg([graph(seed) for seed in range(4)])
    shape = FixedSize(nodes=40, edges=60, graphs=9)
    batch = fill_batch(store=store, graphs=np.arange(4), shape=shape, cutoff=None)
    batch["x"].requires_grad_()
    data = to_pyg(batch)
    GCNConv(2, 5).double()(data.x, data.edge_index).sum().backward()
    assert batch["x"].grad[batch["nodes_mask"]].abs().sum() > 0
    assert not batch["x"].grad[~batch["nodes_mask"]].any()


def test_edges_of_a_cutoff_and_an_all_padding_pack():
    store = random_store(np.random.default_rng(0), [3, 4], edges=False)
    shape = FixedSize(nodes=9, edges=30, graphs=4)
    data = to_pyg(fill_batch(store=store, graphs=np.array([1]), shape=shape, cutoff=9.0))
    assert data.edge_index.shape == (2, 12) and data.num_nodes == 4 and data.num_graphs == 1
    none = to_pyg(fill_batch(store=store, graphs=np.arange(0), shape=shape, cutoff=9.0))
    assert none.num_graphs == 0 and none.num_nodes == 0 and none.edge_index.shape == (2, 0)


def test_as_many_edges_as_nodes_slots():
    """What a row is of can't be told from the length then: as in PyG, the name decides."""
    store = from_pyg([graph(0), graph(1)])
    slots = FixedSize(nodes=20, edges=20, graphs=20)
    batch = fill_batch(store=store, graphs=np.arange(2), shape=slots, cutoff=None)
    data = to_pyg(batch)
    edges = int(batch["edges_mask"].sum())
    nodes = int(batch["nodes_mask"].sum())
    assert len(data.edge_attr) == edges != nodes and len(data.x) == nodes
    assert data.graph_id.tolist() == [0, 1]


@pytest.mark.parametrize("nodes", [1, 4])
def test_levels_are_told_apart_over_all_graphs(nodes):
    """One graph alone may leave it open: a row for its one node, or for the graph?"""
    graphs = [
        Data(x=torch.arange(k), y=torch.ones(1, 2), u=torch.ones(1), num=k, ratio=k / 2)
        for k in (nodes, 1, 3)
    ]
    store = from_pyg(graphs)
    assert set(store.node) == {"x"} and set(store.graph) == {"y", "u", "num", "ratio"}
    assert store.graph["num"].tolist() == [nodes, 1, 3] and store.edge_ptr is None
    back = to_pyg_list(store=store, ids=[0])[0]
    assert back.num.tolist() == [nodes] and back.ratio.tolist() == [nodes / 2]


def test_a_triangle_has_as_many_edges_as_nodes():
    ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    data = Data(edge_index=ring, x=torch.ones(3, 1), edge_kind=torch.arange(3))
    store = from_pyg([data, data])
    assert set(store.node) == {"x"} and "edge_kind" in store.edge
    assert store.edge["src"].tolist() == [2, 0, 1] * 2  # destinations 0, 1, 2
    assert store.edge["edge_kind"].tolist() == [2, 0, 1] * 2


def test_graphs_of_bare_edges():
    data = [Data(edge_index=torch.tensor([[0], [k]]), num_nodes=5) for k in (1, 4)]
    store = from_pyg(data)
    assert store.node_ptr.tolist() == [0, 5, 10] and store.node == {}
    back = to_pyg_list(store=store, ids=[1])[0]
    assert back.num_nodes == 5 and back.edge_index.tolist() == [[0], [4]]
    shape = FixedSize(nodes=12, edges=3, graphs=3)
    batch = to_pyg(fill_batch(store=store, graphs=np.arange(2), shape=shape, cutoff=None))
    assert batch.num_nodes == 10 and batch.edge_index.tolist() == [[0, 5], [1, 9]]
    assert [graph.num_nodes for graph in batch.to_data_list()] == [5, 5]


def test_graphs_whose_attributes_pyg_cannot_count_nodes_by():
    data = [Data(charge=torch.ones(k), num_nodes=k) for k in (2, 3)]
    store = from_pyg(data)
    assert set(store.node) == {"charge"}
    assert [graph.num_nodes for graph in to_pyg_list(store=store, ids=[0, 1])] == [2, 3]
    with pytest.raises(DataError, match="graph 0 doesn't say how many nodes"):
        from_pyg([without(data[0], "num_nodes"), data[1]])


def test_an_attribute_that_pyg_would_take_for_node_ids_is_renamed():
    store = random_store(np.random.default_rng(0), [2, 3], edges=False)
    store = from_pyg(to_pyg_list(store=store, ids=[0, 1]))
    store = type(store)(**{**store.__dict__, "graph": {"index": np.array([7, 9], np.int32)}})
    batch = Batch.from_data_list(to_pyg_list(store=store, ids=[0, 1]))
    assert batch.idx.tolist() == [7, 9]


def changed(data, **attributes):
    data = data.clone()
    for name, value in attributes.items():
        data[name] = value
    return data


def without(data, name):
    data = data.clone()
    del data[name]
    return data


FIRST, SECOND = graph(0, nodes=4), graph(1, nodes=5)


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        ([], "no graphs"),
        ([Batch.from_data_list([FIRST])], "graph 0 is a batch"),
        ([HeteroData()], "graph 0 is a HeteroData"),
        ([FIRST, without(SECOND, "y")], "graph 1 has no 'y'"),
        ([without(FIRST, "y"), SECOND], "graph 0 has no 'y', and graph 1 has"),
        ([without(FIRST, "edge_index"), SECOND], "graph 0 has no 'edge_index'"),
        ([FIRST, changed(SECOND, x=torch.rand(5, 2))], "'x' has rows of float32 .* in graph 1"),
        ([FIRST, changed(SECOND, x=torch.rand(5, 3).double())], r"'x' has rows of .*\(3,\) in gr"),
        (
            [FIRST, changed(SECOND, z=torch.ones(3).long())],
            r"'z' is int64 \[3\] in graph 1 \(5 nodes, \d edges\)",
        ),
        ([FIRST, changed(SECOND, y=torch.rand(1, 3))], r"'y' is float32 \[1, 3\] in graph 1"),
        ([FIRST, changed(SECOND, y="a")], "'y' is a str in graph 1, a Tensor in graph 0"),
        ([changed(FIRST, x={"a": 1})], "'x' is a dict: a store holds"),
        ([changed(FIRST, face=torch.zeros(3, 1).long())], "'face' holds node ids"),
        ([changed(FIRST, edge_label_index=torch.zeros(2, 1))], "'edge_label_index' holds node ids"),
        ([changed(FIRST, x=torch.rand(4, 2).bfloat16())], "'x' has no plain array"),
        ([changed(FIRST, x=torch.eye(4).to_sparse())], "'x' has no plain array"),
        ([changed(FIRST, edge_index=torch.zeros(3, 2).long())], "edge_index of graph 0 is not"),
        ([Data(edge_index=torch.tensor([[0], [1]]))], "graph 0 doesn't say how many nodes"),
        ([changed(FIRST, z=torch.tensor([1, 2, 3, 2**40]))], "'z' spans"),
    ],
)
def test_what_makes_no_store_is_named(graphs, message):
    with pytest.raises(DataError, match=message):
        from_pyg(graphs)


def test_an_edge_that_leaves_its_graph_is_named():
    bad = without(changed(SECOND, edge_index=torch.tensor([[0], [5]])), "edge_attr")
    with pytest.raises(DataError, match="graph 1 has an edge from node 0 to 5, and 5 nodes"):
        from_pyg([without(FIRST, "edge_attr"), bad])


def test_graphs_that_are_not_there():
    store = from_pyg([FIRST])
    for ids in ([1], [-1]):
        with pytest.raises(RequestError, match="of a store of 1"):
            to_pyg_list(store=store, ids=ids)


def test_a_tensor_that_is_no_row_of_anything():
    shape = FixedSize(nodes=9, edges=30, graphs=4)
    batch = fill_batch(store=from_pyg([FIRST]), graphs=np.array([0]), shape=shape, cutoff=None)
    with pytest.raises(DataError, match="'odd' has 5 rows"):
        to_pyg({**batch, "odd": torch.zeros(5)})
