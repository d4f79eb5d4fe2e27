"""Plain torch form of the operator in `zoo.ops.propagate_relation`."""

from __future__ import annotations

import torch
from torch import Tensor

from zoo.ops import segment_reference

FLOOR = 1e-6


def messages(x: Tensor, relations: Tensor, message: str) -> Tensor:
    """What an edge carries, of its source's row and its relation's: [E, B, D]."""
    if message == "multiply":
        return x * relations
    if message == "add":
        return x + relations
    a, b, c, d = x[..., 0::2], x[..., 1::2], relations[..., 0::2], relations[..., 1::2]
    turned = a * c - b * d, a * d + b * c
    return torch.stack(turned, dim=-1).flatten(-2)


def propagate_relation(
    x: Tensor,
    relations: Tensor,
    start: Tensor,
    edge_type: Tensor,
    keep: Tensor,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    message: str,
    reduce: str,
    weight: Tensor | None = None,
) -> Tensor:
    """`weight` [E], where given, multiplies each message: what is differentiated to explain."""
    nodes, queries, width = x.shape
    carried = messages(x.index_select(0, src), relations.index_select(0, edge_type), message)
    if weight is not None:
        carried = carried * weight.view(-1, 1, 1)
    real = keep & (torch.arange(src.shape[0], device=x.device) < dst_ptr[-1])
    # one node more, for what isn't kept; replaced, so that its NaN reaches nothing
    target = torch.where(real, dst.to(torch.int64), torch.full_like(dst, nodes, dtype=torch.int64))
    carried = torch.where(real.view(-1, 1, 1), carried, torch.zeros_like(carried))
    entries = torch.cat([start, carried]).flatten(1)
    index = torch.cat([torch.arange(nodes, device=x.device), target])

    def reduced(values: Tensor, how: str) -> Tensor:
        found = segment_reference.scatter_reduce(values, index, nodes + 1, how)[:nodes]
        return found.view(nodes, queries, width)

    if reduce in ("sum", "max"):
        return reduced(entries, reduce)
    mean = reduced(entries, "mean")
    variance = reduced(entries * entries, "mean") - mean * mean
    deviation = variance.clamp(min=FLOOR).sqrt()
    return torch.cat([mean, reduced(entries, "max"), reduced(entries, "min"), deviation], dim=-1)
