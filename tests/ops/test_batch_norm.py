"""Batch norm of the real rows: as torch's on them alone, with relu and dropout."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

from zoo.ops import dispatch, launcher
from zoo.ops.batch_norm import batch_norm, reference
from zoo.ops.dropout import dropout

EPS = 1e-5
SEED = torch.tensor([9], dtype=torch.int32)


def inputs(rows=23, slots=30, features=5, dtype=torch.float64):
    random = torch.Generator().manual_seed(0)
    x = 3 + 2 * torch.randn(slots, features, generator=random, dtype=torch.float64)
    x[rows:] = torch.nan
    weight, bias = torch.randn(2, features, generator=random, dtype=torch.float64)
    return (
        *(t.to(dtype).requires_grad_() for t in (x, weight, bias)),
        torch.tensor([rows], dtype=torch.int32),
    )


def plain(x, weight, bias, rows, *, relu=False, p=0.0):
    """torch's own on the real rows, the others zero."""
    y = F.batch_norm(x[: int(rows)], None, None, weight, bias, training=True, eps=EPS)
    y = torch.cat([torch.relu(y) if relu else y, torch.zeros_like(x[int(rows) :])])
    return dropout(y, SEED, p=p, stream=4)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("after", [{}, {"relu": True}, {"p": 0.4}, {"relu": True, "p": 0.4}])
@pytest.mark.parametrize("rows", [23, 30, 1])
def test_it_is_torchs_on_the_real_rows(kernels, after, rows, monkeypatch):
    if not kernels:
        monkeypatch.setattr(dispatch, "SWITCHED_OFF", True)
        monkeypatch.setattr(launcher, "launch", lambda *_, **__: pytest.fail("a kernel ran"))
    x, weight, bias, count = inputs(rows)
    y, mean, variance = batch_norm(
        x, weight, bias, rows=count, eps=EPS, seed=SEED, stream=4, **after
    )
    if rows > 1:  # of a single row torch refuses statistics
        wanted = plain(x, weight, bias, count, **after)
        torch.testing.assert_close(y, wanted, rtol=0, atol=1e-12)
        grad = torch.randn_like(y).detach()
        found = torch.autograd.grad((y * grad).sum(), (x, weight, bias))
        given = torch.autograd.grad((wanted * grad).sum(), (x, weight, bias))
        for a, b in zip(found, given, strict=True):
            torch.testing.assert_close(a.nan_to_num(7), b.nan_to_num(7), rtol=0, atol=1e-11)
    real = x[:rows]
    torch.testing.assert_close(mean, real.mean(0))
    torch.testing.assert_close(variance, real.var(0, unbiased=False))
    assert not mean.requires_grad and not variance.requires_grad


def test_a_pack_of_padding_alone():
    x, weight, bias, count = inputs(0)
    for call in (
        batch_norm,
        lambda x, w, b, rows, eps: reference(x, w, b, rows, rows, eps, False, 0.0, 0),
    ):
        y, mean, variance = call(x, weight, bias, rows=count, eps=EPS)
        assert not y.any() and not mean.any() and (variance == 1).all()
        for gradient in torch.autograd.grad(y.sum(), (x, weight, bias)):
            assert not gradient.any()


def test_float32_is_accurate_far_from_zero():
    x, weight, bias, count = inputs(3000, 3001, 4, torch.float64)
    y, *_ = batch_norm(x + 1000, weight, bias, rows=count, eps=EPS)
    near, *_ = batch_norm((x + 1000).float(), weight.float(), bias.float(), rows=count, eps=EPS)
    torch.testing.assert_close(near.double(), y, rtol=0, atol=2e-3)


@pytest.mark.parametrize("relu", [False, True])
def test_derivatives(relu):
    x, weight, bias, count = inputs(6, 8, 3)
    x = x.detach().nan_to_num(1.0).requires_grad_()

    def f(x, weight, bias):
        return batch_norm(x, weight, bias, rows=count, eps=EPS, relu=relu, p=0.3, seed=SEED)[0]

    gradcheck(f, (x, weight, bias))
    gradgradcheck(f, (x, weight, bias))


def test_torch_accepts_it():
    x, weight, bias, count = inputs(6, 8, 3)
    x = x.detach().nan_to_num(1.0).requires_grad_()
    torch.library.opcheck(
        torch.ops.zoo.batch_norm, (x, weight, bias, count, SEED, EPS, True, 0.3, 1)
    )


def test_bits_do_not_depend_on_threads():
    x, weight, bias, count = inputs(500, 520, 7, torch.float32)
    threads = torch.get_num_threads()
    found = []
    try:
        for number in (1, 2, 5):
            torch.set_num_threads(number)
            y, *_ = batch_norm(x, weight, bias, rows=count, eps=EPS, relu=True)
            found.append((y, *torch.autograd.grad(y.square().sum(), (x, weight, bias))))
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_nan_is_passed_on_and_bad_input_refused():
    x, weight, bias, count = inputs()
    with torch.no_grad():
        x[3, 1] = torch.nan
    y, *_ = batch_norm(x, weight, bias, rows=count, eps=EPS, relu=True)
    assert y[:23, 1].isnan().all() and y[:23, 0].isfinite().all()
    with pytest.raises(ValueError, match="needs 0 <= p < 1 and a seed"):
        batch_norm(x, weight, bias, rows=count, eps=EPS, p=0.5)
    with pytest.raises(ValueError, match=r"not \[N, F\]"):
        batch_norm(x, weight[:-1], bias, rows=count, eps=EPS)


def test_half_precision_and_autocast():
    x, weight, bias, count = inputs()
    wanted, *_ = batch_norm(x, weight, bias, rows=count, eps=EPS)
    half, *_ = batch_norm(*(t.bfloat16() for t in (x, weight, bias)), rows=count, eps=EPS)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.double(), wanted, rtol=0.1, atol=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        y, *_ = batch_norm(x.bfloat16(), weight.float(), bias.float(), rows=count, eps=EPS)
    assert y.dtype == torch.float32
