"""Dropout by counting: which values fall is a function of a seed and of their place.

The same seed gives the same values on any number of threads, with kernels and without, and nothing
has to be kept for the backward pass but the seed. Each call in a step takes another `stream`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from zoo.ops.dispatch import define, dropout_is_torchs, use_kernel

Context = Any


def dropout(x: Tensor, seed: Tensor, *, p: float, stream: int) -> Tensor:
    """x with each value dropped with probability p and the rest divided by 1 - p.

    `seed` is an int32 or int64 tensor of one number, such as a batch's. ValueError unless
    0 <= p < 1.
    """
    if not 0 <= p < 1:
        raise ValueError(f"dropout: p is {p}, not in [0, 1)")
    if p == 0:
        return x
    return _dropout(x, seed, p, stream) if use_kernel(x) else dropout_reference(x, seed, p, stream)


def _cpu(x: Tensor, seed: Tensor, p: float, stream: int) -> Tensor:
    from zoo.ops import dropout_kernel as kernel
    from zoo.ops.launcher import CHUNKS, launch

    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    given = x.detach().contiguous().numpy().reshape(-1)
    key = kernel.key_of(int(seed), stream)
    launch(
        kernel.drop, given, key, kernel.limit_of(p), 1 / (1 - p), out.numpy().reshape(-1), CHUNKS
    )
    return out


def dropout_reference(x: Tensor, seed: Tensor, p: float, stream: int) -> Tensor:
    """The same in plain torch; torch's own within `device_dropout`."""
    if dropout_is_torchs():
        return functional.dropout(x, p)
    number = torch.arange(x.numel(), device=x.device).reshape(x.shape)
    key = _mixed(_mixed(seed.reshape(()).to(torch.int64)) + (stream + 1) * 0x9E3779B9)
    fallen = _mixed(number + key) < int(p * 2**32)
    return torch.where(fallen, torch.zeros_like(x), x * (1 / (1 - p)))


def _mixed(value: Tensor) -> Tensor:
    """A 32-bit number for each integer: multiplications and shifts that spread every bit."""
    value = value & 0xFFFFFFFF
    value = ((value ^ (value >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    value = ((value ^ (value >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return value ^ (value >> 16)


def _fake(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _save(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, seed, ctx.p, ctx.stream = inputs
    ctx.save_for_backward(seed)


def _backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    (seed,) = ctx.saved_tensors
    return _dropout(grad, seed, ctx.p, ctx.stream), None, None, None


_dropout = define(
    name="dropout",
    cpu=_cpu,
    reference=dropout_reference,
    fake=_fake,
    save=_save,
    backward=_backward,
)
