"""Packing: each graph once, within the limits, with little left empty."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.batching.pack import check_fit, make_plan, oversize_error
from zoo.batching.shape import FixedSize
from zoo.errors import RequestError

# Molecules of QM9 by their number of atoms, from 3 on.
QM9_SIZES = [
    *(2, 4, 5, 12, 20, 65, 172, 483, 1053, 2189, 4027, 6758, 10216, 13824, 16969, 17442, 18146),
    *(12403, 13166, 4428, 6362, 712, 1923, 59, 356, 0, 35),
]


def qm9_like(rng, count):
    share = np.array(QM9_SIZES) / sum(QM9_SIZES)
    nodes = rng.choice(np.arange(3, 30), count, p=share)
    # Within 10 Å nearly all pairs of a molecule are neighbours.
    return nodes, (nodes * (nodes - 1) * rng.uniform(0.9, 1.0, count)).astype(int)


@given(
    counts=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 30)), max_size=60),
    nodes=st.integers(13, 40),
    edges=st.integers(30, 90),
    graphs=st.integers(2, 9),
    seed=st.integers(0, 3),
)
@settings(max_examples=150, deadline=None)
def test_each_graph_is_in_one_pack_that_holds_it(counts, nodes, edges, graphs, seed):
    n = np.array([pair[0] for pair in counts], int)
    e = np.array([pair[1] for pair in counts], int)
    shape = FixedSize(nodes=nodes, edges=edges, graphs=graphs)
    ids = np.random.default_rng(seed).permutation(len(counts))
    plan = make_plan(ids=ids, nodes=n, edges=e, shape=shape)
    packs = [plan.pack(number) for number in range(len(plan))]
    assert sorted(np.concatenate([*packs, ids[:0]])) == list(range(len(counts)))
    for pack in packs:
        assert len(pack) > 0
        assert shape.holds(nodes=int(n[pack].sum()), edges=int(e[pack].sum()), graphs=len(pack))
    assert len(plan.pack(len(plan))) == 0


def test_no_pack_but_the_last_has_room_for_the_next_graph():
    """Of the graphs looked over, none is left that would still have fitted."""
    rng = np.random.default_rng(0)
    n, e = qm9_like(rng, 400)  # all within the window
    shape = FixedSize(nodes=200, edges=4000, graphs=30)
    plan = make_plan(ids=np.arange(400), nodes=n, edges=e, shape=shape)
    for number in range(len(plan)):
        pack = plan.pack(number)
        later = np.concatenate([plan.pack(k) for k in range(number + 1, len(plan))] or [pack[:0]])
        fits = (n[later] <= 199 - n[pack].sum()) & (e[later] <= 4000 - e[pack].sum())
        assert len(pack) == 29 or not fits.any()


@pytest.mark.parametrize("graphs", [32, 100, 256])
def test_packs_of_qm9_like_molecules_are_full(graphs):
    rng = np.random.default_rng(1)
    n, e = qm9_like(rng, 20_000)
    shape = FixedSize.fit(nodes=n, edges=e, graphs=graphs)
    plan = make_plan(ids=np.arange(len(n)), nodes=n, edges=e, shape=shape)
    assert n.sum() / (len(plan) * shape.nodes) >= 0.98
    assert e.sum() / (len(plan) * shape.edges) >= 0.85
    assert len(n) / len(plan) == pytest.approx(graphs, rel=0.03)


@pytest.mark.parametrize(
    ("shape", "packs"),
    [
        # Eight graphs of 4 nodes and 6 edges: 2 a pack by each limit in turn, exactly filled.
        (FixedSize(nodes=9, edges=100, graphs=20), 4),
        (FixedSize(nodes=100, edges=12, graphs=20), 4),
        (FixedSize(nodes=100, edges=100, graphs=3), 4),
        (FixedSize(nodes=9, edges=12, graphs=3), 4),
        # One less of any, and only one fits.
        (FixedSize(nodes=8, edges=12, graphs=3), 8),
        (FixedSize(nodes=9, edges=11, graphs=3), 8),
        (FixedSize(nodes=9, edges=12, graphs=2), 8),
        # The smallest shape that holds one.
        (FixedSize(nodes=5, edges=6, graphs=2), 8),
    ],
)
def test_exact_fills(shape, packs):
    n, e = np.full(8, 4), np.full(8, 6)
    assert len(make_plan(ids=np.arange(8), nodes=n, edges=e, shape=shape)) == packs


@pytest.mark.parametrize(("nodes", "edges"), [(5, 0), (4, 7)])
def test_a_graph_that_fits_no_pack_is_named_with_the_shape_it_needs(nodes, edges):
    n, e = np.array([4, nodes, 4]), np.array([6, edges, 6])
    shape = FixedSize(nodes=5, edges=6, graphs=2)
    assert check_fit(nodes=n, edges=e, shape=shape).tolist() == [True, False, True]
    with pytest.raises(RequestError) as caught:
        make_plan(ids=np.array([2, 1, 0]), nodes=n, edges=e, shape=shape)
    message = str(caught.value)
    assert f"graph 1 has {nodes} nodes and {edges} edges" in message
    assert f"at least {nodes + 1} nodes and {edges} edges" in message
    assert 1 <= message.count("\n") + 1 <= 3


def test_the_shape_that_is_asked_for_holds_the_graph():
    error = oversize_error(nodes=7, edges=9, name="it", shape=FixedSize(nodes=4, edges=4, graphs=2))
    assert "at least 8 nodes and 9 edges" in str(error)
    assert FixedSize(nodes=8, edges=9, graphs=2).holds(nodes=7, edges=9)
    assert not FixedSize(nodes=7, edges=9, graphs=2).holds(nodes=7, edges=9)


@pytest.mark.parametrize(
    "slots", [{"nodes": 1, "edges": 1, "graphs": 2}, {"nodes": 2, "edges": 0, "graphs": 2}]
)
def test_a_shape_without_room_for_the_padding_graph_is_refused(slots):
    with pytest.raises(RequestError, match="too small"):
        FixedSize(**slots)
    with pytest.raises(RequestError, match="too small"):
        FixedSize(nodes=2, edges=1, graphs=1)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 200)), min_size=1, max_size=40),
    graphs=st.integers(1, 50),
)
@settings(max_examples=100, deadline=None)
def test_a_fitted_shape_holds_every_graph(sizes, graphs):
    n, e = (np.array(column) for column in zip(*sizes, strict=True))
    shape = FixedSize.fit(nodes=n, edges=e, graphs=graphs)
    assert check_fit(nodes=n, edges=e, shape=shape).all()
    assert shape.graphs > graphs


def test_no_graphs_make_no_shape():
    with pytest.raises(RequestError, match="no graphs"):
        FixedSize.fit(nodes=np.zeros(0, int), edges=np.zeros(0, int), graphs=4)
