"""Reductions by an index in any order, and sorting by it.

`scatter_reduce` goes through a small index as it is, and sorts a larger one first. Where an index
is used again, sort it once with `sort_index` and reduce with
`zoo.ops.segment.segment_reduce(x, ptr, reduce, perm=perm)`.

out[n] is the sum, mean, maximum or minimum over the rows e of x with index[e] == n, zero where
there is none. NaN shows. Entries are taken in their order, so that results have the same bits on
any number of threads. Gradients are those of `zoo.ops.segment`.

Shapes: x [E, F]; index [E], whole numbers in 0..size-1; result [size, F]. An index out of range
raises IndexError, shapes that don't fit ValueError.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from zoo.ops import segment_reference as reference
from zoo.ops.dispatch import define
from zoo.ops.graph_check import check_rows, check_whole, known_to_fit
from zoo.ops.launcher import chunks_for, launch
from zoo.ops.memory import new_rows
from zoo.ops.segment import (
    REDUCTIONS,
    Reduce,
    like,
    reduce_at,
    segment_expand,
    segment_first,
    segment_place,
    unknown_reduction,
)

Context = Any

SORTED_FIRST = {"sum": 1 << 17, "mean": 1 << 17, "max": 1 << 15, "min": 1 << 15}
"""Numbers, read and written, above which a scatter to few rows sorts its index first: each row then
stays in registers until it is whole. Below, and where most rows stay empty, the sort costs more."""


def scatter_reduce(x: Tensor, index: Tensor, *, size: int, reduce: Reduce = "sum") -> Tensor:
    """Reduce rows of x by an unsorted index: [E, F] -> [size, F]; see the module's text."""
    if reduce not in REDUCTIONS:
        raise unknown_reduction("scatter_reduce", reduce)
    out: Tensor = _scatter(x, index, size, reduce)
    return out


def sort_index(index: Tensor, *, size: int) -> tuple[Tensor, Tensor]:
    """Sort entries by `index` [E], whole numbers in 0..size-1, stably, by counting.

    Returns perm int32 [E], the entries in order, and ptr int32 [size + 1], where each value begins.
    """
    perm, ptr = _sort(index, size)
    return perm, ptr


@cache
def _kernels() -> Any:
    """Numba and what it compiles are imported at the first call."""
    from zoo.ops import scatter_kernel

    return scatter_kernel


def _scatter_cpu(x: Tensor, index: Tensor, size: int, reduce: str) -> Tensor:
    check_rows("scatter_reduce", x)
    _check_index("scatter_reduce", index, size)
    entries, features = x.shape
    if index.shape[0] != entries:
        raise ValueError(f"scatter_reduce: {index.shape[0]} indices for {entries} rows")
    index = index.contiguous()
    moved = (size + entries) * features
    if moved > SORTED_FIRST[reduce] and 2 * entries >= size:
        return _sorted_first(x, index, size, reduce)
    kernel, whole = _kernels(), like()[index.dtype]
    if not kernel.within(index.data_ptr(), entries, size, whole):
        raise _outside("scatter_reduce", size)
    x, out = x.contiguous(), new_rows(size, features, dtype=x.dtype)
    # each chunk goes through the whole index: no more of them than give every thread something
    chunks = min(chunks_for(moved), 2 * torch.get_num_threads())
    launch(
        kernel.scatter,
        *(x.data_ptr(), index.data_ptr(), out.data_ptr(), entries, size, features),
        *(REDUCTIONS.index(reduce), like()[x.dtype], whole, chunks),
        chunks=chunks,
    )
    return out


def _sorted_first(x: Tensor, index: Tensor, size: int, reduce: str) -> Tensor:
    entries = index.shape[0]
    order = torch.empty(entries + size + 1, dtype=torch.int32)  # perm and ptr
    perm_at = order.data_ptr()
    ptr_at = perm_at + order.itemsize * entries
    _count_sort("scatter_reduce", index, size, perm_at=perm_at, ptr_at=ptr_at)
    return reduce_at(
        x, ptr_at=ptr_at, perm_at=perm_at, segments=size, reduce=reduce, id_dtype=order.dtype
    )


def _sort_cpu(index: Tensor, size: int) -> tuple[Tensor, Tensor]:
    _check_index("sort_index", index, size)
    index, entries = index.contiguous(), index.shape[0]
    perm = torch.empty(entries, dtype=torch.int32)
    ptr = torch.empty(size + 1, dtype=torch.int32)
    _count_sort("sort_index", index, size, perm_at=perm.data_ptr(), ptr_at=ptr.data_ptr())
    known_to_fit(rows=entries, ptr=ptr, perm=perm)
    return perm, ptr


def _count_sort(op: str, index: Tensor, size: int, *, perm_at: int, ptr_at: int) -> None:
    where = index.data_ptr(), perm_at, ptr_at, index.shape[0], size
    if not _kernels().count_sort(*where, like()[index.dtype]):
        raise _outside(op, size)


def _check_index(op: str, index: Tensor, size: int) -> None:
    if index.dim() != 1 or size < 0:
        raise ValueError(f"{op}: index {list(index.shape)} for {size} rows")
    check_whole(op, index)


def _outside(op: str, size: int) -> IndexError:
    return IndexError(f"{op}: an index is outside 0..{size - 1}")


def _save(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, index, size, ctx.reduce = inputs
    ctx.rows = x.shape[0]
    perm, ptr = sort_index(index, size=size)
    if ctx.reduce in ("max", "min"):
        ctx.save_for_backward(segment_first(x, output, ptr, perm))
    else:
        ctx.save_for_backward(ptr, perm)


def _backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    if ctx.reduce in ("max", "min"):
        return segment_place(grad, ctx.saved_tensors[0], ctx.rows), None, None, None
    ptr, perm = ctx.saved_tensors
    mean = ctx.reduce == "mean"
    return segment_expand(grad, ptr, entries=ctx.rows, perm=perm, mean=mean), None, None, None


_scatter = define(
    name="scatter_reduce",
    cpu=_scatter_cpu,
    reference=reference.scatter_reduce,
    fake=lambda x, index, size, reduce: x.new_empty(size, x.shape[1]),
    save=_save,
    backward=_backward,
)
_sort = define(
    name="sort_index",
    cpu=_sort_cpu,
    reference=reference.sort_index,
    fake=lambda index, size: (
        index.new_empty(index.shape, dtype=torch.int32),
        index.new_empty(size + 1, dtype=torch.int32),
    ),
)
