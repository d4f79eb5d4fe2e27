"""Sums over neighbours: values, derivatives, padding, and what is refused."""

import pytest
import torch
from edge_lists import EdgeList, complete, directed
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from zoo.ops.dispatch import REFERENCES, plain_torch
from zoo.ops.propagate import propagate

NAMES = ("src", "dst", "dst_ptr", "src_ptr", "src_perm")
CASES: dict[str, EdgeList] = {
    "molecules": complete([5, 1, 9, 2]),
    "directed": directed(nodes=40, edges=150),
    "dense": directed(nodes=4, edges=90),
    "no_edges": complete([1, 1]),
    "no_padding": complete([4, 3], padding_nodes=0, padding_edges=0),
}


def graph(case: EdgeList) -> dict[str, torch.Tensor]:
    return dict(zip(NAMES, case.graph, strict=True))


def values(case: EdgeList, *, features: int = 5, dtype=torch.float64):
    """x and weight; what belongs to padding is NaN."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(case.nodes, features, generator=random, dtype=torch.float64).to(dtype)
    weight = torch.randn(len(case.src), generator=random, dtype=torch.float64).to(dtype)
    used = torch.cat([case.src[: case.count], case.dst[: case.count]])
    x[~torch.isin(torch.arange(case.nodes), used)] = torch.nan
    weight[case.count :] = torch.nan
    return x, weight


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_kernels_agree_with_the_reference_and_with_edge_by_edge(case, weighted):
    case = CASES[case]
    x, weight = values(case)
    there, back = torch.zeros_like(x), torch.zeros_like(x)
    for e in range(case.count):
        w = weight[e] if weighted else 1
        there[case.dst[e]] += w * x[case.src[e]]
        back[case.src[e]] += w * x[case.dst[e]]
    weight = weight if weighted else None
    for transposed, expected in ((False, there), (True, back)):
        arguments = (x, weight, *case.graph, transposed)
        assert_close(torch.ops.zoo.propagate(*arguments), expected, rtol=0, atol=1e-12)
        assert_close(REFERENCES["zoo::propagate"](*arguments), expected, rtol=0, atol=1e-12)
    assert_close(propagate(x, **graph(case), weight=weight), there, rtol=0, atol=1e-12)
    arguments = (there, x, *case.graph)
    dots = torch.ops.zoo.propagate_dots(*arguments)
    assert_close(dots, REFERENCES["zoo::propagate_dots"](*arguments), rtol=0, atol=1e-12)
    ends = case.dst[: case.count].long(), case.src[: case.count].long()
    assert_close(dots[: case.count], (there[ends[0]] * x[ends[1]]).sum(1), rtol=0, atol=1e-12)
    assert (dots[case.count :] == 0).all()


@pytest.mark.parametrize("features", [1, 2, 4, 6, 8, 13, 16, 20, 64, 90])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_number_of_features(dtype, features):
    case = CASES["directed"]
    x, weight = values(case, features=features, dtype=dtype)
    for given in (None, weight):
        for transposed in (False, True):
            arguments = (x, given, *case.graph, transposed)
            ours, reference = (
                torch.ops.zoo.propagate(*arguments),
                REFERENCES["zoo::propagate"](*arguments),
            )
            tolerance = 1e-12 if dtype == torch.float64 else 1e-5
            assert_close(ours, reference, rtol=0, atol=tolerance)


@pytest.mark.parametrize("case", ["molecules", "directed"])
def test_derivatives(case):
    case = {"molecules": complete([3, 2]), "directed": directed(nodes=4, edges=7)}[case]
    x, weight = (t.nan_to_num(0.5).requires_grad_() for t in values(case, features=2))

    def form(x, weight):
        return propagate(x, **graph(case), weight=weight)

    gradcheck(form, (x, weight))
    gradgradcheck(form, (x, weight))
    gradcheck(lambda x: propagate(x, **graph(case)), x)
    to = torch.randn_like(x).requires_grad_()
    dots = torch.ops.zoo.propagate_dots
    gradcheck(lambda to, x: dots(to, x, *case.graph), (to, x))
    gradgradcheck(lambda to, x: dots(to, x, *case.graph), (to, x))
    turned = torch.ops.zoo.propagate
    gradcheck(lambda x, w: turned(x, w, *case.graph, True), (x, weight))
    gradgradcheck(lambda x, w: turned(x, w, *case.graph, True), (x, weight))
    for given in (None, weight):
        for transposed in (False, True):
            torch.library.opcheck(turned.default, (x, given, *case.graph, transposed))
    torch.library.opcheck(dots.default, (to, x, *case.graph))
    ours = torch.autograd.grad(form(x, weight).square().sum(), (x, weight))
    with plain_torch():
        reference = torch.autograd.grad(form(x, weight).square().sum(), (x, weight))
    for a, b in zip(ours, reference, strict=True):
        assert_close(a, b, rtol=0, atol=1e-12)


def test_unweighted_keeps_no_features_for_the_gradient():
    case = CASES["directed"]
    x = values(case)[0].requires_grad_()
    saved = []

    def pack(tensor):
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        propagate(x, **graph(case))
    assert saved and not any(t.is_floating_point() for t in saved)


@pytest.mark.parametrize("weighted", [False, True])
def test_nan_shows_where_it_is_reached(weighted):
    case = CASES["directed"]
    x, weight = (t.nan_to_num(1.0) for t in values(case))
    x[case.src[0], 2] = torch.nan
    out = propagate(x, **graph(case), weight=weight if weighted else None)
    hit = case.dst[: case.count][case.src[: case.count] == case.src[0]].long()
    expected = torch.zeros_like(x, dtype=torch.bool)
    expected[hit, 2] = True
    assert torch.equal(out.isnan(), expected)


def test_strided_arguments_wide_ids_and_half_precision():
    case = CASES["directed"]
    x, weight = (t.nan_to_num(1.0) for t in values(case, features=6))
    expected = propagate(x, **graph(case), weight=weight)
    strided = {name: torch.stack([t, t], 1)[:, 0] for name, t in graph(case).items()}
    twice = torch.stack([weight, weight], 1)[:, 0]
    assert torch.equal(
        propagate(x.repeat_interleave(2, 1)[:, ::2], **strided, weight=twice), expected
    )
    wide = {name: t.long() for name, t in graph(case).items()}
    assert torch.equal(propagate(x, **wide, weight=weight), expected)
    half = x.bfloat16(), weight.bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        out = propagate(half[0], **graph(case), weight=weight.float())
    assert out.dtype == torch.float32
    plain = propagate(half[0], **graph(case), weight=half[1])
    assert plain.dtype == torch.bfloat16
    assert_close(plain.double(), expected, rtol=5e-2, atol=0.2)


@pytest.mark.parametrize("which", range(5), ids=NAMES)
@pytest.mark.parametrize("bad", [-1, -(2**31), 2**31 - 1])
def test_ids_out_of_range(which, bad):
    case = directed(nodes=9, edges=30)
    given = [t.clone() for t in case.graph]
    given[which][5] = bad
    x, weight = (t.nan_to_num(1.0) for t in values(case))
    with pytest.raises(IndexError, match="names a node outside|don't fit"):
        propagate(x, **dict(zip(NAMES, given, strict=True)), weight=weight)
    with pytest.raises(IndexError, match="names a node outside|don't fit"):
        torch.ops.zoo.propagate_dots(x, x, *given)


def test_what_does_not_fit():
    case = directed(nodes=9, edges=30)
    x, weight = (t.nan_to_num(1.0) for t in values(case))
    given = graph(case)
    for bad in (weight[:-1], weight.float(), weight.unsqueeze(1)):
        with pytest.raises(ValueError, match="propagate: weights"):
            propagate(x, **given, weight=bad)
    with pytest.raises(ValueError, match="rows"):
        propagate(x[:, 0], **given)
    with pytest.raises(ValueError, match="nodes and"):
        propagate(x[:-1], **given)
    with pytest.raises(ValueError, match="not int32 or int64"):
        propagate(x, **{**given, "src": given["src"].double()})
    with pytest.raises(ValueError, match="propagate_dots: rows"):
        torch.ops.zoo.propagate_dots(x[:-1], x, *case.graph)
