"""Dropout by counting: the same places with kernels and without, on any number of threads."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from zoo.ops import dispatch
from zoo.ops.dropout import dropout, dropout_reference

SEED = torch.tensor([1234], dtype=torch.int32)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", [0, -5, 2**31 - 1])
def test_the_kernel_drops_what_the_reference_does(p, seed):
    x = torch.randn(37, 11, dtype=torch.float64)
    seed = torch.tensor([seed], dtype=torch.int32)
    found = dropout(x, seed, p=p, stream=3)
    assert torch.equal(found, dropout_reference(x, seed, p, 3))
    kept = found != 0
    torch.testing.assert_close(found[kept], x[kept] / (1 - p))


def test_the_share_that_falls_is_p_everywhere():
    x = torch.ones(2000, 300)
    fallen = dropout(x, SEED, p=0.3, stream=0) == 0
    assert fallen.float().mean() == pytest.approx(0.3, abs=0.003)
    assert (fallen.float().mean(0) - 0.3).abs().max() < 0.06
    assert (fallen.float().mean(1) - 0.3).abs().max() < 0.14


def test_seeds_and_streams_are_independent():
    x = torch.ones(1000, 100)
    first = dropout(x, SEED, p=0.5, stream=0) == 0
    others = [
        dropout(x, SEED + 1, p=0.5, stream=0) == 0,
        dropout(x, SEED, p=0.5, stream=1) == 0,
        torch.roll(first, 1, 0),
        torch.roll(first, 1, 1),
    ]
    for other in others:
        assert (first == other).float().mean() == pytest.approx(0.5, abs=0.01)


def test_bits_do_not_depend_on_threads():
    x = torch.randn(501, 33)
    threads = torch.get_num_threads()
    try:
        found = []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            found.append(dropout(x, SEED, p=0.5, stream=0))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(found[0], other) for other in found)


def test_derivatives_and_torch_accepts_it():
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)

    def f(x):
        return dropout(x, SEED, p=0.4, stream=2)

    gradcheck(f, (x,))
    gradgradcheck(f, (x,))
    torch.library.opcheck(torch.ops.zoo.dropout, (x, SEED, 0.4, 2))


def test_nothing_falls_at_zero_and_what_is_no_probability_is_refused():
    x = torch.randn(3, 2)
    assert dropout(x, SEED, p=0.0, stream=0) is x
    for wrong in (1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="not in"):
            dropout(x, SEED, p=wrong, stream=0)
    empty = torch.zeros(0, 3)
    assert dropout(empty, SEED, p=0.5, stream=0).shape == (0, 3)


def test_a_device_with_dropout_of_its_own_uses_it() -> None:
    x, seed = torch.ones(1000), torch.tensor([3], dtype=torch.int32)
    counted = dropout_reference(x, seed, 0.5, 0)
    with dispatch.device_dropout():
        torch.manual_seed(0)
        one = dropout_reference(x, seed, 0.5, 0)
        other = dropout_reference(x, seed, 0.5, 0)
    assert not torch.equal(one, other)
    assert torch.equal(dropout_reference(x, seed, 0.5, 0), counted)
