"""Reductions over segments: what they are, their derivatives, and what is refused."""

import pytest
import torch
from segments import segments
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from zoo.ops.dispatch import REFERENCES, plain_torch
from zoo.ops.segment import REDUCTIONS, segment_expand, segment_reduce

SIZES = {
    "mixed": [3, 0, 1, 7, 0, 0, 2, 5, 1, 4],
    "all_empty": [0, 0, 0],
    "no_segments": [],
    "one": [9],
    "sparse": [0] * 30 + [2] + [0] * 17 + [1, 3] + [0] * 9,
}
# every width of block, alone and with others, with and without an overlap
WIDTHS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 48, 63, 64, 65, 100, 130]


def ours_and_reference(given, reduce):
    arguments = given.x, given.ptr, given.perm, reduce
    return torch.ops.zoo.segment_reduce(*arguments), REFERENCES["zoo::segment_reduce"](*arguments)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("sizes", SIZES)
def test_kernels_agree_with_the_reference_and_with_torch(sizes, reduce, shuffled):
    given = segments(SIZES[sizes], features=5, shuffled=shuffled)
    ours, reference = ours_and_reference(given, reduce)
    expected = torch.zeros(len(SIZES[sizes]), 5, dtype=torch.float64)
    form = {"max": torch.amax, "min": torch.amin, "sum": torch.sum, "mean": torch.mean}[reduce]
    for n, size in enumerate(SIZES[sizes]):
        if size:
            expected[n] = form(given.x[given.rows(n)], 0)
    assert_close(ours, expected, rtol=0, atol=1e-12)
    assert_close(reference, expected, rtol=0, atol=1e-12)
    assert torch.equal(segment_reduce(given.x, given.ptr, reduce, perm=given.perm), ours)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("features", WIDTHS)
def test_every_number_of_features(features, dtype):
    given = segments(SIZES["mixed"], features=features, shuffled=True, dtype=dtype)
    for reduce in REDUCTIONS:
        ours, reference = ours_and_reference(given, reduce)
        # 7 numbers of order one are added: 1e-6 is ten float32 roundings
        assert_close(ours, reference, rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-6)
        # a feature's bits don't depend on its neighbours
        alone = segment_reduce(given.x[:, -1:], given.ptr, reduce, perm=given.perm)
        assert torch.equal(alone, ours[:, -1:])


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_ids_of_either_size_and_strided_arguments(reduce):
    given = segments(SIZES["mixed"], features=6, shuffled=True)
    expected = segment_reduce(given.x, given.ptr, reduce, perm=given.perm)
    wide = segment_reduce(given.x, given.ptr.long(), reduce, perm=given.perm.long())
    mixed = segment_reduce(given.x, given.ptr.long(), reduce, perm=given.perm)
    assert torch.equal(wide, expected) and torch.equal(mixed, expected)
    x = given.x.repeat_interleave(2, 1)[:, ::2]
    ptr = torch.stack([given.ptr, given.ptr], 1)[:, 0]
    perm = torch.stack([given.perm, given.perm], 1)[:, 0]
    assert not (x.is_contiguous() or ptr.is_contiguous() or perm.is_contiguous())
    assert torch.equal(segment_reduce(x, ptr, reduce, perm=perm), expected)


def test_large_results_are_aligned_and_complete(monkeypatch):
    from zoo.ops import memory

    given = segments(SIZES["mixed"], features=40)
    expected = segment_reduce(given.x, given.ptr)
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "LARGE", 64)
    for _ in range(20):
        out = segment_reduce(given.x, given.ptr)
        assert torch.equal(out, expected) and out.data_ptr() % 64 == 0
        assert out.is_contiguous() and out.storage_offset() == 0


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", [0, 3, 6])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_what_is_not_finite_shows(reduce, place, value):
    given = segments(SIZES["mixed"], features=3)
    row = given.rows(3)[place]
    given.x[row, 1] = value
    ours, reference = ours_and_reference(given, reduce)
    assert_close(ours, reference, equal_nan=True)
    whole = given.x[given.rows(3), 1]
    form = {"max": torch.amax, "min": torch.amin, "sum": torch.sum, "mean": torch.mean}[reduce]
    assert_close(ours[3, 1], form(whole, 0), equal_nan=True)
    ours[3, 1] = 0
    assert ours.isfinite().all()


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_derivatives(reduce, shuffled):
    given = segments([3, 0, 1, 2], features=2, padding=2, shuffled=shuffled)
    x = given.x.nan_to_num(1.0).requires_grad_()

    def form(x):
        return segment_reduce(x, given.ptr, reduce, perm=given.perm)

    gradcheck(form, x)
    gradgradcheck(form, x)
    torch.library.opcheck(torch.ops.zoo.segment_reduce.default, (x, given.ptr, given.perm, reduce))
    (ours,) = torch.autograd.grad(form(x).square().sum(), x)
    with plain_torch():
        (reference,) = torch.autograd.grad(form(x).square().sum(), x)
    assert_close(ours, reference, rtol=0, atol=1e-12)


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_the_first_of_equals_gets_the_gradient(reduce):
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0], [0.5, 2.0], [1.0, 3.0]], dtype=torch.float64)
    x = (x if reduce == "max" else -x).requires_grad_()
    ptr, perm = torch.tensor([0, 4], dtype=torch.int32), torch.tensor([2, 1, 0, 3])
    expected = torch.tensor([[0, 0], [1, 0], [0, 0], [0, 1]], dtype=torch.float64)
    for plain in (False, True):
        with plain_torch() if plain else torch.enable_grad():
            out = segment_reduce(x, ptr, reduce, perm=perm)
            (grad,) = torch.autograd.grad(out.sum(), x)
        assert torch.equal(grad, expected)


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_the_first_nan_gets_the_gradient(reduce):
    x = torch.tensor([[1.0], [torch.nan], [9.0], [torch.nan]], dtype=torch.float64)
    x.requires_grad_()
    segment_reduce(x, torch.tensor([0, 4], dtype=torch.int32), reduce).sum().backward()
    assert x.grad.flatten().tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("shuffled", [False, True])
def test_expanding_is_the_transpose(shuffled, mean):
    given = segments([3, 0, 1, 2], features=3, shuffled=shuffled)
    rows = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    entries = len(given.x)

    def form(rows):
        return segment_expand(rows, given.ptr, entries=entries, perm=given.perm, mean=mean)

    out = form(rows)
    with plain_torch():
        assert_close(form(rows), out, rtol=0, atol=1e-12)
    x = given.x.nan_to_num(0.7)
    reduced = segment_reduce(x, given.ptr, "mean" if mean else "sum", perm=given.perm)
    assert_close((out * x).sum(), (reduced * rows).sum())
    gradcheck(form, rows)
    gradgradcheck(form, rows)
    arguments = (rows, given.ptr, given.perm, entries, mean)
    torch.library.opcheck(torch.ops.zoo.segment_expand.default, arguments)


def test_placing_and_picking():
    at = torch.tensor([[2, 0], [-1, 3], [0, -1]], dtype=torch.int32)
    values = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    x = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    placed = torch.zeros(4, 2, dtype=torch.float64)
    placed[2, 0], placed[0, 1], placed[3, 1], placed[0, 0] = (
        *(values[0].detach()),
        values[1, 1].detach(),
        values[2, 0].detach(),
    )
    place, pick = torch.ops.zoo.segment_place, torch.ops.zoo.segment_pick
    assert torch.equal(place(values, at, 4), placed)
    assert torch.equal(REFERENCES["zoo::segment_place"](values, at, 4), placed)
    rows = x.tolist()
    picked = [[rows[2][0], rows[0][1]], [0.0, rows[3][1]], [rows[0][0], 0.0]]
    picked = torch.tensor(picked, dtype=torch.float64)
    assert torch.equal(pick(x, at), picked)
    assert torch.equal(REFERENCES["zoo::segment_pick"](x, at), picked)
    for op, arguments in ((place, (values, at, 4)), (pick, (x, at))):
        gradcheck(op, arguments)
        gradgradcheck(op, arguments)
        torch.library.opcheck(op.default, arguments)


def test_autocast_computes_in_float32():
    given = segments(SIZES["mixed"], features=4)
    x = given.x.bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = segment_reduce(x, given.ptr)
    assert out.dtype == torch.float32
    assert torch.equal(out, segment_reduce(x.float(), given.ptr))
    out.square().sum().backward()
    assert x.grad.dtype == torch.bfloat16 and x.grad[given.used].isfinite().all()


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_half_precision_without_autocast(reduce):
    # no kernel: numpy has no bfloat16; three digits are what the type holds
    given = segments(SIZES["mixed"], features=4)
    out = segment_reduce(given.x.bfloat16(), given.ptr, reduce)
    assert out.dtype == torch.bfloat16
    expected = segment_reduce(given.x, given.ptr, reduce)
    assert_close(out.double(), expected, rtol=2e-2, atol=5e-2)


BAD_POINTERS = {
    "first": [1, 2, 4],
    "falls": [0, 3, 2],
    "too_far": [0, 2, 6],
    "negative": [0, -1, 4],
    "huge": [0, 2, 2**31 - 1],
}


@pytest.mark.parametrize("ptr", BAD_POINTERS)
def test_row_pointers_out_of_range(ptr):
    x, ptr = torch.ones(5, 2), torch.tensor(BAD_POINTERS[ptr], dtype=torch.int32)
    for perm in (None, torch.arange(5, dtype=torch.int32)):
        with pytest.raises(IndexError, match="doesn't rise"):
            segment_reduce(x, ptr, perm=perm)
        with pytest.raises(IndexError, match="doesn't rise"):
            segment_expand(torch.ones(2, 2), ptr, entries=5, perm=perm)


@pytest.mark.parametrize("bad", [-1, 5, 2**31 - 1])
def test_rows_out_of_range(bad):
    x, ptr = torch.ones(5, 2), torch.tensor([0, 2, 4], dtype=torch.int32)
    perm = torch.tensor([0, 1, bad, 3, bad], dtype=torch.int32)
    with pytest.raises(IndexError, match="outside 0..4"):
        segment_reduce(x, ptr, perm=perm)
    perm[2] = 4  # what lies beyond ptr[-1] may be anything
    assert segment_reduce(x, ptr, perm=perm).tolist() == [[2, 2], [2, 2]]
    perm[2] = bad  # written to since it was checked
    with pytest.raises(IndexError):
        segment_reduce(x, ptr, perm=perm)


def test_a_checked_ptr_with_fewer_rows():
    ptr = torch.tensor([0, 2, 5], dtype=torch.int32)
    segment_reduce(torch.ones(5, 2), ptr)
    with pytest.raises(IndexError):
        segment_reduce(torch.ones(4, 2), ptr)


def test_what_does_not_fit():
    x, ptr = torch.ones(5, 2), torch.tensor([0, 2, 5], dtype=torch.int32)
    for bad in (x[:, 0], x.int(), x.unsqueeze(0)):
        with pytest.raises(ValueError, match="rows"):
            segment_reduce(bad, ptr)
    for bad in (ptr.unsqueeze(0), ptr[:0]):
        with pytest.raises(ValueError, match="segments"):
            segment_reduce(x, bad)
    with pytest.raises(ValueError, match="float32, not int32 or int64"):
        segment_reduce(x, ptr.float())
    with pytest.raises(ValueError, match="not one of sum, mean, max, min"):
        segment_reduce(x, ptr, "median")
    with pytest.raises(ValueError, match="3 rows for 2 segments"):
        segment_expand(torch.ones(3, 2), ptr, entries=5)
    place, pick = torch.ops.zoo.segment_place, torch.ops.zoo.segment_pick
    with pytest.raises(IndexError, match="outside 0..4"):
        pick(x, torch.tensor([[5, 0]], dtype=torch.int32))
    with pytest.raises(IndexError, match="outside 0..0"):
        place(x, torch.ones(5, 2, dtype=torch.int32), 1)
    with pytest.raises(ValueError, match="places"):
        place(x, torch.ones(4, 2, dtype=torch.int32), 5)
