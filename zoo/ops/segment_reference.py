"""Plain torch forms of the operators in `zoo.ops.segment` and `zoo.ops.scatter`.

They use only operators that whole-graph compilers know, `scatter_add` and `scatter_reduce` with an
expanded index among them, and stand in for the kernels on other devices, in exported programs and
with ZOO_KERNELS=reference.
"""

from __future__ import annotations

import torch
from torch import Tensor


def segment_of(ptr: Tensor, entries: int) -> Tensor:
    """The segment of each entry: int64 [entries]; the number of segments for what is in none."""
    place = torch.arange(entries, device=ptr.device, dtype=ptr.dtype)
    return torch.bucketize(place, ptr[1:], right=True)


def scatter_reduce(x: Tensor, index: Tensor, size: int, reduce: str) -> Tensor:
    """Rows of x [E, F] reduced by index [E] into [size, F]; zero where there is none."""
    wide = index.to(torch.int64).unsqueeze(1).expand(-1, x.shape[1])
    zero = x.new_zeros(size, x.shape[1])
    if reduce in ("sum", "mean"):
        total = zero.scatter_add(0, wide, x)
        if reduce == "sum":
            return total
        ones = torch.ones_like(x[:, :1])
        count = zero[:, :1].scatter_add(0, wide[:, :1], ones)
        return total / count.clamp(min=1)
    if x.shape[0] == 0:
        return zero
    found = _extremes(x.detach(), index, size, reduce)
    at = _first_row(x.detach(), found, index)
    return torch.where(at < x.shape[0], x.gather(0, at.clamp(max=x.shape[0] - 1)), zero)


def _extremes(values: Tensor, index: Tensor, size: int, reduce: str) -> Tensor:
    wide = index.to(torch.int64).unsqueeze(1).expand_as(values)
    worst = -torch.inf if reduce == "max" else torch.inf
    out = values.new_full((size, values.shape[1]), worst)
    return out.scatter_reduce(0, wide, values, "amax" if reduce == "max" else "amin")


def _first_row(values: Tensor, found: Tensor, index: Tensor) -> Tensor:
    """The first row of `values` [E, F] that holds found[n, f] or is NaN: int64, E where none is."""
    wide = index.to(torch.int64).unsqueeze(1).expand_as(values)
    same = (values == found.index_select(0, index)) | (values != values)
    number = torch.arange(values.shape[0], device=values.device).unsqueeze(1).expand_as(values)
    hit = torch.where(same, number, torch.full_like(number, values.shape[0]))
    none = torch.full_like(found, values.shape[0], dtype=torch.int64)
    return none.scatter_reduce(0, wide, hit, "amin")


def segment_reduce(x: Tensor, ptr: Tensor, perm: Tensor | None, reduce: str) -> Tensor:
    size = ptr.shape[0] - 1
    entries = x if perm is None else x.index_select(0, perm)
    # one segment more, for what belongs to none
    return scatter_reduce(entries, segment_of(ptr, entries.shape[0]), size + 1, reduce)[:size]


def segment_first(x: Tensor, found: Tensor, ptr: Tensor, perm: Tensor | None) -> Tensor:
    size = ptr.shape[0] - 1
    none = torch.full_like(found, -1, dtype=torch.int64)
    values = x if perm is None else x.index_select(0, perm)
    entries = values.shape[0]
    if entries == 0:
        return none.to(torch.int32)
    more = torch.cat([found, found.new_zeros(1, found.shape[1])])
    at = _first_row(values, more, segment_of(ptr, entries))[:size]
    row = at
    if perm is not None:
        place = at.clamp(max=entries - 1).flatten()
        row = perm.to(torch.int64).index_select(0, place).view_as(at)
    return torch.where(at < entries, row, none).to(torch.int32)


def segment_expand(
    rows: Tensor, ptr: Tensor, perm: Tensor | None, entries: int, mean: bool
) -> Tensor:
    if mean:
        count = (ptr[1:] - ptr[:-1]).clamp(min=1).unsqueeze(1)
        rows = rows / count.to(rows.dtype)
    places = entries if perm is None else perm.shape[0]
    more = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
    spread = more.index_select(0, segment_of(ptr, places))
    if perm is None:
        return spread
    target = perm.to(torch.int64).unsqueeze(1).expand_as(spread)
    return rows.new_zeros(entries, rows.shape[1]).scatter_add(0, target, spread)


def segment_place(values: Tensor, at: Tensor, rows: int) -> Tensor:
    real = at >= 0
    target = torch.where(real, at, torch.zeros_like(at)).to(torch.int64)
    given = torch.where(real, values, torch.zeros_like(values))
    # one row more, so that there is one to add nothing to
    out = values.new_zeros(rows + 1, values.shape[1])
    return out.scatter_add(0, target, given)[:rows]


def segment_pick(x: Tensor, at: Tensor) -> Tensor:
    real = at >= 0
    target = torch.where(real, at, torch.zeros_like(at)).to(torch.int64)
    more = torch.cat([x, x.new_zeros(1, x.shape[1])])
    return torch.where(real, more.gather(0, target), x.new_zeros(()))


def sort_index(index: Tensor, size: int) -> tuple[Tensor, Tensor]:
    perm = torch.sort(index, stable=True).indices
    count = torch.zeros(size + 1, dtype=torch.int64, device=index.device)
    count = count.scatter_add(0, index.to(torch.int64) + 1, torch.ones_like(perm))
    return perm.to(torch.int32), count.cumsum(0).to(torch.int32)
