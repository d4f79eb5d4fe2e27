"""Softmax within segments."""

import pytest
import torch
from segments import segments
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from zoo.ops.dispatch import REFERENCES
from zoo.ops.softmax import segment_softmax

SIZES = [3, 0, 1, 7, 0, 0, 2]


def expected(given) -> torch.Tensor:
    out = torch.zeros_like(given.x)
    for n in range(len(given.ptr) - 1):
        rows = given.rows(n)
        out[rows] = given.x[rows].softmax(0)
    return out


@pytest.mark.parametrize("sizes", [SIZES, [0, 0], [], [20]])
@pytest.mark.parametrize("features", [1, 2, 7, 33])
def test_as_torch_segment_by_segment(features, sizes):
    given = segments(sizes, features=features)
    arguments = given.x, given.ptr
    assert_close(segment_softmax(*arguments), expected(given), rtol=0, atol=1e-14)
    assert_close(
        REFERENCES["zoo::segment_softmax"](*arguments), expected(given), rtol=0, atol=1e-14
    )
    strided = given.x.repeat_interleave(2, 1)[:, ::2], given.ptr.long()
    assert torch.equal(segment_softmax(*strided), segment_softmax(*arguments))


@pytest.mark.parametrize("features", [1, 5])
@pytest.mark.parametrize("scale", [1.0, 40.0, 1000.0])
def test_float32_is_as_exact_as_torchs(features, scale):
    # Scale 40 takes exponentials to 1e-38 and beyond. A difference d of two float32 is off by
    # 6e-8 d, and so, relatively, is its exponential; the rest is a few units in the last place.
    wide = segments([50, 7, 0, 1], features=features)
    narrow = (scale * wide.x).float()
    ours = segment_softmax(narrow, wide.ptr)
    true = segment_softmax(narrow.double(), wide.ptr)
    assert ours.dtype == torch.float32
    most = 90.0 if scale > 1 else 6.0
    assert_close(ours.double(), true, rtol=6e-8 * most + 5e-7, atol=1e-37)


@pytest.mark.parametrize("features", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extremes(dtype, features):
    given = segments(SIZES, features=features, dtype=dtype)
    given.x[given.rows(3)[2], 0] = -torch.inf
    out = segment_softmax(given.x, given.ptr)
    assert_close(out, expected(given))
    assert out[given.rows(3)[2], 0] == 0
    for value in (torch.nan, torch.inf):
        given.x[given.rows(3)[4], 0] = value
        out = segment_softmax(given.x, given.ptr)
        assert_close(out, expected(given), equal_nan=True)
        assert out[given.rows(3), 0].isnan().any() and out[given.rows(0)].isfinite().all()
    given.x[given.rows(3), 0] = -torch.inf
    assert segment_softmax(given.x, given.ptr)[given.rows(3), 0].isnan().all()


@pytest.mark.parametrize("features", [1, 2])
def test_derivatives(features):
    given = segments([3, 0, 1, 2], features=features, padding=1)
    x = given.x.nan_to_num(0.3).requires_grad_()
    grad = torch.randn_like(x).requires_grad_()
    y = segment_softmax(x, given.ptr).detach().requires_grad_()
    gradcheck(lambda x: segment_softmax(x, given.ptr), x)
    gradgradcheck(lambda x: segment_softmax(x, given.ptr), x)
    slope = torch.ops.zoo.segment_softmax_backward
    gradcheck(lambda g, y: slope(g, y, given.ptr), (grad, y))
    gradgradcheck(lambda g, y: slope(g, y, given.ptr), (grad, y))
    reference = REFERENCES["zoo::segment_softmax_backward"](grad, y, given.ptr)
    assert_close(slope(grad, y, given.ptr), reference, rtol=0, atol=1e-14)
    torch.library.opcheck(torch.ops.zoo.segment_softmax.default, (x, given.ptr))
    torch.library.opcheck(slope.default, (grad, y, given.ptr))


def test_padding_gets_no_gradient_whatever_it_holds():
    given = segments(SIZES, features=2)
    x = given.x.requires_grad_()
    segment_softmax(x, given.ptr)[given.used].square().sum().backward()
    idle = torch.ones(len(x), dtype=torch.bool)
    idle[given.used] = False
    assert (x.grad[idle] == 0).all() and x.grad[given.used].abs().sum() > 0


def test_autocast_and_half_precision():
    given = segments(SIZES, features=2)
    half = given.x.bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        out = segment_softmax(half, given.ptr)
    assert torch.equal(out, segment_softmax(half.float(), given.ptr))
    plain = segment_softmax(half, given.ptr)
    assert plain.dtype == torch.bfloat16
    assert_close(plain.float(), out, rtol=2e-2, atol=2e-2)


def test_what_does_not_fit():
    x, ptr = torch.ones(5, 2), torch.tensor([0, 2, 5], dtype=torch.int32)
    with pytest.raises(IndexError, match="doesn't rise"):
        segment_softmax(x, ptr + 1)
    with pytest.raises(ValueError, match="rows"):
        segment_softmax(x[:, 0], ptr)
    with pytest.raises(ValueError, match="a gradient"):
        torch.ops.zoo.segment_softmax_backward(x[:4], x, ptr)
