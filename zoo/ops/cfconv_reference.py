"""Plain torch forms of the operators in `zoo.ops.cfconv`, with the same arguments.

They use only operators that whole-graph compilers know (row gathers by `index_select`, sums by
`scatter_add` with an expanded index), are differentiable to any order by autograd, and stand in
for the kernels on other devices, in exported programs and with ZOO_KERNELS=reference.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _hermite(order: int, t: Tensor, step: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights of (value, slope, next value, next slope) at t in [0, 1]; derivatives in distance."""
    if order == 0:
        return (
            (1 + 2 * t) * (1 - t) * (1 - t),
            t * (1 - t) * (1 - t) * step,
            t * t * (3 - 2 * t),
            t * t * (t - 1) * step,
        )
    if order == 1:
        rise = 6 * t * (1 - t) / step
        return -rise, (3 * t - 1) * (t - 1), rise, t * (3 * t - 2)
    if order == 2:
        bend = (12 * t - 6) / step**2
        return bend, (6 * t - 4) / step, -bend, (6 * t - 2) / step
    if order == 3:
        one = torch.ones_like(t)
        return 12 / step**3 * one, 6 / step**2 * one, -12 / step**3 * one, 6 / step**2 * one
    zero = torch.zeros_like(t)
    return zero, zero, zero, zero


def _intervals(
    distance: Tensor, dst_ptr: Tensor, cutoff: float, knots: int, order: int
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Each edge's interval [E] (int64) and its four Hermite weights [E, 1], zero where the edge is
    padding or past the cutoff.
    """
    step = cutoff / (knots - 1)
    number = torch.arange(distance.shape[0], device=distance.device)
    inside = (distance >= cutoff).logical_not()  # NaN stays in, and shows
    real = (number < dst_ptr[-1]) & inside
    # Padding may hold anything, NaN too: it is replaced before arithmetic, not multiplied away.
    safe = torch.where(real, distance, torch.zeros_like(distance))
    interval = (safe / step).to(torch.int64).clamp(0, knots - 2)
    weights = _hermite(order, safe / step - interval.to(safe.dtype), step)
    zero = torch.zeros_like(safe)
    return interval, tuple(torch.where(real, w, zero).unsqueeze(1) for w in weights)


def _filters_per_edge(
    table: Tensor, distance: Tensor, dst_ptr: Tensor, cutoff: float, order: int
) -> Tensor:
    """W^(order)(distance): [E, F]."""
    knots, _, features = table.shape
    interval, (c0, c1, c2, c3) = _intervals(distance, dst_ptr, cutoff, knots, order)
    near = table.reshape(knots, 2 * features).index_select(0, interval)
    far = table.reshape(knots, 2 * features).index_select(0, interval + 1)
    return (
        c0 * near[:, :features]
        + c1 * near[:, features:]
        + c2 * far[:, :features]
        + c3 * far[:, features:]
    )


def _rows(values: Tensor, index: Tensor, rows: int) -> Tensor:
    """Sum rows of `values` [E, F] by `index` [E] into [rows, F]."""
    target = index.to(torch.int64).unsqueeze(1).expand(-1, values.shape[1])
    return values.new_zeros(rows, values.shape[1]).scatter_add(0, target, values)


def _real_only(values: Tensor, dst_ptr: Tensor) -> Tensor:
    """`values` [E, F] with padding edges' rows replaced by zero."""
    number = torch.arange(values.shape[0], device=values.device)
    return torch.where((number < dst_ptr[-1]).unsqueeze(1), values, torch.zeros_like(values))


def cfconv(
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
    origin, target = (dst, src) if transposed else (src, dst)
    filters = _filters_per_edge(table, distance, dst_ptr, cutoff, order)
    messages = _real_only(x.index_select(0, origin), dst_ptr) * filters
    if weight is not None:
        messages = messages * _real_only(weight.unsqueeze(1), dst_ptr)
    return _rows(messages, target, x.shape[0])


def filters(
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
    interval, (c0, c1, c2, c3) = _intervals(distance, dst_ptr, cutoff, knots, order)
    product = _real_only(grad.index_select(0, dst) * x.index_select(0, src), dst_ptr)
    if weight is not None:
        product = product * _real_only(weight.unsqueeze(1), dst_ptr)
    near = _rows(torch.cat([c0 * product, c1 * product], 1), interval, knots)
    far = _rows(torch.cat([c2 * product, c3 * product], 1), interval + 1, knots)
    return (near + far).reshape(knots, 2, x.shape[1])


def pairs(
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
    product = _real_only(grad.index_select(0, dst) * x.index_select(0, src), dst_ptr)
    return (product * _filters_per_edge(table, distance, dst_ptr, cutoff, order)).sum(1)
