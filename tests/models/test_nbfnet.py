"""NBFNet is what the paper's equations say, query by query, and sees nothing of its padding."""

import pytest
import torch
from torch.nn import functional as F

from zoo.batching.queries import QueryLoader
from zoo.datasets import kg
from zoo.models.nbfnet import NBFNet, NBFNetArguments

FORMS = [
    {"message": m, "aggregation": a}
    for m in ("multiply", "add", "rotate")
    for a in ("sum", "mean", "max", "pna")
]


@pytest.fixture(scope="module")
def knowledge():
    return kg.load(name="umls", folder=kg.synthetic_folder(name="umls", seed=5, size=120))


def batch_of(knowledge):
    relations = len(knowledge.relations)
    loader = QueryLoader(
        edges=kg.edges(knowledge.graph, relations=relations),
        relations=relations,
        facts=knowledge.graph.facts,
        known=knowledge.graph.facts,
        queries=5,
        negatives=3,
    )
    return next(iter(loader))


def network(**changes):
    torch.manual_seed(0)
    arguments = NBFNetArguments(relations=6, features=8, layers=3, **changes)
    return NBFNet(arguments=arguments).double()


def by_the_equations(net, batch, query):
    """Scores of one query's own tails, node by node, edge by edge."""
    nodes = len(batch["dst_ptr"]) - 1
    q = net.query.weight[batch["relation"][query]]
    start = torch.zeros(nodes, len(q), dtype=q.dtype)
    start[batch["head"][query]] = q
    edges = [
        (s, t, d)
        for s, t, d, kept in zip(
            *(batch[n].tolist() for n in ("src", "edge_type", "dst", "keep")), strict=True
        )
        if kept
    ]
    kinds = net.arguments
    entries = torch.ones(nodes, dtype=q.dtype)
    for _, _, d in edges:
        entries[d] += 1
    scale = entries.log() / entries.log().mean()
    x = start
    for layer in net.layers:
        if kinds.by_query:
            relations = layer.relations(q).view(-1, len(q))
        else:
            relations = layer.relations.weight
        new = []
        for node in range(nodes):
            held = [start[node]]
            for s, t, d in edges:
                if d != node:
                    continue
                a, b = x[s], relations[t]
                if kinds.message == "multiply":
                    held.append(a * b)
                elif kinds.message == "add":
                    held.append(a + b)
                else:
                    product = torch.view_as_complex(a.view(-1, 2)) * torch.view_as_complex(
                        b.reshape(-1, 2)
                    )
                    held.append(torch.view_as_real(product).flatten())
            held = torch.stack(held)
            if kinds.aggregation == "pna":
                deviation = ((held**2).mean(0) - held.mean(0) ** 2).clamp(min=1e-6).sqrt()
                moments = torch.cat([held.mean(0), held.amax(0), held.amin(0), deviation])
                factors = 1, scale[node], 1 / scale[node].clamp(min=1e-2)
                reduced = torch.cat([moments * factor for factor in factors])
            else:
                reduced = {"sum": held.sum(0), "mean": held.mean(0), "max": held.amax(0)}[
                    kinds.aggregation
                ]
            new.append(layer.update(torch.cat([x[node], reduced])))
        new = torch.stack(new)
        if kinds.layer_norm:
            new = F.layer_norm(new, new.shape[1:], layer.norm.weight, layer.norm.bias)
        new = new.relu()
        x = new + x if kinds.shortcut else new
    tails = x[batch["tails"][query]]
    return net.score(net.hidden(torch.cat([tails, q.expand_as(tails)], dim=1)).relu()).squeeze(-1)


@pytest.mark.parametrize(
    "form",
    [*FORMS, {"by_query": False}, {"layer_norm": False}, {"shortcut": False}],
    ids=lambda form: "-".join(map(str, form.values())),
)
def test_it_is_what_the_equations_say(knowledge, form):
    batch, net = batch_of(knowledge), network(**form)
    with torch.no_grad():
        scores, everything = net(batch), net.all_scores(batch)
        for query in range(5):
            wanted = by_the_equations(net, batch, query)
            torch.testing.assert_close(scores[query], wanted, rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(
                everything[query, batch["tails"][query]], wanted, rtol=1e-9, atol=1e-9
            )


def test_gradients_do_not_see_edges_taken_out(knowledge):
    batch, net = batch_of(knowledge), network()
    keep = batch["keep"]
    less = {name: batch[name][keep] for name in ("src", "dst", "edge_type", "keep")}
    nodes = len(batch["dst_ptr"]) - 1
    less["dst_ptr"] = torch.searchsorted(
        less["dst"], torch.arange(nodes + 1, dtype=torch.int32)
    ).int()
    found = []
    for some in (batch, {**batch, **less}):
        net.zero_grad()
        net(some).square().sum().backward()
        found.append([p.grad.clone() for p in net.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_query_does_not_see_the_others(knowledge):
    batch, net = batch_of(knowledge), network()
    scores = net(batch)
    order = torch.tensor([3, 0, 4, 1, 2])
    turned = {**batch, **{n: batch[n][order] for n in ("head", "relation", "tails")}}
    torch.testing.assert_close(net(turned), scores[order])
    alone = {**batch, **{n: batch[n][:1] for n in ("head", "relation", "tails")}}
    torch.testing.assert_close(net(alone), scores[:1])


def test_it_knows_no_entity_by_name(knowledge):
    """Entities numbered otherwise get the same scores."""
    batch, net = batch_of(knowledge), network()
    graph, relations = knowledge.graph, len(knowledge.relations)
    number = torch.randperm(len(graph.entities), generator=torch.Generator().manual_seed(1))
    facts = graph.facts.copy()
    facts[:, 0], facts[:, 2] = number.numpy()[facts[:, 0]], number.numpy()[facts[:, 2]]
    other = kg.Graph(entities=graph.entities, facts=facts, known=facts)
    made = kg.edges(other, relations=relations)
    again = {
        **batch,
        **{n: torch.from_numpy(made[n]) for n in ("src", "dst", "edge_type", "dst_ptr")},
        "keep": torch.ones(len(made["src"]), dtype=torch.bool),
        "head": number[batch["head"]],
        "tails": number[batch["tails"]],
    }
    whole = {**batch, "keep": torch.ones_like(batch["keep"])}
    torch.testing.assert_close(net(again), net(whole))


def test_one_graph_for_the_compiler(knowledge):
    """A step is one graph of fixed shape."""
    batch, net = batch_of(knowledge), network()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True, dynamic=False)
    torch.testing.assert_close(compiled(batch), net(batch))
    compiled(batch).sum().backward()
