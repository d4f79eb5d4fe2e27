"""Plain torch forms of the operators in `zoo.ops.propagate_edge`, with the same arguments."""

from __future__ import annotations

import torch
from torch import Tensor


def _masked(
    value: Tensor, x: Tensor, table: Tensor, edge_type: Tensor, src: Tensor, dst_ptr: Tensor
) -> Tensor:
    """`value` [E, F] where a real edge's sum x[src] + table[type] is positive, else zero."""
    summed = x.index_select(0, src) + table.index_select(0, edge_type)
    real = torch.arange(src.shape[0], device=src.device) < dst_ptr[-1]
    # asked this way round, NaN passes
    closed = (summed <= 0) | ~real.unsqueeze(1)
    return torch.where(closed, torch.zeros_like(value), value)


def _rows(values: Tensor, index: Tensor, rows: int) -> Tensor:
    target = index.to(torch.int64).unsqueeze(1).expand(-1, values.shape[1])
    return values.new_zeros(rows, values.shape[1]).scatter_add(0, target, values)


def messages(
    v: Tensor,
    w: Tensor,
    x: Tensor,
    table: Tensor,
    edge_type: Tensor,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    src_ptr: Tensor,
    src_perm: Tensor,
) -> Tensor:
    value = v.index_select(0, src) + w.index_select(0, edge_type)
    return _rows(_masked(value, x, table, edge_type, src, dst_ptr), dst, x.shape[0])


def to_nodes(
    g: Tensor,
    x: Tensor,
    table: Tensor,
    edge_type: Tensor,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    src_ptr: Tensor,
    src_perm: Tensor,
) -> Tensor:
    value = g.index_select(0, dst)
    return _rows(_masked(value, x, table, edge_type, src, dst_ptr), src, x.shape[0])


def to_types(
    g: Tensor,
    x: Tensor,
    table: Tensor,
    edge_type: Tensor,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    src_ptr: Tensor,
    src_perm: Tensor,
) -> Tensor:
    value = g.index_select(0, dst)
    return _rows(_masked(value, x, table, edge_type, src, dst_ptr), edge_type, table.shape[0])
