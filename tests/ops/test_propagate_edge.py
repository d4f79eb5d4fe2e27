"""Typed message passing: kernels against references, derivatives, padding, bad input."""

from __future__ import annotations

import threading

import pytest
import torch
from edge_lists import EdgeList, complete, directed
from torch.autograd import gradcheck, gradgradcheck

from zoo.ops.dispatch import REFERENCES
from zoo.ops.propagate_edge import propagate_edge

TYPES, FEATURES = 4, 6
CASES: dict[str, EdgeList] = {
    "molecules": complete([5, 1, 9, 2, 1, 7]),
    "no_padding": complete([4, 3], padding_nodes=0, padding_edges=0),
    "no_edge_slots": complete([1, 1], padding_edges=0),
    "directed": directed(nodes=40, edges=150),
}
NAMES = ("src", "dst", "dst_ptr", "src_ptr", "src_perm")


def inputs(case: EdgeList, dtype=torch.float64):
    """Two node arrays, two tables and the graph with types; what belongs to padding is NaN."""
    random = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64).to(dtype)

    nodes = [normal(case.nodes, FEATURES) for _ in range(2)]
    used = torch.cat([case.src[: case.count], case.dst[: case.count]])
    for values in nodes:
        values[~torch.isin(torch.arange(case.nodes), used)] = torch.nan
    types = torch.randint(0, TYPES, (len(case.src),), generator=random).int()
    types[case.count :] = 10**9
    return nodes, [normal(TYPES, FEATURES) for _ in range(2)], (types, *case.graph)


def of(case: EdgeList):
    (x, _), (table, _), (types, *_) = inputs(case)
    return (
        x.nan_to_num(0.7),
        table,
        {"edge_type": types, **dict(zip(NAMES, case.graph, strict=True))},
    )


@pytest.mark.parametrize("case", CASES)
def test_kernels_agree_with_the_references(case):
    (x, v), (table, w), graph = inputs(CASES[case])
    types = graph[0].clamp(max=TYPES - 1)  # torch looks at padding before it is left out
    for name, given in (
        ("edge_messages", (x, table, x, table)),
        ("edge_messages", (v, w, x, table)),
        ("edge_to_nodes", (v, x, table)),
        ("edge_to_types", (v, x, table)),
    ):
        found = getattr(torch.ops.zoo, name)(*given, *graph)
        wanted = REFERENCES[f"zoo::{name}"](*given, types, *graph[1:])
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_the_reference_is_what_it_says():
    case = CASES["directed"]
    x, table, graph = of(case)
    out = torch.zeros_like(x)
    for e in range(case.count):
        message = x[case.src[e]] + table[graph["edge_type"][e]]
        out[case.dst[e]] += message.clamp(min=0)
    torch.testing.assert_close(propagate_edge(x, table, **graph), out)


@pytest.mark.parametrize("case", ["molecules", "directed"])
def test_derivatives(case):
    x, table, graph = of(
        {"molecules": complete([3, 2, 1]), "directed": directed(nodes=4, edges=7)}[case]
    )
    x, table = x[:, :2].clone().requires_grad_(), table[:, :2].clone().requires_grad_()

    def f(x, table):
        return propagate_edge(x, table, **graph)

    gradcheck(f, (x, table))
    gradgradcheck(f, (x, table))


def test_torch_accepts_the_ops():
    x, table, graph = of(complete([3, 2]))
    x, table = x.requires_grad_(), table.requires_grad_()
    rest = tuple(graph.values())
    torch.library.opcheck(torch.ops.zoo.edge_messages, (x, table, x, table, *rest))
    torch.library.opcheck(torch.ops.zoo.edge_to_nodes, (x, x, table, *rest))
    torch.library.opcheck(torch.ops.zoo.edge_to_types, (x, x, table, *rest))


def test_bits_are_the_same_on_any_number_of_threads_and_two_may_run_at_once():
    (x, v), (table, _), graph = inputs(CASES["directed"], torch.float32)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(torch.ops.zoo.edge_to_types(v, x, table, *graph))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(results[0].nan_to_num(), r.nan_to_num()) for r in results)
    found: list[torch.Tensor] = []
    workers = [
        threading.Thread(
            target=lambda: found.append(torch.ops.zoo.edge_messages(x, table, x, table, *graph))
        )
        for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert torch.equal(found[0].nan_to_num(), found[1].nan_to_num())


def test_nan_is_passed_on_from_real_nodes():
    x, table, graph = of(CASES["molecules"])
    x[0] = torch.nan
    out = propagate_edge(x, table, **graph)
    assert out[1:5].isnan().all() and out[6:15].isfinite().all()


def test_half_precision_takes_the_reference_and_autocast_the_kernel():
    x, table, graph = of(CASES["no_padding"])
    wanted = propagate_edge(x, table, **graph)
    half = propagate_edge(x.bfloat16(), table.bfloat16(), **graph)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.double(), wanted, rtol=0.05, atol=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        assert propagate_edge(x.float(), table.float(), **graph).dtype == torch.float32


def test_bad_input_is_refused():
    x, table, graph = of(CASES["molecules"])
    count = CASES["molecules"].count
    for wrong in (-1, TYPES):
        types = graph["edge_type"].clone()
        types[count - 1] = wrong
        with pytest.raises(IndexError, match=r"type is outside 0\.\.3"):
            propagate_edge(x, table, **{**graph, "edge_type": types})
    src = graph["src"].clone()
    src[0] = 10**6
    with pytest.raises(IndexError):
        propagate_edge(x, table, **{**graph, "src": src})
    with pytest.raises(ValueError, match="tables are"):
        propagate_edge(x, table[:, :3], **graph)
    with pytest.raises(ValueError, match="mixed precisions"):
        propagate_edge(x, table.float(), **graph)
    with pytest.raises(ValueError, match="come with"):
        propagate_edge(x[:-1], table, **graph)
