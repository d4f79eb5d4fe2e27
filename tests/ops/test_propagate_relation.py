"""Kernel and reference agree on every message and reduction; an edge taken out is as none."""

import pytest
import torch

from zoo.ops import dispatch
from zoo.ops import propagate_relation as op
from zoo.ops import propagate_relation_reference as reference
from zoo.ops.propagate_relation import propagate_relation

EVERY = [(m, r) for m in op.MESSAGES for r in op.REDUCTIONS]
every_form = pytest.mark.parametrize(("message", "reduce"), EVERY)


def draw(*, nodes=20, edges=90, relations=7, queries=5, width=6, padding=4, seed=0):
    """(x, relations, start), the graph, and which edges are kept; the padding's ids are wild."""
    random = torch.Generator().manual_seed(seed)
    dst = torch.sort(torch.randint(0, nodes, (edges,), generator=random))[0]
    src = torch.randint(0, nodes, (edges,), generator=random)
    types = torch.randint(0, relations, (edges,), generator=random)
    ptr = torch.searchsorted(dst, torch.arange(nodes + 1))
    wild = torch.zeros(padding, dtype=torch.int64)
    graph = {
        "edge_type": torch.cat([types, wild]).int(),
        "src": torch.cat([src, wild]).int(),
        "dst": torch.cat([dst, wild]).int(),
        "dst_ptr": ptr.int(),
    }
    shapes = (nodes, queries, width), (relations, queries, width), (nodes, queries, width)
    values = [torch.randn(s, generator=random, dtype=torch.float64) for s in shapes]
    keep = torch.rand(edges + padding, generator=random) > 0.2
    return [v.requires_grad_() for v in values], graph, keep


def plain(values, graph, keep, message, reduce):
    order = (graph[name] for name in ("src", "dst", "dst_ptr"))
    return reference.propagate_relation(*values, graph["edge_type"], keep, *order, message, reduce)


def with_gradients(out, values, *, seed=1):
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed)).to(out)
    return out, *torch.autograd.grad((out * weight).sum(), values)


def assert_close(found, wanted, tolerance=1e-11):
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@every_form
@pytest.mark.parametrize(
    "size",
    [
        {},
        {"queries": 1, "width": 2},
        {"queries": 3, "width": 50},  # blocks of columns end within a query
        {"queries": 17, "width": 32, "nodes": 40, "edges": 300},  # more than one chunk, and block
        {"nodes": 6, "edges": 0},
        {"nodes": 1, "edges": 9, "padding": 0},
    ],
)
def test_kernel_and_reference_agree(size, message, reduce):
    values, graph, keep = draw(**size)
    out = propagate_relation(*values, **graph, keep=keep, message=message, reduce=reduce)
    wanted = plain(values, graph, keep, message, reduce)
    assert_close(with_gradients(out, values), with_gradients(wanted, values))


@every_form
def test_the_plain_form_by_request(monkeypatch, message, reduce):
    values, graph, keep = draw()
    how = {"keep": keep, "message": message, "reduce": reduce}
    ours = with_gradients(propagate_relation(*values, **graph, **how), values)
    monkeypatch.setattr(dispatch, "SWITCHED_OFF", True)
    assert_close(with_gradients(propagate_relation(*values, **graph, **how), values), ours)


@every_form
def test_gradients_are_those_of_finite_differences(message, reduce):
    values, graph, keep = draw(nodes=5, edges=12, queries=2, width=4, relations=3)

    def function(*values):
        return propagate_relation(*values, **graph, keep=keep, message=message, reduce=reduce)

    assert torch.autograd.gradcheck(function, values, eps=1e-7, atol=1e-5)


@every_form
def test_an_edge_taken_out_is_as_if_it_were_not_there(message, reduce):
    values, graph, keep = draw()
    real = keep.clone()
    real[graph["dst_ptr"][-1] :] = False
    fewer = {name: graph[name][real] for name in ("edge_type", "src", "dst")}
    fewer["dst_ptr"] = torch.searchsorted(fewer["dst"], torch.arange(21, dtype=torch.int32)).int()
    how = {"message": message, "reduce": reduce}
    ours = with_gradients(propagate_relation(*values, **graph, keep=keep, **how), values)
    assert_close(ours, with_gradients(propagate_relation(*values, **fewer, **how), values))


@every_form
def test_the_same_bits_on_any_number_of_threads(message, reduce):
    values, graph, keep = draw(queries=20, width=32)
    values = [v.detach().float().requires_grad_() for v in values]
    threads = torch.get_num_threads()
    found = []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            out = propagate_relation(*values, **graph, keep=keep, message=message, reduce=reduce)
            found.append(with_gradients(out, values))
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@every_form
def test_nan_shows_in_its_own_query_alone(message, reduce):
    values, graph, _ = draw()
    x = values[0].detach().clone()
    x[3, 2, 1] = torch.nan
    out = propagate_relation(x, *values[1:], **graph, message=message, reduce=reduce)
    wrong = torch.isnan(out).any(-1)
    reached = graph["dst"][: graph["dst_ptr"][-1]][graph["src"][: graph["dst_ptr"][-1]] == 3]
    assert set(wrong[:, 2].nonzero().flatten().tolist()) == set(reached.tolist())
    assert not wrong[:, [0, 1, 3, 4]].any()


def test_equal_messages_send_the_gradient_to_the_first():
    x = torch.zeros(3, 1, 2, dtype=torch.float64, requires_grad=True)
    relations = torch.ones(1, 1, 2, dtype=torch.float64)
    start = torch.full((3, 1, 2), -1.0, dtype=torch.float64)
    graph = {"edge_type": [0, 0], "src": [1, 2], "dst": [0, 0], "dst_ptr": [0, 2, 2, 2]}
    graph = {name: torch.tensor(ids, dtype=torch.int32) for name, ids in graph.items()}
    propagate_relation(x, relations, start, **graph, reduce="max").sum().backward()
    assert x.grad[:, 0, 0].tolist() == [0, 1, 0]


def test_opcheck():
    values, graph, keep = draw(queries=2)
    order = [graph[name] for name in ("edge_type", "src", "dst", "dst_ptr")]
    order.insert(1, keep)
    for message, reduce in EVERY:
        torch.library.opcheck(
            torch.ops.zoo.propagate_relation.default,
            (*values, *order, message, reduce),
            test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
        )


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"edge_type": 7}, IndexError, "relation is outside 0..6"),
        ({"src": 20}, IndexError, "outside 0..19"),
        ({"dst": -1}, IndexError, "outside 0..19"),
        ({"dst_ptr": 400}, IndexError, "dst_ptr doesn't rise"),
    ],
)
def test_ids_out_of_range(change, error, words):
    values, graph, _ = draw()
    ((name, value),) = change.items()
    graph[name][3] = value
    with pytest.raises(error, match=words):
        propagate_relation(*values, **graph)


def test_what_does_not_fit():
    values, graph, keep = draw()
    x, relations, start = values
    with pytest.raises(ValueError, match="not \\[N, B, D\\]"):
        propagate_relation(x, relations[:, :3], start, **graph)
    with pytest.raises(ValueError, match="mixed precisions"):
        propagate_relation(x.float(), relations, start, **graph)
    with pytest.raises(ValueError, match="not one of sum, max, moments"):
        propagate_relation(*values, **graph, reduce="mode")
    with pytest.raises(ValueError, match="not one of multiply"):
        propagate_relation(*values, **graph, message="divide")
    with pytest.raises(ValueError, match="not all \\[E\\]"):
        propagate_relation(*values, **graph, keep=keep[1:])
    with pytest.raises(ValueError, match="int32"):
        propagate_relation(*values, **{**graph, "src": graph["src"].long()})
    odd = [v[..., :5] for v in values]
    with pytest.raises(ValueError, match="pairs"):
        propagate_relation(*odd, **graph, message="rotate")
