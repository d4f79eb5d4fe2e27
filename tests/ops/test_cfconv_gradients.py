"""Derivatives of the cfconv family: by finite differences, and as torch's own checks want them."""

import pytest
import torch
from edge_lists import EdgeList, complete, directed
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from zoo.ops import cfconv_reference as reference
from zoo.ops.cfconv import cfconv

CUTOFF, KNOTS, FEATURES = 5.0, 6, 2
# Symmetric molecules take the halved kernels, a single one the fallback, a directed graph neither.
CASES: dict[str, EdgeList] = {
    "molecules": complete([3, 2, 1, 3, 2, 2, 3, 2]),
    "one_molecule": complete([4]),
    "directed": directed(nodes=4, edges=7),
}
NAMES = ("src", "dst", "dst_ptr", "src_ptr", "src_perm")


def inputs(case: EdgeList, *, seed: int = 0):
    """x, grad, table and one length per pair of nodes (float64, requiring gradients)."""
    random = torch.Generator().manual_seed(seed)
    shapes = ((case.nodes, FEATURES), (case.nodes, FEATURES), (KNOTS, 2, FEATURES))
    x, grad, table = (torch.randn(s, generator=random, dtype=torch.float64) for s in shapes)
    lengths = torch.zeros(int(case.pair.max()) + 1, dtype=torch.float64)
    lengths[case.pair] = case.distance[: case.count]
    step = CUTOFF / (KNOTS - 1)
    # second derivatives jump at knots, so finite differences must not straddle one
    assert ((lengths / step).frac() - 0.5).abs().max() < 0.499
    return [t.requires_grad_() for t in (x, grad, table, lengths)]


def spread(case: EdgeList, lengths: torch.Tensor) -> torch.Tensor:
    """Each edge's distance from its pair's; NaN in padding."""
    padding = case.distance[case.count :]
    return torch.cat([lengths.index_select(0, case.pair), padding])


def convolve(case: EdgeList):
    def function(x, table, lengths):
        graph = dict(zip(NAMES, case.graph, strict=True))
        distance = spread(case, lengths)
        return cfconv(x, table, distance, **graph, cutoff=CUTOFF, symmetric=case.symmetric)

    return function


@pytest.mark.parametrize("case", CASES)
def test_first_and_second_derivatives(case):
    case = CASES[case]
    x, _, table, lengths = inputs(case)
    gradcheck(convolve(case), (x, table, lengths))
    gradgradcheck(convolve(case), (x, table, lengths))


def weighted_ops(case: EdgeList):
    """Each op with a weight per edge, as they appear inside second and third derivatives."""
    rest = (*case.graph, CUTOFF)

    def conv(x, table, lengths, weight, transposed):
        args = (x, table, spread(case, lengths), weight, *rest, 1, case.symmetric, transposed)
        return torch.ops.zoo.cfconv(*args)

    def filters(grad, x, lengths, weight):
        args = (grad, x, spread(case, lengths), weight, *rest, 0, case.symmetric, KNOTS)
        return torch.ops.zoo.cfconv_filters(*args)

    def pairs(grad, x, table, lengths):
        args = (grad, x, table, spread(case, lengths), *rest, 1, case.symmetric)
        return torch.ops.zoo.cfconv_pairs(*args)

    return conv, filters, pairs


@pytest.mark.parametrize("case", CASES)
def test_derivatives_of_the_backward_ops(case):
    case = CASES[case]
    x, grad, table, lengths = inputs(case)
    random = torch.Generator().manual_seed(1)
    weight = torch.randn(len(case.distance), generator=random, dtype=torch.float64)
    weight.requires_grad_()
    conv, filters, pairs = weighted_ops(case)
    for transposed in (False, True):
        gradcheck(lambda *a, t=transposed: conv(*a, t), (x, table, lengths, weight))
    gradcheck(filters, (grad, x, lengths, weight))
    gradcheck(pairs, (grad, x, table, lengths))
    gradgradcheck(filters, (grad, x, lengths, weight))
    gradgradcheck(pairs, (grad, x, table, lengths))


def test_third_derivatives_equal_the_references():
    case = CASES["molecules"]

    def third(function):
        x, grad, table, lengths = inputs(case)
        value = (function(x, table, spread(case, lengths)) * grad).sum()
        for _ in range(3):
            (slope,) = torch.autograd.grad(value, lengths, create_graph=True)
            value = (slope**2).sum()
        return torch.autograd.grad(value, (x, table, grad))

    def kernel(x, table, distance):
        graph = dict(zip(NAMES, case.graph, strict=True))
        return cfconv(x, table, distance, **graph, cutoff=CUTOFF, symmetric=True)

    def plain(x, table, distance):
        rest = (None, *case.graph, CUTOFF, 0, True, False)
        return reference.cfconv(x, table, distance, *rest)

    for ours, theirs in zip(third(kernel), third(plain), strict=True):
        assert ours.abs().sum() > 0
        assert_close(ours, theirs, rtol=1e-10, atol=1e-10 * float(theirs.abs().max()))


@pytest.mark.parametrize("case", ["molecules", "directed"])
@pytest.mark.parametrize("weighted", [False, True])
def test_opcheck(case, weighted):
    case = CASES[case]
    x, grad, table, lengths = inputs(case)
    distance = spread(case, lengths).detach().nan_to_num(1.0).requires_grad_()
    weight = torch.ones_like(distance).requires_grad_() if weighted else None
    # one distance per edge is free here, so symmetry can't be promised
    rest = (*case.graph, CUTOFF, 0, False)
    checks = {
        "cfconv": (x, table, distance, weight, *rest, False),
        "cfconv_filters": (grad, x, distance, weight, *rest, KNOTS),
        "cfconv_pairs": (grad, x, table, distance, *rest),
    }
    for name, args in checks.items():
        torch.library.opcheck(getattr(torch.ops.zoo, name).default, args)


def test_gradients_are_only_computed_where_asked(monkeypatch):
    from zoo.ops import cfconv_kernel, launcher

    case, launch = CASES["molecules"], launcher.launch
    x, _, table, lengths = inputs(case)

    def watched(kernel, *args, **options):
        assert kernel is not cfconv_kernel.pairs, "distances were differentiated"
        launch(kernel, *args, **options)

    monkeypatch.setattr(launcher, "launch", watched)
    convolve(case)(x, table, lengths.detach()).sum().backward()
    with pytest.raises(AssertionError, match="distances"):
        convolve(case)(x, table, lengths).sum().backward()
