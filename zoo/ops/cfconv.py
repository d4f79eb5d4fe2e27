"""Continuous-filter convolution with tabulated filters (SchNet, Schütt et al. 2017).

out[i] = sum over edges (j -> i) of x[j] * W(distance_ij), where W: [0, cutoff] -> R^F is given as a
table of values and slopes at equally spaced knots and interpolated by cubic Hermite polynomials:
continuously differentiable, zero from the cutoff on.

Three operators are closed under differentiation, to any order (`order` counts derivatives of the
interpolant with respect to distance, `weight` is an optional factor per edge):

    cfconv         out[i]  = sum_e  weight_e x[src_e] W^(order)(d_e)      (or transposed)
    cfconv_filters table   = sum_e  weight_e (grad[dst_e] x[src_e]) (x) Hermite^(order)(d_e)
    cfconv_pairs   out[e]  = sum_f  grad[dst_e] x[src_e] W^(order)(d_e)

Shapes: x, grad [N, F]; table [K, 2, F]; distance, weight, src, dst [E]; dst_ptr, src_ptr [N + 1];
src_perm [E]. Edges from dst_ptr[N] on are padding and are ignored. Edges are sorted by
destination, sources ascending in each row. `symmetric` promises that each edge's reverse is there
with the same distance and that no edge joins a node to itself, which halves the work of the
kernels.

A NaN distance makes what depends on it NaN. A negative one is extrapolated from the first interval.
Ids or row pointers out of range raise IndexError.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zoo.ops import cfconv_reference as reference
from zoo.ops.dispatch import define, use_kernel
from zoo.ops.graph_check import check_graph, check_values

Context = Any


def cfconv(
    x: Tensor,
    table: Tensor,
    distance: Tensor,
    *,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    src_ptr: Tensor,
    src_perm: Tensor,
    cutoff: float,
    symmetric: bool = False,
) -> Tensor:
    """Convolve node features with tabulated filters: [N, F] -> [N, F]; see the module's text."""
    arguments = (x, table, distance, None, src, dst, dst_ptr, src_ptr, src_perm, cutoff, 0)
    if use_kernel(x):
        out: Tensor = _cfconv(*arguments, symmetric, False)
        return out
    return reference.cfconv(*arguments, symmetric, False)


def _cfconv_cpu(
    x: Tensor,
    table: Tensor,
    distance: Tensor,
    weight: Tensor | None,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    src_ptr: Tensor,
    src_perm: Tensor,
    cutoff: float,
    order: int,
    symmetric: bool,
    transposed: bool,
) -> Tensor:
    import numpy as np

    from zoo.ops import cfconv_kernel as kernel
    from zoo.ops.launcher import CHUNKS, launch

    check_values(op="cfconv", nodes=(x,), edges=(distance, weight), table=table)
    _check_graph(x, distance, src, dst, dst_ptr, src_ptr, src_perm)
    values = [t.detach().contiguous().numpy() for t in (x, table, distance)]
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if symmetric and weight is None:
        ptr, sources = dst_ptr.numpy(), src.numpy()
        boundaries = np.empty(CHUNKS + 1, np.int64)
        kernel.blocks(ptr, sources, CHUNKS, boundaries)
        # One large graph is one block: then its rows are shared out instead.
        if 4 * np.diff(ptr[boundaries]).max() <= ptr[-1]:
            launch(
                kernel.conv_symmetric,
                *(*values, ptr, sources, cutoff, order, boundaries, out.numpy()),
            )
            return out
    weights = distance.new_empty(0) if weight is None else weight.detach().contiguous()
    rows = (src_ptr, src_perm, dst) if transposed else (dst_ptr, src_perm.new_empty(0), src)
    launch(
        kernel.conv,
        *values,
        weights.numpy(),
        *(t.numpy() for t in rows),
        *(cutoff, order, out.numpy(), CHUNKS),
    )
    return out


def _filters_cpu(
    grad: Tensor,
    x: Tensor,
    distance: Tensor,
    weight: Tensor | None,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    src_ptr: Tensor,
    src_perm: Tensor,
    cutoff: float,
    order: int,
    symmetric: bool,
    knots: int,
) -> Tensor:
    from zoo.ops import cfconv_kernel as kernel
    from zoo.ops.launcher import CHUNKS, launch

    check_values(op="cfconv_filters", nodes=(grad, x), edges=(distance, weight), table=None)
    _check_graph(x, distance, src, dst, dst_ptr, src_ptr, src_perm)
    if knots < 2:
        raise ValueError(f"cfconv_filters: a table needs at least 2 knots, not {knots}")
    count = int(dst_ptr[-1])
    half = symmetric and weight is None
    g, features, d = (t.detach().contiguous().numpy() for t in (grad, x, distance))
    ends = src.numpy(), dst.numpy()
    edges, interval_ptr = src.new_empty(count).numpy(), src.new_empty(knots).numpy()
    kernel.sort_by_knot(d, *ends, count, cutoff, half, edges, interval_ptr)
    moments = x.new_empty(knots - 1, 4, x.shape[1])
    rest = (*ends, edges, interval_ptr, cutoff, order, moments.numpy(), CHUNKS)
    if half:
        launch(kernel.filter_grad_symmetric, g, features, d, *rest)
    else:
        weights = distance.new_empty(0) if weight is None else weight.detach().contiguous()
        launch(kernel.filter_grad, g, features, d, weights.numpy(), *rest)
    table = x.new_zeros(knots, 2, x.shape[1])
    table[:-1] += moments[:, :2]
    table[1:] += moments[:, 2:]
    return table


def _pairs_cpu(
    grad: Tensor,
    x: Tensor,
    table: Tensor,
    distance: Tensor,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    src_ptr: Tensor,
    src_perm: Tensor,
    cutoff: float,
    order: int,
    symmetric: bool,
) -> Tensor:
    from zoo.ops import cfconv_kernel as kernel
    from zoo.ops.launcher import CHUNKS, launch

    check_values(op="cfconv_pairs", nodes=(grad, x), edges=(distance,), table=table)
    _check_graph(x, distance, src, dst, dst_ptr, src_ptr, src_perm)
    count = int(dst_ptr[-1])
    out = torch.zeros_like(distance)
    values = (t.detach().contiguous().numpy() for t in (grad, x, table, distance, src, dst))
    launch(kernel.pairs, *values, count, cutoff, order, out.numpy(), CHUNKS)
    return out


def _check_graph(x: Tensor, distance: Tensor, *graph: Tensor) -> None:
    src, dst, dst_ptr, src_ptr, src_perm = graph
    check_graph(
        op="cfconv",
        nodes=x.shape[0],
        edges=distance.shape[0],
        src=src,
        dst=dst,
        dst_ptr=dst_ptr,
        src_ptr=src_ptr,
        src_perm=src_perm,
    )


def _like_x(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _like_table(grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(rest[-1], 2, x.shape[1])


def _like_distance(grad: Tensor, x: Tensor, table: Tensor, distance: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(distance, memory_format=torch.contiguous_format)


def _save(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*(i for i in inputs if isinstance(i, Tensor)))
    ctx.weighted = isinstance(inputs[3], Tensor)
    ctx.rest = [i for i in inputs if not isinstance(i, Tensor) and i is not None]


def _unpack(ctx: Context) -> tuple[Any, ...]:
    saved = list(ctx.saved_tensors)
    if not ctx.weighted:
        saved.insert(3, None)
    return saved[0], saved[1], saved[2], saved[3], tuple(saved[4:])


def _cfconv_backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, table, distance, weight, graph = _unpack(ctx)
    cutoff, order, symmetric, transposed = ctx.rest
    need = ctx.needs_input_grad
    # <h, cfconv_transposed(g)> = <g, cfconv(h)>: both directions share the pair form.
    to, source = (x, grad) if transposed else (grad, x)
    d_x = d_table = d_distance = d_weight = None
    if need[0]:
        d_x = _cfconv(
            *(grad, table, distance, weight, *graph, cutoff, order, symmetric, not transposed)
        )
    if need[1]:
        knots = table.shape[0]
        d_table = _filters(*(to, source, distance, weight, *graph, cutoff, order, symmetric, knots))
    if need[2]:
        d_distance = _pairs(to, source, table, distance, *graph, cutoff, order + 1, symmetric)
        d_distance = d_distance if weight is None else d_distance * weight
    if need[3]:
        d_weight = _pairs(to, source, table, distance, *graph, cutoff, order, symmetric)
    return d_x, d_table, d_distance, d_weight, *[None] * 9


def _filters_backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    to, x, distance, weight, graph = _unpack(ctx)
    cutoff, order, symmetric, _ = ctx.rest
    need = ctx.needs_input_grad
    rest = (cutoff, order, symmetric)
    d_to = d_x = d_distance = d_weight = None
    if need[0]:
        d_to = _cfconv(x, grad, distance, weight, *graph, *rest, False)
    if need[1]:
        d_x = _cfconv(to, grad, distance, weight, *graph, *rest, True)
    if need[2]:
        d_distance = _pairs(to, x, grad, distance, *graph, cutoff, order + 1, symmetric)
        d_distance = d_distance if weight is None else d_distance * weight
    if need[3]:
        d_weight = _pairs(to, x, grad, distance, *graph, *rest)
    return d_to, d_x, d_distance, d_weight, *[None] * 9


def _save_pairs(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:9])
    ctx.rest = inputs[9:]


def _pairs_backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    to, x, table, distance, *graph = ctx.saved_tensors
    cutoff, order, symmetric = ctx.rest
    need = ctx.needs_input_grad
    rest = (cutoff, order, symmetric)
    d_to = d_x = d_table = d_distance = None
    if need[0]:
        d_to = _cfconv(x, table, distance, grad, *graph, *rest, False)
    if need[1]:
        d_x = _cfconv(to, table, distance, grad, *graph, *rest, True)
    if need[2]:
        d_table = _filters(to, x, distance, grad, *graph, *rest, table.shape[0])
    if need[3]:
        d_distance = grad * _pairs(*(to, x, table, distance, *graph, cutoff, order + 1, symmetric))
    return d_to, d_x, d_table, d_distance, *[None] * 8


_cfconv = define(
    name="cfconv",
    cpu=_cfconv_cpu,
    reference=reference.cfconv,
    fake=_like_x,
    save=_save,
    backward=_cfconv_backward,
)
_filters = define(
    name="cfconv_filters",
    cpu=_filters_cpu,
    reference=reference.filters,
    fake=_like_table,
    save=_save,
    backward=_filters_backward,
)
_pairs = define(
    name="cfconv_pairs",
    cpu=_pairs_cpu,
    reference=reference.pairs,
    fake=_like_distance,
    save=_save_pairs,
    backward=_pairs_backward,
)
