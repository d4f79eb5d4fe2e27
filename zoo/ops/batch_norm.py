"""Batch normalisation of the real rows alone, with the activation and dropout that follow it.

    y = dropout(relu((x - mean) / sqrt(variance + eps) * weight + bias))

Mean and variance are those of the first `rows` rows: in a batch of fixed shape the real ones come
first. The other rows are zero and pass no gradient. One pass over memory makes the statistics and
one the result, where torch's operators take nine.

Shapes: x [N, F]; weight, bias, mean, variance [F]; rows and seed integer tensors of one number.
Fewer than one row gives zeros, with mean zero and variance one. NaN is passed on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zoo.ops.dispatch import use_kernel
from zoo.ops.dropout import dropout_reference

Context = Any


def batch_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    rows: Tensor,
    eps: float,
    relu: bool = False,
    p: float = 0.0,
    seed: Tensor | None = None,
    stream: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """The result [N, F], and the mean and biased variance [F], which carry no gradient.

    With `p` values are dropped as `zoo.ops.dropout` does with this seed and stream. ValueError for
    shapes that don't fit, p outside [0, 1), or p without a seed.
    """
    if x.dim() != 2 or weight.shape != x.shape[1:] or bias.shape != x.shape[1:]:
        shapes = [list(t.shape) for t in (x, weight, bias)]
        raise ValueError(f"batch_norm: x, weight and bias are {shapes}, not [N, F], [F] and [F]")
    if not 0 <= p < 1 or (p > 0 and seed is None):
        raise ValueError(f"batch_norm: dropout of p = {p} needs 0 <= p < 1 and a seed")
    seed = rows if seed is None else seed
    if use_kernel(x):
        found: tuple[Tensor, Tensor, Tensor] = _forward(
            *(x, weight, bias, rows, seed, eps, relu, p, stream)
        )
        return found
    return reference(x, weight, bias, rows, seed, eps, relu, p, stream)


def reference(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    rows: Tensor,
    seed: Tensor,
    eps: float,
    relu: bool,
    p: float,
    stream: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same in plain torch, differentiable to any order."""
    number = rows.reshape(())
    real = (torch.arange(x.shape[0], device=x.device) < number).unsqueeze(1)
    zero = torch.zeros_like(x)
    count = number.to(x.dtype).clamp(min=1)
    mean = torch.where(real, x, zero).sum(0) / count
    centred = torch.where(real, x - mean, zero)
    variance = (centred * centred).sum(0) / count
    y = centred * (variance + eps).rsqrt() * weight + bias
    y = torch.where(real, torch.relu(y) if relu else y, zero)
    y = dropout_reference(y, seed, p, stream) if p > 0 else y
    idle = torch.where(number < 1, torch.ones_like(variance), variance)
    return y, mean.detach(), idle.detach()


@torch.library.custom_op("zoo::batch_norm", mutates_args=())
def _forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    rows: Tensor,
    seed: Tensor,
    eps: float,
    relu: bool,
    p: float,
    stream: int,
) -> tuple[Tensor, Tensor, Tensor]:
    from zoo.ops import batch_norm_kernel as kernel
    from zoo.ops.launcher import CHUNKS, launch

    if not _known(x):
        return reference(x, weight, bias, rows, seed, eps, relu, p, stream)
    count, features = min(int(rows), x.shape[0]), x.shape[1]
    given = x.detach().contiguous().numpy()
    parts = x.new_empty(CHUNKS, 2, features).numpy()
    launch(kernel.moments, given, count, parts, CHUNKS)
    mean, variance = kernel.combine(parts, count)
    scale = weight.detach().numpy() / (variance + eps) ** 0.5
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    drop = kernel.dropping(int(seed), stream, p)
    shifted = (mean, scale.astype(given.dtype), bias.detach().contiguous().numpy())
    launch(kernel.apply, given, count, *shifted, relu, *drop, out.numpy(), CHUNKS)
    return out, torch.from_numpy(mean), torch.from_numpy(variance)


def _known(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)


@torch.library.custom_op("zoo::batch_norm_backward", mutates_args=())
def _gradients(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    rows: Tensor,
    seed: Tensor,
    eps: float,
    relu: bool,
    p: float,
    stream: int,
) -> tuple[Tensor, Tensor, Tensor]:
    from zoo.ops import batch_norm_kernel as kernel
    from zoo.ops.launcher import CHUNKS, launch

    if not _known(x):
        return _by_reference(grad, x, weight, bias, rows, seed, eps, relu, p, stream)
    count, features = min(int(rows), x.shape[0]), x.shape[1]
    g, given = (t.detach().contiguous().numpy() for t in (grad, x))
    inverse = ((variance + eps) ** -0.5).numpy().astype(given.dtype)
    facts = (mean.numpy(), inverse, weight.detach().numpy(), bias.detach().numpy())
    drop = kernel.dropping(int(seed), stream, p)
    parts = x.new_empty(CHUNKS, 2, features).numpy()
    launch(kernel.sums, g, given, count, *facts, relu, *drop, parts, CHUNKS)
    d_bias, d_weight = parts.sum(0)
    d_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    share = 1 / max(count, 1)
    means = ((d_bias * share).astype(given.dtype), (d_weight * share).astype(given.dtype))
    launch(kernel.back, g, given, count, *facts, *means, relu, *drop, d_x.numpy(), CHUNKS)
    return d_x, torch.from_numpy(d_weight.copy()), torch.from_numpy(d_bias.copy())


def _by_reference(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    rows: Tensor,
    seed: Tensor,
    eps: float,
    relu: bool,
    p: float,
    stream: int,
) -> tuple[Tensor, Tensor, Tensor]:
    with torch.enable_grad():
        own = x, weight, bias = tuple(t.detach().requires_grad_() for t in (x, weight, bias))
        y, *_ = reference(x, weight, bias, rows, seed, eps, relu, p, stream)
        d_x, d_weight, d_bias = torch.autograd.grad(y, own, grad)
    return d_x, d_weight, d_bias


@_forward.register_fake
def _(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    like = torch.empty_like(x, memory_format=torch.contiguous_format)
    return like, x.new_empty(x.shape[1]), x.new_empty(x.shape[1])


@_gradients.register_fake
def _(grad: Tensor, x: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    like = torch.empty_like(x, memory_format=torch.contiguous_format)
    return like, torch.empty_like(weight), torch.empty_like(weight)


def _save(ctx: Context, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, bias, rows, seed, *ctx.rest = inputs
    _, mean, variance = output
    ctx.save_for_backward(x, weight, bias, mean, variance, rows, seed)
    ctx.mark_non_differentiable(mean, variance)


def _backward(ctx: Context, grad: Tensor, *_: Any) -> tuple[Any, ...]:
    return *_gradients(grad, *ctx.saved_tensors, *ctx.rest), *[None] * 6


def _save_gradients(ctx: Context, inputs: tuple[Any, ...], output: Any) -> None:
    grad, x, weight, bias, _, _, rows, seed, *ctx.rest = inputs
    ctx.save_for_backward(grad, x, weight, bias, rows, seed)


def _gradients_backward(ctx: Context, *wanted: Tensor) -> tuple[Any, ...]:
    """Second derivatives, which nothing in a hurry asks for: those of the reference."""
    *given, rows, seed = ctx.saved_tensors
    with torch.enable_grad():
        grad, x, weight, bias = own = [t.detach().requires_grad_() for t in given]
        y, *_ = reference(x, weight, bias, rows, seed, *ctx.rest)
        first = torch.autograd.grad(y, own[1:], grad, create_graph=True)
        total = torch.stack([(a * b).sum() for a, b in zip(first, wanted, strict=True)]).sum()
        d_grad, d_x, d_weight, d_bias = torch.autograd.grad(total, own, allow_unused=True)
    return d_grad, d_x, d_weight, d_bias, *[None] * 8


_forward.register_autograd(_backward, setup_context=_save)
_gradients.register_autograd(_gradients_backward, setup_context=_save_gradients)
_forward.register_autocast("cpu", torch.float32)
