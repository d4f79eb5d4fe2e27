"""Message passing with a type on each edge and no tensor per edge (GIN with bond embeddings).

    out[i] = sum over edges e = (j -> i) of relu(x[j] + table[type_e])

`table` [T, F] has a row for each kind of edge. With m_e = 1 where x[j] + table[type_e] > 0, three
operators are closed under differentiation, to any order (the derivative of m is zero):

    edge_messages    out[i] = sum_e m_e (v[src_e] + w[type_e])
    edge_to_nodes    out[j] = sum over edges e from j of m_e g[dst_e]
    edge_to_types    out[t] = sum over edges e of type t of m_e g[dst_e]

Shapes: x, v, g [N, F]; table, w [T, F]; edge_type, src, dst, src_perm int32 [E]; dst_ptr, src_ptr
int32 [N + 1]. Edges from dst_ptr[N] on are padding and are ignored; the others are sorted by
destination. Ids, types or row pointers out of range raise IndexError. NaN is passed on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zoo.ops import propagate_edge_reference as reference
from zoo.ops.dispatch import define, use_kernel
from zoo.ops.graph_check import check_graph, check_types

Context = Any


def propagate_edge(
    x: Tensor,
    table: Tensor,
    *,
    edge_type: Tensor,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    src_ptr: Tensor,
    src_perm: Tensor,
) -> Tensor:
    """Sum of relu(x[src] + table[edge_type]) over each node's incoming edges: [N, F]."""
    graph = (edge_type, src, dst, dst_ptr, src_ptr, src_perm)
    if use_kernel(x):
        out: Tensor = _messages(x, table, x, table, *graph)
        return out
    return reference.messages(x, table, x, table, *graph)


def _ready(
    op: str, nodes: tuple[Tensor, ...], tables: tuple[Tensor, ...], graph: tuple[Tensor, ...]
) -> tuple[Any, ...]:
    """Arguments as arrays, checked; nodes, then tables, then the graph."""
    edge_type, src, dst, dst_ptr, src_ptr, src_perm = graph
    check_types(op=op, nodes=nodes, tables=tables, edge_type=edge_type, edges=dst_ptr)
    check_graph(
        op=op,
        nodes=nodes[0].shape[0],
        edges=edge_type.shape[0],
        src=src,
        dst=dst,
        dst_ptr=dst_ptr,
        src_ptr=src_ptr,
        src_perm=src_perm,
    )
    values = (t.detach().contiguous() for t in (*nodes, *tables, *graph))
    return tuple(t.numpy() for t in values)


def _messages_cpu(
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
    from zoo.ops import propagate_edge_kernel as kernel
    from zoo.ops.launcher import CHUNKS, launch

    graph = (edge_type, src, dst, dst_ptr, src_ptr, src_perm)
    values = _ready("edge_messages", (v, x), (w, table), graph)
    va, xa, wa, ta, types, sources, _, ptr, *_ = values
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if v is x and w is table:
        launch(kernel.relu_messages, xa, ta, types, sources, ptr, out.numpy(), CHUNKS)
    else:
        launch(kernel.masked_messages, va, wa, xa, ta, types, sources, ptr, out.numpy(), CHUNKS)
    return out


def _to_nodes_cpu(
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
    from zoo.ops import propagate_edge_kernel as kernel
    from zoo.ops.launcher import CHUNKS, launch

    graph = (edge_type, src, dst, dst_ptr, src_ptr, src_perm)
    ga, xa, ta, types, _, targets, _, ptr, perm = _ready("edge_to_nodes", (g, x), (table,), graph)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    launch(kernel.to_nodes, ga, xa, ta, types, targets, ptr, perm, out.numpy(), CHUNKS)
    return out


def _to_types_cpu(
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
    from zoo.ops import propagate_edge_kernel as kernel
    from zoo.ops.launcher import CHUNKS, launch

    graph = (edge_type, src, dst, dst_ptr, src_ptr, src_perm)
    ga, xa, ta, types, sources, _, ptr, *_ = _ready("edge_to_types", (g, x), (table,), graph)
    parts = x.new_empty(CHUNKS, *table.shape)
    launch(kernel.to_types, ga, xa, ta, types, sources, ptr, parts.numpy(), CHUNKS)
    return parts.sum(0)


def _like_x(v: Tensor, w: Tensor, x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _like_g(g: Tensor, x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _like_table(g: Tensor, x: Tensor, table: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(table, memory_format=torch.contiguous_format)


def _save(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _messages_backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    _, _, x, table, *graph = ctx.saved_tensors
    need = ctx.needs_input_grad
    d_v = _to_nodes(grad, x, table, *graph) if need[0] else None
    d_w = _to_types(grad, x, table, *graph) if need[1] else None
    return d_v, d_w, *[None] * 8


def _to_nodes_backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    _, x, table, *graph = ctx.saved_tensors
    d_g = None
    if ctx.needs_input_grad[0]:
        d_g = _messages(grad, torch.zeros_like(table), x, table, *graph)
    return d_g, *[None] * 8


def _to_types_backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    _, x, table, *graph = ctx.saved_tensors
    d_g = None
    if ctx.needs_input_grad[0]:
        d_g = _messages(torch.zeros_like(x), grad, x, table, *graph)
    return d_g, *[None] * 8


_messages = define(
    name="edge_messages",
    cpu=_messages_cpu,
    reference=reference.messages,
    fake=_like_x,
    save=_save,
    backward=_messages_backward,
)
_to_nodes = define(
    name="edge_to_nodes",
    cpu=_to_nodes_cpu,
    reference=reference.to_nodes,
    fake=_like_g,
    save=_save,
    backward=_to_nodes_backward,
)
_to_types = define(
    name="edge_to_types",
    cpu=_to_types_cpu,
    reference=reference.to_types,
    fake=_like_table,
    save=_save,
    backward=_to_types_backward,
)
