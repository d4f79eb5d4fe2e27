"""Messages conditioned on the relation of each edge, for many queries at once (NBFNet).

Zhu et al., Neural Bellman-Ford Networks, NeurIPS 2021. With x_j, r_t and s_i the rows of one query,

    m_e = x_j * r_t                (multiply, DistMult)     for the edge e = (j -> i) of relation t
    m_e = x_j + r_t                (add, TransE)
    m_e = x_j times r_t as complex numbers in neighbouring pairs   (rotate, RotatE)

    out[i] = the reduction over s_i and all m_e of edges into i:
             their sum, their maximum, or four moments of them side by side (mean, maximum, minimum,
             standard deviation of at least 1e-3), as PNA wants them (Corso et al., NeurIPS 2020)

No tensor [E, B, D] is made, forward or backward. A maximum's or minimum's gradient goes to the
first that holds it, undivided, the start before the edges. The gradients have no derivative of
their own.

Shapes: x, start [N, B, D] for B queries; relations [R, B, D]; edge_type, src, dst int32 [E];
dst_ptr int32 [N + 1]; keep bool [E]: False takes an edge out of the graph; result [N, B, D] or, of
moments, [N, B, 4 D]. Edges are sorted by destination; those from dst_ptr[N] on are padding. Ids or
relations out of range raise IndexError, shapes that don't fit ValueError.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from zoo.ops import propagate_relation_reference as reference
from zoo.ops.dispatch import define
from zoo.ops.graph_check import check_relations
from zoo.ops.memory import new_rows

Context = Any
Message = Literal["multiply", "add", "rotate"]
Reduction = Literal["sum", "max", "moments"]
MESSAGES: tuple[str, ...] = get_args(Message)
REDUCTIONS: tuple[str, ...] = get_args(Reduction)


def propagate_relation(
    x: Tensor,
    relations: Tensor,
    start: Tensor,
    *,
    edge_type: Tensor,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    keep: Tensor | None = None,
    message: Message = "multiply",
    reduce: Reduction = "moments",
) -> Tensor:
    """Reduce each node's start and the messages into it; see the module's text."""
    for value, known in ((message, MESSAGES), (reduce, REDUCTIONS)):
        if value not in known:
            raise ValueError(f"propagate_relation: {value!r} is not one of {', '.join(known)}")
    if keep is None:
        keep = torch.ones(src.shape, dtype=torch.bool, device=src.device)
    graph = (edge_type, keep, src, dst, dst_ptr)
    out: Tensor = _propagate(x, relations, start, *graph, message, reduce)
    return out


def _forward_cpu(
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
) -> Tensor:
    from zoo.ops import propagate_relation_kernel as kernel
    from zoo.ops.launcher import CHUNKS, launch

    values, graph = _ready(x, relations, start, edge_type, keep, src, dst, dst_ptr, message)
    nodes, queries, width = x.shape
    columns = queries * width
    out = new_rows(nodes, columns * (4 if reduce == "moments" else 1), dtype=x.dtype)
    launch(
        kernel.reduce_messages,
        *(*values, *graph, MESSAGES.index(message), REDUCTIONS.index(reduce), width),
        *(out.numpy(), CHUNKS),
    )
    return out.view(nodes, queries, -1)


def _backward_cpu(
    grad: Tensor,
    out: Tensor,
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
) -> tuple[Tensor, Tensor, Tensor]:
    from zoo.ops import propagate_relation_kernel as kernel
    from zoo.ops.launcher import CHUNKS, launch

    values, graph = _ready(x, relations, start, edge_type, keep, src, dst, dst_ptr, message)
    nodes, queries, width = x.shape
    d_x, d_start = (new_rows(nodes, queries * width, dtype=x.dtype) for _ in range(2))
    d_relations = new_rows(relations.shape[0], queries * width, dtype=x.dtype)
    d_x.zero_()
    d_relations.zero_()
    chunks = min(CHUNKS, queries)
    launch(
        kernel.take_messages_back,
        *(_rows(grad), _rows(out), *values, *graph),
        *(MESSAGES.index(message), REDUCTIONS.index(reduce), width),
        *(d_x.numpy(), d_relations.numpy(), d_start.numpy(), chunks),
        chunks=chunks,
    )
    return d_x.view_as(x), d_relations.view_as(relations), d_start.view_as(x)


def _ready(
    x: Tensor,
    relations: Tensor,
    start: Tensor,
    edge_type: Tensor,
    keep: Tensor,
    src: Tensor,
    dst: Tensor,
    dst_ptr: Tensor,
    message: str,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Rows and graph as arrays, checked."""
    check_relations(
        x=x,
        relations=relations,
        start=start,
        edge_type=edge_type,
        keep=keep,
        src=src,
        dst=dst,
        dst_ptr=dst_ptr,
        paired=message == "rotate",
    )
    graph = (edge_type, keep.view(torch.uint8), src, dst_ptr)
    rows = tuple(_rows(t) for t in (x, relations, start))
    return rows, tuple(t.contiguous().numpy() for t in graph)


def _rows(values: Tensor) -> Any:
    return values.detach().contiguous().flatten(1).numpy()


def _fake(
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
) -> Tensor:
    return x.new_empty(*x.shape[:2], x.shape[2] * (4 if reduce == "moments" else 1))


def _plain_backward(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    grad, _, x, relations, start, *graph, message, reduce = args
    with torch.enable_grad():
        given = [t.detach().requires_grad_() for t in (x, relations, start)]
        form: Any = reference.propagate_relation
        out = form(*given, *graph, message, reduce)
    d_x, d_relations, d_start = torch.autograd.grad(out, given, grad)
    return d_x, d_relations, d_start


def _save(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.message, ctx.reduce = inputs
    ctx.save_for_backward(output, *tensors)


def _slopes(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    found = _take_back(grad, *ctx.saved_tensors, ctx.message, ctx.reduce)
    return *found, *[None] * 7


_propagate = define(
    name="propagate_relation",
    cpu=_forward_cpu,
    reference=reference.propagate_relation,
    fake=_fake,
    save=_save,
    backward=_slopes,
)
_take_back = define(
    name="propagate_relation_backward",
    cpu=_backward_cpu,
    reference=_plain_backward,
    fake=lambda grad, out, x, relations, start, *_: tuple(
        t.new_empty(t.shape) for t in (x, relations, start)
    ),
)
