"""Reductions over segments of rows: per destination, per graph, per cluster.

Segment n holds the entries ptr[n]:ptr[n + 1]: rows of x themselves, where x is sorted by segment,
or the rows that `perm` names, where it isn't. Rows that belong to no segment (padding, from ptr[-1]
on) are ignored. A segment without entries gives zero, also its maximum. NaN in a segment shows.

The gradient of a maximum or minimum goes to the first entry that holds it, undivided.

Shapes: x [E, F]; ptr [N + 1] whole numbers rising from 0; perm [at least ptr[-1]], no row twice;
results [N, F]. Row pointers or rows out of range raise IndexError, shapes that don't fit
ValueError.

Five operators, closed under differentiation:

    segment_reduce   out[n] = sum, mean, max or min over the rows of segment n
    segment_first    which row holds each maximum or minimum (has no derivative)
    segment_expand   out[e] = the row of e's segment (over its size, for the mean)
    segment_place    out[at[n, f], f] = values[n, f]
    segment_pick     out[n, f] = x[at[n, f], f]
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from zoo.ops import segment_reference as reference
from zoo.ops.dispatch import array, define
from zoo.ops.graph_check import check_rows, check_segments
from zoo.ops.launcher import chunks_for, launch
from zoo.ops.memory import new_rows

Context = Any
Reduce = Literal["sum", "mean", "max", "min"]
REDUCTIONS: tuple[str, ...] = get_args(Reduce)
_EXTREMES = ("max", "min")


def segment_reduce(
    x: Tensor, ptr: Tensor, reduce: Reduce = "sum", *, perm: Tensor | None = None
) -> Tensor:
    """Reduce the rows of each segment: [E, F] -> [N, F]; see the module's text."""
    if reduce not in REDUCTIONS:
        raise unknown_reduction("segment_reduce", reduce)
    out: Tensor = _reduce(x, ptr, perm, reduce)
    return out


def segment_expand(
    rows: Tensor, ptr: Tensor, *, entries: int, perm: Tensor | None = None, mean: bool = False
) -> Tensor:
    """Give each entry the row of its segment, over the segment's size if `mean`: the transpose of
    a sum or mean. [N, F] -> [entries, F]; zero for what belongs to no segment.
    """
    out: Tensor = _expand(rows, ptr, perm, entries, mean)
    return out


def unknown_reduction(op: str, reduce: str) -> ValueError:
    return ValueError(f"{op}: reduce is {reduce!r}, not one of {', '.join(REDUCTIONS)}")


@cache
def _kernels() -> Any:
    """Numba and what it compiles are imported at the first call."""
    from zoo.ops import segment_kernel

    return segment_kernel


def as_ids(ids: Tensor, kind: torch.dtype) -> Tensor:
    """Contiguous ids of a kind; those that are so already at once (torch takes 2 µs to see it)."""
    return (ids if ids.dtype is kind else ids.to(kind)).contiguous()


@cache
def like() -> Any:
    """A number of each type, by which a kernel knows what lies at an address."""
    from zoo.ops.vector import LIKE

    return LIKE


def _reduce_cpu(x: Tensor, ptr: Tensor, perm: Tensor | None, reduce: str) -> Tensor:
    check_rows("segment_reduce", x)
    check_segments(op="segment_reduce", rows=x.shape[0], ptr=ptr, perm=perm)
    ptr = ptr.contiguous()
    ids = None if perm is None else as_ids(perm, ptr.dtype)
    return reduce_at(
        x,
        ptr_at=ptr.data_ptr(),
        perm_at=None if ids is None else ids.data_ptr(),
        segments=ptr.shape[0] - 1,
        reduce=reduce,
        id_dtype=ptr.dtype,
    )


def reduce_at(
    x: Tensor,
    *,
    ptr_at: int,
    perm_at: int | None,
    segments: int,
    reduce: str,
    id_dtype: torch.dtype,
) -> Tensor:
    """`segment_reduce` for a ptr and perm at addresses, of which is known that they fit x."""
    x = x.contiguous()
    entries, features = x.shape
    out = new_rows(segments, features, dtype=x.dtype)
    chunks = chunks_for((segments + entries) * features)
    launch(
        _kernels().extreme_segments if reduce in _EXTREMES else _kernels().sum_segments,
        *(x.data_ptr(), ptr_at, 0 if perm_at is None else perm_at, out.data_ptr()),
        *(segments, features, perm_at is not None, reduce in ("mean", "max")),
        *(like()[x.dtype], like()[id_dtype], chunks),
        chunks=chunks,
    )
    return out


def _first_cpu(x: Tensor, found: Tensor, ptr: Tensor, perm: Tensor | None) -> Tensor:
    check_rows("segment_first", x, found)
    ids = _segments("segment_first", ptr, perm, x.shape[0], found)
    out = torch.empty(found.shape, dtype=torch.int32)
    chunks = chunks_for(found.numel() + x.numel())
    arrays = array(x), array(found), *ids, out.numpy()
    launch(_kernels().find_first, *arrays, chunks, chunks=chunks)
    return out


def _expand_cpu(rows: Tensor, ptr: Tensor, perm: Tensor | None, entries: int, mean: bool) -> Tensor:
    check_rows("segment_expand", rows)
    ids = _segments("segment_expand", ptr, perm, entries, rows)
    out = new_rows(entries, rows.shape[1], dtype=rows.dtype)
    used = int(ids[0][-1])
    # What belongs to no segment gets nothing: the last rows where they are in order.
    if used < entries:
        out[used if perm is None else 0 :] = 0
    chunks = chunks_for(rows.numel() + out.numel())
    launch(_kernels().expand, array(rows), *ids, mean, out.numpy(), chunks, chunks=chunks)
    return out


def _place_cpu(values: Tensor, at: Tensor, rows: int) -> Tensor:
    _check_places("segment_place", values, at, rows)
    if values.shape != at.shape:
        raise ValueError(f"segment_place: {list(values.shape)} values for {list(at.shape)} places")
    out = new_rows(rows, values.shape[1], dtype=values.dtype).zero_()
    chunks = chunks_for(values.numel())
    launch(_kernels().place, array(values), array(at), out.numpy(), chunks, chunks=chunks)
    return out


def _pick_cpu(x: Tensor, at: Tensor) -> Tensor:
    _check_places("segment_pick", x, at, x.shape[0])
    out = new_rows(*at.shape, dtype=x.dtype)
    chunks = chunks_for(at.numel())
    launch(_kernels().pick, array(x), array(at), out.numpy(), chunks, chunks=chunks)
    return out


def _segments(
    op: str, ptr: Tensor, perm: Tensor | None, rows: int, per_segment: Tensor
) -> tuple[Any, Any, bool]:
    """ptr, perm and whether there is one, checked, for a kernel."""
    check_segments(op=op, rows=rows, ptr=ptr, perm=perm)
    if per_segment.shape[0] != ptr.shape[0] - 1:
        raise ValueError(f"{op}: {per_segment.shape[0]} rows for {ptr.shape[0] - 1} segments")
    pointers = array(ptr)
    return pointers, pointers if perm is None else array(perm), perm is not None


def _check_places(op: str, values: Tensor, at: Tensor, rows: int) -> None:
    check_rows(op, values)
    if at.dim() != 2 or at.shape[1] != values.shape[1]:
        raise ValueError(f"{op}: places {list(at.shape)} for rows {list(values.shape)}")
    if at.numel() and int(at.max()) >= rows:
        raise IndexError(f"{op}: a place is outside 0..{rows - 1}")


def _save(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, ptr, perm, ctx.reduce = inputs
    ctx.rows = x.shape[0]
    if ctx.reduce in _EXTREMES:
        ctx.save_for_backward(segment_first(x, output, ptr, perm))
    else:
        ctx.save_for_backward(ptr, perm)


def _reduce_backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    if ctx.reduce in _EXTREMES:
        return segment_place(grad, ctx.saved_tensors[0], ctx.rows), None, None, None
    ptr, perm = ctx.saved_tensors
    return _expand(grad, ptr, perm, ctx.rows, ctx.reduce == "mean"), None, None, None


def _save_expand(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1], inputs[2])
    ctx.mean = inputs[4]


def _expand_backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    ptr, perm = ctx.saved_tensors
    return _reduce(grad, ptr, perm, "mean" if ctx.mean else "sum"), None, None, None, None


def _save_places(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])
    ctx.rows = inputs[0].shape[0]


def _place_backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    return segment_pick(grad, ctx.saved_tensors[0]), None, None


def _pick_backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    return segment_place(grad, ctx.saved_tensors[0], ctx.rows), None


_reduce = define(
    name="segment_reduce",
    cpu=_reduce_cpu,
    reference=reference.segment_reduce,
    fake=lambda x, ptr, perm, reduce: x.new_empty(ptr.shape[0] - 1, x.shape[1]),
    save=_save,
    backward=_reduce_backward,
)
segment_first = define(
    name="segment_first",
    cpu=_first_cpu,
    reference=reference.segment_first,
    fake=lambda x, found, ptr, perm: found.new_empty(found.shape, dtype=torch.int32),
)
_expand = define(
    name="segment_expand",
    cpu=_expand_cpu,
    reference=reference.segment_expand,
    fake=lambda rows, ptr, perm, entries, mean: rows.new_empty(entries, rows.shape[1]),
    save=_save_expand,
    backward=_expand_backward,
)
segment_place = define(
    name="segment_place",
    cpu=_place_cpu,
    reference=reference.segment_place,
    fake=lambda values, at, rows: values.new_empty(rows, values.shape[1]),
    save=_save_places,
    backward=_place_backward,
)
segment_pick = define(
    name="segment_pick",
    cpu=_pick_cpu,
    reference=reference.segment_pick,
    fake=lambda x, at: x.new_empty(at.shape),
    save=_save_places,
    backward=_pick_backward,
)
