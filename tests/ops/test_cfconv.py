"""The kernels of the cfconv family against their plain references."""

import pytest
import torch
from edge_lists import EdgeList, complete, directed, edge_list
from torch.testing import assert_close

from zoo.ops import cfconv_reference as reference
from zoo.ops import dispatch
from zoo.ops.cfconv import cfconv
from zoo.ops.dispatch import REFERENCES

CUTOFF, KNOTS, FEATURES = 5.0, 11, 6

CASES: dict[str, EdgeList] = {
    "molecules": complete([5, 1, 9, 2, 1, 7, 6, 8, 5, 9, 4, 6]),
    "one_large_graph": complete([17]),
    "graphs_of_one_node": complete([1, 1, 1]),
    "no_padding": complete([4, 3], padding_nodes=0, padding_edges=0),
    "no_edge_slots": complete([1, 1], padding_edges=0),
    "all_past_the_cutoff": complete([4, 4], reach=0.3, seed=2),
    "directed": directed(nodes=40, edges=150),
    "directed_dense": directed(nodes=4, edges=90),
}
far = CASES["all_past_the_cutoff"]
far.distance[: far.count] += CUTOFF


def values(case: EdgeList, *, seed: int = 0, weighted: bool, dtype=torch.float64):
    """x, grad, table, distance, weight; whatever belongs to padding is NaN."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64).to(dtype)

    x, grad = normal(case.nodes, FEATURES), normal(case.nodes, FEATURES)
    used = torch.cat([case.src[: case.count], case.dst[: case.count]])
    idle = ~torch.isin(torch.arange(case.nodes), used)
    x[idle] = grad[idle] = torch.nan
    weight = None
    if weighted:
        weight = normal(len(case.distance))
        weight[case.count :] = torch.nan
    return x, grad, normal(KNOTS, 2, FEATURES), case.distance.to(dtype), weight


def both(name: str, *args):
    return getattr(torch.ops.zoo, name)(*args), REFERENCES[f"zoo::{name}"](*args)


def assert_same(kernel, expected, tolerance=1e-12):
    assert kernel.shape == expected.shape and kernel.dtype == expected.dtype
    scale = max(1.0, float(expected.abs().max()) if expected.numel() else 0.0)
    assert_close(kernel, expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("order", range(5))
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_kernels_agree_with_the_reference(case, weighted, order):
    case = CASES[case]
    x, grad, table, distance, weight = values(case, weighted=weighted)
    for symmetric in {False, case.symmetric}:
        for transposed in (False, True):
            rest = (weight, *case.graph, CUTOFF, order, symmetric, transposed)
            assert_same(*both("cfconv", x, table, distance, *rest))
        rest = (weight, *case.graph, CUTOFF, order, symmetric, KNOTS)
        assert_same(*both("cfconv_filters", grad, x, distance, *rest))
        rest = (*case.graph, CUTOFF, order, symmetric)
        assert_same(*both("cfconv_pairs", grad, x, table, distance, *rest))


def test_the_reference_is_what_it_says():
    # an edge at a time, with the cubic written as its four polynomials
    case = CASES["directed"]
    x, grad, table, distance, weight = values(case, weighted=True)
    step = CUTOFF / (KNOTS - 1)
    out, filters = torch.zeros_like(x), torch.zeros_like(table)
    for e in range(case.count):
        if distance[e] >= CUTOFF:
            continue
        k, i, j = int(distance[e] // step), int(case.dst[e]), int(case.src[e])
        t = float(distance[e]) / step - k
        h = (2 * t**3 - 3 * t**2 + 1, (t**3 - 2 * t**2 + t) * step)
        h += (3 * t**2 - 2 * t**3, (t**3 - t**2) * step)
        w = (
            h[0] * table[k, 0]
            + h[1] * table[k, 1]
            + h[2] * table[k + 1, 0]
            + h[3] * table[k + 1, 1]
        )
        out[i] += weight[e] * x[j] * w
        for part, slot in zip(h, ((k, 0), (k, 1), (k + 1, 0), (k + 1, 1)), strict=True):
            filters[slot] += weight[e] * part * grad[i] * x[j]
    rest = (weight, *case.graph, CUTOFF, 0, False)
    assert_same(reference.cfconv(x, table, distance, *rest, False), out)
    assert_same(reference.filters(grad, x, distance, *rest, KNOTS), filters)


@pytest.mark.parametrize("weighted", [False, True])
def test_transposed_is_the_adjoint(weighted):
    case = CASES["directed"]
    x, grad, table, distance, weight = values(case, weighted=weighted)
    x, grad = x.nan_to_num(0.5), grad.nan_to_num(0.5)
    rest = (table, distance, weight, *case.graph, CUTOFF, 0, False)
    forward = (grad * torch.ops.zoo.cfconv(x, *rest, False)).sum()
    assert_close(forward, (x * torch.ops.zoo.cfconv(grad, *rest, True)).sum())


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("symmetric", [False, True])
def test_at_zero_at_knots_and_at_the_cutoff(order, symmetric):
    # value and slope are continuous, so it doesn't matter which interval a knot counts to
    case = CASES["molecules"]
    x, grad, table, _, _ = values(case, weighted=False)
    step = CUTOFF / (KNOTS - 1)
    # linspace and multiples of the step round differently: both must do
    at = torch.cat(
        [torch.linspace(0, CUTOFF, KNOTS, dtype=torch.float64), torch.arange(KNOTS + 2) * step]
    )
    distance = case.distance.clone()
    distance[: case.count] = at[case.pair % len(at)]
    rest = (*case.graph, CUTOFF, order, symmetric)
    assert_same(*both("cfconv", x, table, distance, None, *rest, False))
    assert_same(*both("cfconv_filters", grad, x, distance, None, *rest, KNOTS))
    assert_same(*both("cfconv_pairs", grad, x, table, distance, *rest))
    # exactly at a knot the filter is the table's value, or its slope
    at_knot = edge_list(
        torch.tensor([[0, 1]]).numpy(),
        nodes=2,
        distance=torch.tensor([4 * step]).double().numpy(),
        symmetric=False,
    )
    x = torch.ones(at_knot.nodes, FEATURES, dtype=torch.float64)
    rest = (None, *at_knot.graph, CUTOFF, order, False, False)
    out = torch.ops.zoo.cfconv(x, table, at_knot.distance, *rest)
    assert_same(out[1], table[4, order])


@pytest.mark.parametrize("knots", [2, 3])
def test_the_smallest_tables(knots):
    case = CASES["molecules"]
    x, grad, table, distance, _ = values(case, weighted=False)
    rest = (*case.graph, CUTOFF, 0, True)
    assert_same(*both("cfconv", x, table[:knots], distance, None, *rest, False))
    assert_same(*both("cfconv_filters", grad, x, distance, None, *rest, knots))


@pytest.mark.parametrize("weighted", [False, True])
def test_float32(weighted):
    # the reference in float64 is the truth; 1e-5 is a hundred float32 roundings
    case = CASES["molecules"]
    wide = values(case, weighted=weighted)
    x, grad, table, distance, weight = (t if t is None else t.float() for t in wide)
    true_x, true_grad, true_table, true_distance, true_weight = (
        t if t is None else t.double() for t in (x, grad, table, distance, weight)
    )
    rest = (*case.graph, CUTOFF, 0, not weighted)
    for transposed in (False, True):
        out = torch.ops.zoo.cfconv(x, table, distance, weight, *rest, transposed)
        expected = (true_x, true_table, true_distance, true_weight, *rest, transposed)
        assert out.dtype == torch.float32
        assert_same(out.double(), reference.cfconv(*expected), 1e-5)
    out = torch.ops.zoo.cfconv_filters(grad, x, distance, weight, *rest, KNOTS)
    expected = (true_grad, true_x, true_distance, true_weight, *rest, KNOTS)
    assert out.dtype == torch.float32
    assert_same(out.double(), reference.filters(*expected), 1e-5)
    out = torch.ops.zoo.cfconv_pairs(grad, x, table, distance, *rest)
    expected = (true_grad, true_x, true_table, true_distance, *rest)
    assert out.dtype == torch.float32
    assert_same(out.double(), reference.pairs(*expected), 1e-5)


def test_strided_arguments_and_wide_ids():
    case = CASES["directed"]
    x, _, table, distance, _ = values(case, weighted=False)
    graph = [t.to(torch.int64) for t in case.graph]
    strided = (x.repeat(1, 2)[:, ::2], table.transpose(0, 2).contiguous().transpose(0, 2))
    x = strided[0]
    twice = torch.stack([distance, distance], 1)[:, 0]
    assert not (x.is_contiguous() or strided[1].is_contiguous() or twice.is_contiguous())
    assert_same(*both("cfconv", x, strided[1], twice, None, *graph, CUTOFF, 0, False, False))


def test_autocast_computes_in_float32():
    case = CASES["molecules"]
    x, _, table, distance, _ = values(case, weighted=False, dtype=torch.float32)
    x = x.nan_to_num(1.0).bfloat16().requires_grad_()
    table.requires_grad_()
    names = ("src", "dst", "dst_ptr", "src_ptr", "src_perm")
    graph = dict(zip(names, case.graph, strict=True))
    with torch.autocast("cpu", torch.bfloat16):
        out = cfconv(x, table, distance, **graph, cutoff=CUTOFF, symmetric=True)
    assert out.dtype == torch.float32
    expected = cfconv(x.float(), table, distance, **graph, cutoff=CUTOFF, symmetric=True)
    assert torch.equal(out, expected)
    out.square().sum().backward()
    assert x.grad.dtype == torch.bfloat16 and x.grad.isfinite().all()
    assert table.grad.dtype == torch.float32 and table.grad.abs().sum() > 0


def test_half_precision_without_autocast():
    # no kernel: numpy has no bfloat16; three digits are what the type holds
    case = CASES["molecules"]
    x, _, table, distance, _ = values(case, weighted=False)
    half = (x.bfloat16(), table.bfloat16(), distance.bfloat16())
    rest = (None, *case.graph, CUTOFF, 0, True, False)
    out = torch.ops.zoo.cfconv(*half, *rest)
    assert out.dtype == torch.bfloat16
    assert_same(out.double(), reference.cfconv(*(t.double() for t in half), *rest), 2e-2)


def test_reference_by_request(monkeypatch):
    from zoo.ops import launcher

    case = CASES["molecules"]
    x, _, table, distance, _ = values(case, weighted=False)
    args = (x, table, distance, None, *case.graph, CUTOFF, 0, True, False)
    expected = torch.ops.zoo.cfconv(*args)

    def refuse(*_, **__):
        raise AssertionError("a kernel was launched")

    monkeypatch.setattr(launcher, "launch", refuse)
    with pytest.raises(AssertionError, match="launched"):
        torch.ops.zoo.cfconv(*args)
    monkeypatch.setattr(dispatch, "SWITCHED_OFF", True)
    names = ("src", "dst", "dst_ptr", "src_ptr", "src_perm")
    graph = dict(zip(names, case.graph, strict=True))
    assert_same(torch.ops.zoo.cfconv(*args), expected)
    assert_same(cfconv(x, table, distance, **graph, cutoff=CUTOFF, symmetric=True), expected)
