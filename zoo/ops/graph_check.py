"""What a kernel needs of its arguments so that it stays within its arrays.

Kernels don't check bounds: a node id out of range or a table of another width would read or write
foreign memory. So each call is checked beforehand; what was just checked, and not written to since,
is not checked again.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

_Known = tuple[int, list[tuple[weakref.ref[Tensor], int]]]


class _Recent(threading.local):
    """What this thread checked last: rows that ids may name, and the tensors with their versions.

    Several, since a step goes back and forth between edges, graphs and what it sorted.
    """

    def __init__(self) -> None:
        self.checked: deque[_Known] = deque(maxlen=4)


_recent = _Recent()


def check_graph(
    *,
    op: str,
    nodes: int,
    edges: int,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    src_ptr: Tensor,
    src_perm: Tensor,
) -> None:
    """ValueError for shapes that don't fit, IndexError for ids or row pointers out of range.

    Ids of padding edges, from dst_ptr[nodes] on, may be anything.
    """
    if dst_ptr.shape != (nodes + 1,) or src.shape != (edges,):
        raise ValueError(
            f"{op}: {nodes} nodes and {edges} edges come with dst_ptr {list(dst_ptr.shape)} "
            f"and src {list(src.shape)}"
        )
    graph = (src, dst, dst_ptr, src_ptr, src_perm)
    if _was_checked(nodes, graph):
        return
    if src_ptr.shape != dst_ptr.shape or src.shape != dst.shape or src.shape != src_perm.shape:
        raise ValueError(
            f"{op}: src, dst, dst_ptr, src_ptr and src_perm are {_shapes(*graph)}, "
            "not [E], [E], [N + 1], [N + 1] and [E]"
        )
    check_whole(op, *graph)
    from zoo.ops.graph_kernel import fits

    if not fits(*(t.numpy() for t in graph)):
        raise IndexError(
            f"{op}: an edge names a node outside 0..{nodes - 1}, "
            "or dst_ptr, src_ptr and src_perm don't fit the edges"
        )
    _remember(nodes, graph)


def check_rows(op: str, first: Tensor, *others: Tensor) -> None:
    """ValueError unless all are [rows, features], of one width and kind of float."""
    if first.dim() != 2 or not first.is_floating_point():
        raise ValueError(f"{op}: rows are {_shapes(first)} of {first.dtype}, not [R, F] of floats")
    for rows in others:
        if rows.dim() != 2 or rows.shape[1] != first.shape[1]:
            raise ValueError(f"{op}: rows are {_shapes(first, *others)}, not all [R, F]")
        if rows.dtype != first.dtype:
            raise ValueError(f"{op}: rows of {first.dtype} and {rows.dtype}; convert to one")


def check_segments(*, op: str, rows: int, ptr: Tensor, perm: Tensor | None) -> None:
    """ValueError for shapes that don't fit, IndexError for row pointers or rows out of range.

    What `perm` holds from ptr[-1] on may be anything.
    """
    if ptr.dim() != 1 or ptr.shape[0] < 1 or (perm is not None and perm.dim() != 1):
        given = _shapes(ptr) if perm is None else _shapes(ptr, perm)
        raise ValueError(f"{op}: ptr (and perm) are {given}, not [segments + 1] (and [entries])")
    segments = (ptr,) if perm is None else (ptr, perm)
    if _was_checked(rows, segments):
        return
    check_whole(op, *segments)
    from zoo.ops.graph_kernel import segments_fit

    ids = ptr.new_empty(0) if perm is None else perm
    if not segments_fit(ptr.numpy(), ids.numpy(), perm is not None, rows):
        raise IndexError(
            f"{op}: ptr doesn't rise from 0 to at most the entries there are, "
            f"or perm names a row outside 0..{rows - 1}"
        )
    _remember(rows, segments)


def check_whole(op: str, *ids: Tensor) -> None:
    """ValueError unless all are int32 or int64."""
    for t in ids:
        if t.dtype is not torch.int32 and t.dtype is not torch.int64:
            raise ValueError(f"{op}: ids or row pointers of {t.dtype}, not int32 or int64")


def known_to_fit(*, rows: int, ptr: Tensor, perm: Tensor) -> None:
    """Spare the check of a sorting that was just made for this many rows."""
    _remember(rows, (ptr, perm))


def _remember(rows: int, tensors: Sequence[Tensor]) -> None:
    # inference tensors count no versions: whether they were written to can't be known
    if not any(t.is_inference() for t in tensors):
        _recent.checked.appendleft((rows, [(weakref.ref(t), t._version) for t in tensors]))


def _was_checked(rows: int, tensors: Sequence[Tensor]) -> bool:
    for limit, known in _recent.checked:
        if limit == rows and len(known) == len(tensors):
            for (ref, version), tensor in zip(known, tensors, strict=True):
                if ref() is not tensor or version != tensor._version:
                    break
            else:
                return True
    return False


def check_values(
    *, op: str, nodes: Sequence[Tensor], edges: Sequence[Tensor | None], table: Tensor | None
) -> None:
    """ValueError unless node rows are [N, F], edge values [E], `table` [K >= 2, 2, F], one dtype.

    None stands for a value that isn't there.
    """
    given = [t for t in edges if t is not None]
    if any(t.dim() != 2 or t.shape != nodes[0].shape for t in nodes):
        raise ValueError(f"{op}: node features are {_shapes(*nodes)}, not all the same [N, F]")
    if any(t.dim() != 1 or t.shape != given[0].shape for t in given):
        raise ValueError(f"{op}: edge values are {_shapes(*given)}, not all the same [E]")
    width = nodes[0].shape[1]
    if table is not None and (table.shape[0] < 2 or table.shape[1:] != (2, width)):
        raise ValueError(f"{op}: the table is {_shapes(table)}, not [knots, 2, {width}]")
    dtypes = {t.dtype for t in (*nodes, *given, table) if t is not None}
    if len(dtypes) > 1:
        raise ValueError(f"{op}: mixed precisions {sorted(map(str, dtypes))}; convert to one")


def _shapes(*tensors: Tensor) -> str:
    return ", ".join(str(list(t.shape)) for t in tensors)


def check_types(
    *,
    op: str,
    nodes: Sequence[Tensor],
    tables: Sequence[Tensor],
    edge_type: Tensor,
    edges: Tensor,
) -> None:
    """ValueError unless node rows are all [N, F] and tables all [T, F] of one dtype; IndexError for
    a real edge's type outside the table. `edges` is dst_ptr, whose last entry counts real edges.
    """
    width = nodes[0].shape[-1]
    if any(t.dim() != 2 or t.shape != nodes[0].shape for t in nodes):
        raise ValueError(f"{op}: node features are {_shapes(*nodes)}, not all the same [N, F]")
    if any(t.dim() != 2 or t.shape != tables[0].shape or t.shape[1] != width for t in tables):
        raise ValueError(f"{op}: tables are {_shapes(*tables)}, not all the same [T, {width}]")
    dtypes = {t.dtype for t in (*nodes, *tables)}
    if len(dtypes) > 1:
        raise ValueError(f"{op}: mixed precisions {sorted(map(str, dtypes))}; convert to one")
    if edge_type.dim() != 1:
        raise ValueError(f"{op}: edge_type is {_shapes(edge_type)}, not [E]")
    from zoo.ops.graph_kernel import ids_fit

    count = min(int(edges[-1]), edge_type.shape[0]) if edges.numel() else 0
    if not ids_fit(edge_type.contiguous().numpy(), max(count, 0), tables[0].shape[0]):
        raise IndexError(f"{op}: an edge's type is outside 0..{tables[0].shape[0] - 1}")


def check_relations(
    *,
    x: Tensor,
    relations: Tensor,
    start: Tensor,
    edge_type: Tensor,
    keep: Tensor,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    paired: bool,
) -> None:
    """ValueError unless x and start are [N, B, D], relations [R, B, D] of one dtype, and the ids of
    edges int32 [E]; IndexError for those of real edges that are out of range.
    """
    op = "propagate_relation"
    if x.dim() != 3 or start.shape != x.shape or relations.shape[1:] != x.shape[1:]:
        raise ValueError(
            f"{op}: x, start and relations are {_shapes(x, start, relations)}, "
            "not [N, B, D], [N, B, D] and [R, B, D]"
        )
    if len({x.dtype, relations.dtype, start.dtype}) > 1:
        raise ValueError(f"{op}: mixed precisions; convert to one")
    if paired and x.shape[2] % 2:
        raise ValueError(f"{op}: rotations turn pairs, and {x.shape[2]} features are none")
    ids = (edge_type, src, dst, dst_ptr)
    if any(t.dtype != torch.int32 for t in ids) or keep.dtype != torch.bool:
        raise ValueError(f"{op}: edge_type, src, dst and dst_ptr are int32, keep is bool")
    edges = (edge_type, keep, src, dst)
    if any(t.shape != src.shape or t.dim() != 1 for t in edges):
        raise ValueError(f"{op}: edge_type, keep, src and dst are {_shapes(*edges)}, not all [E]")
    if dst_ptr.shape != (x.shape[0] + 1,):
        raise ValueError(f"{op}: {x.shape[0]} nodes come with dst_ptr {list(dst_ptr.shape)}")
    if _was_checked(relations.shape[0], ids):
        return
    from zoo.ops.graph_kernel import ids_fit, rows_fit

    given = [t.contiguous().numpy() for t in ids]
    if not rows_fit(given[3], src.shape[0]):
        raise IndexError(f"{op}: dst_ptr doesn't rise from 0 to at most the edges there are")
    count = int(dst_ptr[-1])
    if not (ids_fit(given[1], count, x.shape[0]) and ids_fit(given[2], count, x.shape[0])):
        raise IndexError(f"{op}: an edge names a node outside 0..{x.shape[0] - 1}")
    if not ids_fit(given[0], count, relations.shape[0]):
        raise IndexError(f"{op}: an edge's relation is outside 0..{relations.shape[0] - 1}")
    _remember(relations.shape[0], ids)
