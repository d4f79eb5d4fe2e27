"""Scatters by an unsorted index, and sorting by it."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from zoo.ops.dispatch import REFERENCES, plain_torch
from zoo.ops.scatter import scatter_reduce, sort_index
from zoo.ops.segment import REDUCTIONS, segment_reduce


def draw(entries: int, size: int, features: int, seed: int = 0):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(entries, features, generator=random, dtype=torch.float64)
    return x, torch.randint(0, size, (entries,), generator=random) if size else torch.zeros(
        0
    ).long()


SHAPES = [(40, 9, 5), (3, 50, 16), (200, 3, 7), (0, 4, 2), (0, 0, 2), (5, 1, 1)]


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_as_torch_and_as_segments(shape, reduce):
    _, size, features = shape
    x, index = draw(*shape)
    out = scatter_reduce(x, index, size=size, reduce=reduce)
    name = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}[reduce]
    wide = index.unsqueeze(1).expand(-1, features)
    zeros = torch.zeros(size, features, dtype=torch.float64)
    expected = zeros.scatter_reduce(0, wide, x, name, include_self=False)
    assert_close(out, expected, rtol=0, atol=1e-12)
    with plain_torch():
        reference = scatter_reduce(x, index, size=size, reduce=reduce)
    assert_close(reference, expected, rtol=0, atol=1e-12)
    perm, ptr = sort_index(index, size=size)
    assert_close(segment_reduce(x, ptr, reduce, perm=perm), out, rtol=0, atol=1e-12)
    assert torch.equal(scatter_reduce(x, index.int(), size=size, reduce=reduce), out)


@pytest.mark.parametrize("wide", [False, True])
def test_sorting_is_stable_and_complete(wide):
    _, index = draw(500, 37, 1)
    index = index if wide else index.int()
    perm, ptr = sort_index(index, size=40)
    assert perm.dtype == ptr.dtype == torch.int32
    assert torch.equal(perm.long(), torch.sort(index, stable=True).indices)
    counts = torch.bincount(index, minlength=40)
    assert ptr[0] == 0 and torch.equal(ptr.diff().long(), counts)
    for ours, theirs in zip(REFERENCES["zoo::sort_index"](index, 40), (perm, ptr), strict=True):
        assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype
    torch.library.opcheck(torch.ops.zoo.sort_index.default, (index, 40))


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_derivatives(reduce):
    x, index = draw(8, 5, 2)
    x.requires_grad_()

    def form(x):
        return scatter_reduce(x, index, size=5, reduce=reduce)

    gradcheck(form, x)
    gradgradcheck(form, x)
    torch.library.opcheck(torch.ops.zoo.scatter_reduce.default, (x, index, 5, reduce))
    (ours,) = torch.autograd.grad(form(x).square().sum(), x)
    with plain_torch():
        (reference,) = torch.autograd.grad(form(x).square().sum(), x)
    assert_close(ours, reference, rtol=0, atol=1e-12)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_nan_shows(reduce):
    x, index = draw(30, 4, 3)
    for row in (int(i) for i in torch.nonzero(index == 2).flatten()[[0, 1, -1]]):
        spoilt = x.clone()
        spoilt[row, 1] = torch.nan
        out = scatter_reduce(spoilt, index, size=4, reduce=reduce)
        assert out[2, 1].isnan() and out.isnan().sum() == 1


def test_autocast_and_strided_arguments():
    x, index = draw(30, 4, 6)
    expected = scatter_reduce(x, index, size=4)
    strided = x.repeat_interleave(2, 1)[:, ::2], torch.stack([index, index], 1)[:, 0]
    assert torch.equal(scatter_reduce(*strided, size=4), expected)
    half = x.bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        out = scatter_reduce(half, index, size=4)
    assert torch.equal(out, scatter_reduce(half.float(), index, size=4))
    assert scatter_reduce(half, index, size=4).dtype == torch.bfloat16


@pytest.mark.parametrize("bad", [-1, 4, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("large", [False, True])
def test_indices_out_of_range(monkeypatch, bad, large):
    from zoo.ops import launcher

    if large:  # several chunks
        monkeypatch.setattr(launcher, "CHUNK_SIZE", 1)
    x, index = draw(30, 4, 3)
    index[17] = bad
    for dtype in (torch.int32, torch.int64):
        with pytest.raises(IndexError, match="outside 0..3"):
            scatter_reduce(x, index.to(dtype), size=4)
        with pytest.raises(IndexError, match="outside 0..3"):
            sort_index(index.to(dtype), size=4)


def test_what_does_not_fit():
    x, index = draw(6, 4, 3)
    with pytest.raises(ValueError, match="5 indices for 6 rows"):
        scatter_reduce(x, index[:5], size=4)
    with pytest.raises(ValueError, match="float32, not int32"):
        scatter_reduce(x, index.float(), size=4)
    with pytest.raises(ValueError, match="not one of"):
        scatter_reduce(x, index, size=4, reduce="prod")
    for bad, size in ((index.unsqueeze(0), 4), (index, -1)):
        with pytest.raises(ValueError, match="index"):
            sort_index(bad, size=size)
