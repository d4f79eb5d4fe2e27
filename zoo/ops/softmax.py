"""Softmax over the entries of each segment, one feature at a time.

    out[k] = exp(x[k]) / sum over k's segment of exp(x)

x [E, F] is sorted by segment, ptr [N + 1] says where each begins. Rows from ptr[-1] on are padding:
they give zero and get no gradient. NaN in a segment shows, as does infinity; a segment of -inf
alone is NaN, as in torch. Wrong row pointers raise IndexError, wrong shapes ValueError.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from zoo.ops.dispatch import array, define
from zoo.ops.graph_check import check_rows, check_segments
from zoo.ops.launcher import chunks_for, launch
from zoo.ops.memory import new_rows
from zoo.ops.segment import segment_expand, segment_reduce
from zoo.ops.segment_reference import segment_of

Context = Any


def segment_softmax(x: Tensor, ptr: Tensor) -> Tensor:
    """Softmax within each segment: [E, F] -> [E, F]; see the module's text."""
    out: Tensor = _softmax(x, ptr)
    return out


@cache
def _kernels() -> Any:
    """Numba and what it compiles are imported at the first call."""
    from zoo.ops import softmax_kernel

    return softmax_kernel


def _cpu(x: Tensor, ptr: Tensor) -> Tensor:
    out, chunks = _prepare("segment_softmax", ptr, x)
    given = array(x), array(ptr), x.dtype == torch.float32
    launch(_kernels().softmax, *given, out.numpy(), chunks, chunks=chunks)
    return out


def _backward_cpu(grad: Tensor, out: Tensor, ptr: Tensor) -> Tensor:
    if grad.shape != out.shape:
        raise ValueError(f"segment_softmax: a gradient {list(grad.shape)} for {list(out.shape)}")
    slope, chunks = _prepare("segment_softmax_backward", ptr, grad, out)
    given = array(grad), array(out), array(ptr)
    launch(_kernels().softmax_backward, *given, slope.numpy(), chunks, chunks=chunks)
    return slope


def _prepare(op: str, ptr: Tensor, *rows: Tensor) -> tuple[Tensor, int]:
    """Check arguments; the result to fill, padding already zero, and the chunks to do it in."""
    check_rows(op, *rows)
    check_segments(op=op, rows=rows[0].shape[0], ptr=ptr, perm=None)
    out = new_rows(*rows[0].shape, dtype=rows[0].dtype)
    out[int(ptr[-1]) :] = 0
    return out, chunks_for(_PASSES * out.numel())


_PASSES = 4
"""A softmax reads and writes each number about so often, an exponential counted in."""


def _reference(x: Tensor, ptr: Tensor) -> Tensor:
    """The same in plain torch: see `zoo.ops.segment_reference`."""
    segment, wide, size = _wide(x, ptr)
    if x.shape[0] == 0:
        return x.clone()
    low = x.new_full((size, x.shape[1]), -torch.inf)
    most = low.scatter_reduce(0, wide, x.detach(), "amax").index_select(0, segment)
    powers = torch.exp(x - most)
    total = x.new_zeros(size, x.shape[1]).scatter_add(0, wide, powers)
    share = powers / total.index_select(0, segment)
    return torch.where((segment < size - 1).unsqueeze(1), share, torch.zeros_like(share))


def _backward_reference(grad: Tensor, out: Tensor, ptr: Tensor) -> Tensor:
    segment, wide, size = _wide(grad, ptr)
    total = grad.new_zeros(size, grad.shape[1]).scatter_add(0, wide, grad * out)
    slope = out * (grad - total.index_select(0, segment))
    return torch.where((segment < size - 1).unsqueeze(1), slope, torch.zeros_like(slope))


def _wide(x: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor, int]:
    """Segments [E] and [E, F], and how many there are with one for padding."""
    segment = segment_of(ptr, x.shape[0])
    return segment, segment.unsqueeze(1).expand_as(x), ptr.shape[0]


def _save(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output, inputs[1])


def _backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    out, ptr = ctx.saved_tensors
    return _slope(grad, out, ptr), None


def _save_slope(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _slope_backward(ctx: Context, up: Tensor) -> tuple[Tensor | None, ...]:
    grad, out, ptr = ctx.saved_tensors
    d_grad = d_out = None
    if ctx.needs_input_grad[0]:
        d_grad = _slope(up, out, ptr)
    if ctx.needs_input_grad[1]:
        entries = grad.shape[0]
        along = segment_expand(segment_reduce(grad * out, ptr), ptr, entries=entries)
        back = segment_expand(segment_reduce(up * out, ptr), ptr, entries=entries)
        d_out = up * (grad - along) - grad * back
        place = torch.arange(entries, device=ptr.device, dtype=ptr.dtype)
        d_out = torch.where((place < ptr[-1]).unsqueeze(1), d_out, torch.zeros_like(d_out))
    return d_grad, d_out, None


_softmax = define(
    name="segment_softmax",
    cpu=_cpu,
    reference=_reference,
    fake=lambda x, ptr: x.new_empty(x.shape),
    save=_save,
    backward=_backward,
)
_slope = define(
    name="segment_softmax_backward",
    cpu=_backward_cpu,
    reference=_backward_reference,
    fake=lambda grad, out, ptr: grad.new_empty(grad.shape),
    save=_save_slope,
    backward=_slope_backward,
)
