"""The forms of gather, scatter and what is made of them that `zoo bench ops` compares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Form = Callable[[], Tensor]
BYTES = 4


@dataclass(kw_only=True)
class Case:
    """One op at one shape: torch's eager forms, our own with all that it needs, and our own where
    the index was sorted before. `moved` is the bytes that must be read and written, `flops` the
    sums and products; both of the task, not of a form.
    """

    eager: dict[str, Form]
    ours: Form | None
    ours_sorted: Form | None = None
    moved: int = 0
    flops: int = 0
    tolerance: float = 1e-4


def make(op: str, *, inputs: int, features: int, outputs: int) -> Case:
    """The case of an op of `OPS`: `inputs` rows of `features`, reduced to or gathered into
    `outputs` rows; for `propagate` and `schnet_block` inputs are nodes and outputs edges.
    """
    torch.manual_seed(0)
    x = torch.randn(inputs, features)
    if op == "gather":
        return _gather(x, torch.randint(0, inputs, (outputs,)))
    if op.startswith("scatter_"):
        return _scatter(x, torch.randint(0, outputs, (inputs,)), outputs, op[8:])
    if op.startswith("segment_"):
        return _segment(x, torch.sort(torch.randint(0, outputs, (inputs,)))[0], outputs, op[8:])
    if op == "propagate":
        return _propagate(x, outputs)
    return _schnet_block(x, outputs)


OPS = (
    "gather",
    *("scatter_sum", "scatter_mean", "scatter_max"),
    *("segment_sum", "segment_mean", "segment_max"),
    *("propagate", "schnet_block"),
)


def _gather(x: Tensor, index: Tensor) -> Case:
    wide = index.unsqueeze(1).expand(-1, x.shape[1])
    return Case(
        eager={
            "index_select": lambda: x.index_select(0, index),
            "indexing": lambda: x[index],
            "gather": lambda: x.gather(0, wide),
        },
        ours=None,  # none of our own is faster than index_select
        moved=BYTES * 2 * len(index) * x.shape[1] + 8 * len(index),
    )


def _eager_scatter(x: Tensor, index: Tensor, size: int, reduce: str) -> dict[str, Form]:
    wide = index.unsqueeze(1).expand_as(x)

    def zeros() -> Tensor:
        return x.new_zeros(size, x.shape[1])

    if reduce == "sum":
        return {
            "scatter_add": lambda: zeros().scatter_add_(0, wide, x),
            "index_add": lambda: zeros().index_add_(0, index, x),
            "scatter_reduce": lambda: zeros().scatter_reduce_(0, wide, x, "sum"),
        }
    if reduce == "mean":
        return {
            "scatter_reduce": lambda: zeros().scatter_reduce_(
                0, wide, x, "mean", include_self=False
            ),
            "index_add": lambda: (
                zeros().index_add_(0, index, x)
                / torch.bincount(index, minlength=size).clamp(min=1).unsqueeze(1)
            ),
        }
    return {
        "scatter_reduce": lambda: zeros().scatter_reduce_(0, wide, x, "amax", include_self=False),
        "index_reduce": lambda: zeros().index_reduce_(0, index, x, "amax", include_self=False),
    }


def _scatter(x: Tensor, index: Tensor, size: int, reduce: str) -> Case:
    from zoo.ops.scatter import scatter_reduce, sort_index
    from zoo.ops.segment import segment_reduce

    perm, ptr = sort_index(index, size=size)
    return Case(
        eager=_eager_scatter(x, index, size, reduce),
        ours=lambda: scatter_reduce(x, index, size=size, reduce=reduce),  # type: ignore[arg-type]
        ours_sorted=lambda: segment_reduce(x, ptr, reduce, perm=perm),  # type: ignore[arg-type]
        moved=BYTES * (x.numel() + size * x.shape[1]) + 8 * len(index),
        flops=x.numel(),
    )


def _segment(x: Tensor, index: Tensor, size: int, reduce: str) -> Case:
    from zoo.ops.segment import segment_reduce

    counts = torch.bincount(index, minlength=size)
    ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    short = ptr.to(torch.int32)
    eager = _eager_scatter(x, index, size, reduce)
    if reduce == "sum":
        eager["segment_reduce"] = lambda: torch.segment_reduce(x, "sum", offsets=ptr, axis=0)
    elif reduce == "mean":  # NaN where there is nothing to reduce
        eager["segment_reduce"] = lambda: torch.segment_reduce(
            x, "mean", offsets=ptr, axis=0
        ).nan_to_num_(0.0)
    else:  # -inf there
        eager["segment_reduce"] = lambda: torch.segment_reduce(
            x, "max", offsets=ptr, axis=0
        ).nan_to_num_(neginf=0.0)
    return Case(
        eager=eager,
        ours=lambda: segment_reduce(x, short, reduce),  # type: ignore[arg-type]
        moved=BYTES * (x.numel() + size * x.shape[1] + size),
        flops=x.numel(),
    )


def _graph(nodes: int, edges: int) -> dict[str, Tensor]:
    """A random graph in the batch contract: edges by destination, and the transpose."""
    dst = torch.sort(torch.randint(0, nodes, (edges,)))[0]
    src = torch.randint(0, nodes, (edges,))
    perm = torch.sort(src, stable=True)[1]
    rows = torch.arange(nodes + 1)
    tables = {
        "src": src,
        "dst": dst,
        "dst_ptr": torch.searchsorted(dst, rows),
        "src_ptr": torch.searchsorted(src[perm].contiguous(), rows),
        "src_perm": perm,
    }
    return {name: table.to(torch.int32) for name, table in tables.items()}


def _propagate(x: Tensor, edges: int) -> Case:
    from zoo.ops.propagate import propagate

    graph = _graph(x.shape[0], edges)
    src, dst = graph["src"].long(), graph["dst"].long()
    wide = dst.unsqueeze(1).expand(-1, x.shape[1])
    ptr = graph["dst_ptr"].long()
    matrix = torch.sparse_csr_tensor(ptr, src, torch.ones(edges), (x.shape[0], x.shape[0]))
    return Case(
        eager={
            "select, scatter_add": lambda: torch.zeros_like(x).scatter_add_(
                0, wide, x.index_select(0, src)
            ),
            "select, index_add": lambda: torch.zeros_like(x).index_add_(
                0, dst, x.index_select(0, src)
            ),
            "sparse matrix": lambda: matrix @ x,
        },
        ours=lambda: propagate(x, **graph),
        moved=BYTES * (edges * x.shape[1] + x.numel()) + 4 * edges,
        flops=edges * x.shape[1],
    )


def _schnet_block(x: Tensor, edges: int) -> Case:
    """An interaction of SchNet: eager evaluates its filters at each edge, ours from a table."""
    from zoo.models.schnet import FilterBank, Interaction
    from zoo.ops.cfconv import cfconv

    nodes, features = x.shape
    graph = _graph(nodes, edges)
    src, dst = graph["src"].long(), graph["dst"].long()
    wide = dst.unsqueeze(1).expand(-1, features)
    distance = 10 * torch.rand(edges)
    bank = FilterBank(layers=1, features=features, gaussians=50, cutoff=10.0, knots=256)
    block = Interaction(features=features)

    def eager() -> Tensor:
        with torch.no_grad():
            messages = block.before(x).index_select(0, src) * bank(distance)[0]
            out: Tensor = block(torch.zeros_like(x).scatter_add_(0, wide, messages))
            return out

    def ours() -> Tensor:
        with torch.no_grad():
            (table,) = bank.table().unbind()
            given: dict[str, Any] = {**graph, "cutoff": 10.0}
            out: Tensor = block(cfconv(block.before(x), table, distance, **given))
            return out

    products = 3 * 2 * nodes * features**2 + 2 * edges * (50 * features + features**2)
    return Case(
        eager={"filters per edge": eager},
        ours=ours,
        moved=BYTES * (edges * (features + 3) + 2 * x.numel()),
        flops=products,
        tolerance=1e-2,
    )


def check(case: Case) -> None:
    """AssertionError unless all forms of a case agree."""
    forms = [*case.eager.items()]
    forms += [("ours", case.ours)] if case.ours else []
    forms += [("ours, sorted", case.ours_sorted)] if case.ours_sorted else []
    wanted = forms[0][1]()
    scale = max(1.0, float(wanted.abs().max()))
    for name, form in forms[1:]:
        error = float((form() - wanted).abs().max()) / scale
        assert error <= case.tolerance, f"{name} is off by {error:.1e}"
