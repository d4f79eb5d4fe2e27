"""Each fact is asked once an epoch, hidden from the graph, and told from tails that aren't true."""

import numpy as np
import pytest
import torch

from zoo.batching.queries import QueryLoader
from zoo.datasets import kg
from zoo.errors import RequestError


@pytest.fixture(scope="module")
def knowledge():
    return kg.load(name="umls", folder=kg.synthetic_folder(name="umls", seed=5, size=150))


def loader(knowledge, **changes):
    relations = len(knowledge.relations)
    given = {
        "edges": kg.edges(knowledge.graph, relations=relations),
        "relations": relations,
        "facts": knowledge.graph.facts,
        "known": knowledge.graph.facts,
        "queries": 16,
        "negatives": 5,
        "seed": 3,
    }
    return QueryLoader(**{**given, **changes})


def as_facts(batch, relations):
    """The facts that a batch's real queries ask for, turned the right way round."""
    head, relation, tail = (
        batch[name][batch["graphs_mask"]].tolist() for name in ("head", "relation", "graph_id")
    )
    tails = batch["tails"][batch["graphs_mask"], 0].tolist()
    asked = []
    for h, r, t in zip(head, relation, tails, strict=True):
        asked.append((h, r, t) if r < relations else (t, r - relations, h))
    return asked, tail


def test_every_fact_is_asked_once_an_epoch(knowledge):
    batches = loader(knowledge)
    relations = len(knowledge.relations)
    orders = []
    for _ in range(2):
        asked, numbers = [], []
        for batch in batches:
            some, ids = as_facts(batch, relations)
            asked += some
            numbers += ids
            assert {k: tuple(v.shape) for k, v in batch.items()} == {
                **dict.fromkeys(("src", "dst", "edge_type", "keep"), (batches.shape.edges,)),
                "dst_ptr": (batches.shape.nodes + 1,),
                **dict.fromkeys(("head", "relation", "graphs_mask", "graph_id"), (16,)),
                "tails": (16, 6),
            }
        facts = [tuple(row) for row in knowledge.graph.facts.tolist()]
        assert sorted(asked) == sorted(facts)
        assert asked == [facts[i] for i in numbers]
        orders.append(numbers)
    assert orders[0] != orders[1]


def test_half_of_a_batch_asks_for_heads(knowledge):
    batch = next(iter(loader(knowledge)))
    assert (batch["relation"] >= len(knowledge.relations)).sum() == 8


@pytest.mark.parametrize("hide", ["fact", "pair"])
def test_what_a_batch_asks_is_not_in_its_graph(knowledge, hide):
    relations = len(knowledge.relations)
    for batch in loader(knowledge, hide=hide):
        asked, _ = as_facts(batch, relations)
        src, dst, kind, keep = (batch[n].tolist() for n in ("src", "dst", "edge_type", "keep"))
        pairs = {frozenset((h, t)) for h, _, t in asked}
        for s, d, k, kept in zip(src, dst, kind, keep, strict=True):
            fact = (s, k, d) if k < relations else (d, k - relations, s)
            hidden = fact in asked if hide == "fact" else frozenset((s, d)) in pairs
            assert kept == (not hidden)


def test_drawn_tails_make_no_known_fact(knowledge):
    relations = len(knowledge.relations)
    known = {tuple(q) for q in kg.both_ways(knowledge.graph.facts, relations=relations).tolist()}
    for batch in loader(knowledge):
        for h, r, tails in zip(
            batch["head"].tolist(), batch["relation"].tolist(), batch["tails"].tolist(), strict=True
        ):
            assert (h, r, tails[0]) in known
            assert not any((h, r, t) in known for t in tails[1:])


def test_tails_are_found_where_nearly_all_are_true():
    facts = np.array([[0, 0, t] for t in range(1, 50)])
    graph = kg.Graph(entities=tuple(map(str, range(51))), facts=facts, known=facts)
    batches = QueryLoader(
        edges=kg.edges(graph, relations=1),
        relations=1,
        facts=facts[:1],
        known=facts,
        queries=2,
        negatives=40,
    )
    batch = next(iter(batches))
    forward = batch["relation"] == 0
    assert set(batch["tails"][forward, 1:].flatten().tolist()) <= {0, 50}


def test_it_goes_on_where_it_stopped(knowledge):
    batches = loader(knowledge)
    whole = [b for _ in range(2) for b in batches]
    for stop in (0, 3, len(whole) // 2, len(whole) - 1):
        first = loader(knowledge)
        for _ in range(stop):
            if first.position >= len(first):
                first.epoch, first.position = first.epoch + 1, 0
            next(iter(first))
        again = loader(knowledge, seed=99)
        again.load_state_dict(first.state_dict())
        rest = []
        while again.epoch < 2:
            rest += list(again)
        assert len(rest) == len(whole) - stop
        for one, other in zip(rest, whole[stop:], strict=True):
            assert all(torch.equal(one[name], other[name]) for name in one)


def test_replicas_share_an_epoch(knowledge):
    parts = [list(loader(knowledge, rank=r, replicas=2)) for r in range(2)]
    assert len(parts[0]) == len(parts[1])
    numbers = [i for part in parts for b in part for i in as_facts(b, 3)[1]]
    assert sorted(numbers) == list(range(len(knowledge.graph.facts)))
    stopped = loader(knowledge, replicas=2)
    next(iter(stopped))
    with pytest.raises(RequestError, match="shared by 2 replicas"):
        loader(knowledge).load_state_dict(stopped.state_dict())


def test_filling(knowledge):
    batches = loader(knowledge)
    share = len(knowledge.graph.facts) / (16 * len(batches))
    assert batches.efficiency() == {"queries": pytest.approx(share, abs=1e-3)}
