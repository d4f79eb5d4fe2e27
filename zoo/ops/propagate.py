"""Sums over neighbours: a sparse matrix times a dense one, in the batch contract.

    propagate        out[i] = sum over edges e into i of weight_e x[src_e]  (or transposed)
    propagate_dots   out[e] = sum over features of to[dst_e] x[src_e]

Both are closed under differentiation, to any order, and make no tensor [E, F].

Shapes: x, to [N, F]; weight, src, dst [E]; dst_ptr, src_ptr [N + 1]; src_perm [E]. Edges from
dst_ptr[N] on are padding and are ignored. Edges are sorted by destination. A node without edges
gets zero. Ids or row pointers out of range raise IndexError, shapes that don't fit ValueError.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from zoo.ops.dispatch import array, define
from zoo.ops.graph_check import check_graph, check_rows
from zoo.ops.launcher import chunks_for, launch
from zoo.ops.memory import new_rows
from zoo.ops.segment import as_ids, like

Context = Any


def propagate(
    x: Tensor,
    *,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    src_ptr: Tensor,
    src_perm: Tensor,
    weight: Tensor | None = None,
) -> Tensor:
    """Sum the rows of each node's neighbours, weighted by edge: [N, F] -> [N, F]."""
    out: Tensor = _propagate(x, weight, src, dst, dst_ptr, src_ptr, src_perm, False)
    return out


@cache
def _kernels() -> Any:
    """Numba and what it compiles are imported at the first call."""
    from zoo.ops import propagate_kernel

    return propagate_kernel


def _cpu(
    x: Tensor,
    weight: Tensor | None,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    src_ptr: Tensor,
    src_perm: Tensor,
    transposed: bool,
) -> Tensor:
    check_rows("propagate", x)
    _check_graph("propagate", x, (src, dst, dst_ptr, src_ptr, src_perm))
    if weight is not None and (weight.dtype != x.dtype or weight.shape != src.shape):
        raise ValueError(
            f"propagate: weights {list(weight.shape)} of {weight.dtype} for {src.shape[0]} edges "
            f"and rows of {x.dtype}"
        )
    nodes, features = x.shape
    ptr, other = (src_ptr, dst) if transposed else (dst_ptr, src)
    kind = ptr.dtype
    x, ptr, other = x.contiguous(), ptr.contiguous(), as_ids(other, kind)
    perm = as_ids(src_perm, kind) if transposed else other
    weights = x if weight is None else weight.contiguous()
    out = new_rows(nodes, features, dtype=x.dtype)
    chunks = chunks_for((nodes + src.shape[0]) * features)
    launch(
        _kernels().propagate,
        *(x.data_ptr(), ptr.data_ptr(), perm.data_ptr(), other.data_ptr(), weights.data_ptr()),
        *(out.data_ptr(), nodes, features, transposed, weight is not None),
        *(like()[x.dtype], like()[kind], chunks),
        chunks=chunks,
    )
    return out


def _dots_cpu(
    to: Tensor,
    x: Tensor,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    src_ptr: Tensor,
    src_perm: Tensor,
) -> Tensor:
    check_rows("propagate_dots", to, x)
    if to.shape != x.shape:
        raise ValueError(f"propagate_dots: rows {list(to.shape)} and {list(x.shape)}")
    _check_graph("propagate_dots", x, (src, dst, dst_ptr, src_ptr, src_perm))
    out = x.new_empty(src.shape[0])
    arrays = (array(t) for t in (to, x, src, dst))
    chunks = chunks_for(2 * src.shape[0] * x.shape[1])
    launch(_kernels().dots, *arrays, int(dst_ptr[-1]), out.numpy(), chunks, chunks=chunks)
    return out


def _check_graph(op: str, x: Tensor, graph: tuple[Tensor, ...]) -> None:
    src, dst, dst_ptr, src_ptr, src_perm = graph
    check_graph(
        op=op,
        nodes=x.shape[0],
        edges=src.shape[0],
        src=src,
        dst=dst,
        dst_ptr=dst_ptr,
        src_ptr=src_ptr,
        src_perm=src_perm,
    )


def _reference(
    x: Tensor,
    weight: Tensor | None,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    src_ptr: Tensor,
    src_perm: Tensor,
    transposed: bool,
) -> Tensor:
    """The same in plain torch, with operators that whole-graph compilers know."""
    origin, target = (dst, src) if transposed else (src, dst)
    real = _real(src, dst_ptr).unsqueeze(1)
    messages = x.index_select(0, origin)
    if weight is not None:
        messages = messages * weight.unsqueeze(1)
    messages = torch.where(real, messages, torch.zeros_like(messages))
    index = target.to(torch.int64).unsqueeze(1).expand_as(messages)
    return x.new_zeros(x.shape).scatter_add(0, index, messages)


def _dots_reference(
    to: Tensor,
    x: Tensor,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    src_ptr: Tensor,
    src_perm: Tensor,
) -> Tensor:
    products = (to.index_select(0, dst) * x.index_select(0, src)).sum(1)
    return torch.where(_real(src, dst_ptr), products, torch.zeros_like(products))


def _real(src: Tensor, dst_ptr: Tensor) -> Tensor:
    """Which edges are no padding: bool [E]."""
    return torch.arange(src.shape[0], device=src.device) < dst_ptr[-1]


def _save(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, *graph, ctx.transposed = inputs
    # x is needed for the gradient of weights alone: unweighted, it needn't be kept.
    ctx.weighted = weight is not None
    ctx.save_for_backward(*((x, weight) if ctx.weighted else ()), *graph)


def _backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    x, weight = saved[:2] if ctx.weighted else (None, None)
    graph = saved[2:] if ctx.weighted else saved
    d_x = d_weight = None
    if ctx.needs_input_grad[0]:
        d_x = _propagate(grad, weight, *graph, not ctx.transposed)
    if ctx.needs_input_grad[1]:
        # <h, transposed(g)> = <g, propagated(h)>: both directions share the products.
        to, source = (x, grad) if ctx.transposed else (grad, x)
        d_weight = _dots(to, source, *graph)
    return d_x, d_weight, *[None] * 6


def _save_dots(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _dots_backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    to, x, *graph = ctx.saved_tensors
    d_to = d_x = None
    if ctx.needs_input_grad[0]:
        d_to = _propagate(x, grad, *graph, False)
    if ctx.needs_input_grad[1]:
        d_x = _propagate(to, grad, *graph, True)
    return d_to, d_x, *[None] * 5


_propagate = define(
    name="propagate",
    cpu=_cpu,
    reference=_reference,
    fake=lambda x, *rest: x.new_empty(x.shape),
    save=_save,
    backward=_backward,
)
_dots = define(
    name="propagate_dots",
    cpu=_dots_cpu,
    reference=_dots_reference,
    fake=lambda to, x, src, *rest: x.new_empty(src.shape),
    save=_save_dots,
    backward=_dots_backward,
)
