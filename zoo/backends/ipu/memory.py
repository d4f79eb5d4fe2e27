"""An estimate of what a traced step takes of an IPU's own memory, and what would make it fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

LIMIT = 900e6
"""Bytes of memory on a chip (Mk2 and Bow). Program code and exchange buffers come out of it too."""

# Results that share their argument's memory.
_VIEWS = {
    *("view", "reshape", "expand", "expand_as", "unsqueeze", "squeeze", "transpose", "t"),
    *("permute", "slice", "select", "unbind", "flatten", "detach", "alias", "broadcast_to"),
    *("_reshape_alias", "split", "split_with_sizes", "chunk", "contiguous", "narrow"),
}


def estimate(program: ExportedProgram, *, training: bool) -> dict[str, Any]:
    """Bytes of weights, optimiser state, inputs and activations; JSON-able.

    When training, every result is taken as kept until its backward (an upper bound, since PopART
    keeps what its derivatives need) and AdamW's state and the gradients stand beside the weights.
    In inference only what is live at once counts. 64-bit values are 32 bits wide there.
    """
    inputs = weights = 0
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    for spec in program.graph_signature.input_specs:
        size = _bytes(values.get(getattr(spec.arg, "name", "")))
        if spec.kind == InputKind.USER_INPUT:
            inputs += size
        else:
            weights += size
    trained = sum(4 * p.numel() for p in program.parameters() if p.requires_grad)
    kept, live = _activations(program)
    optimiser = 3 * trained if training else 0  # gradient and two moments
    total = weights + optimiser + inputs + (kept if training else live)
    found: dict[str, Any] = {
        "weights": weights,
        "optimiser": optimiser,
        "inputs": inputs,
        "activations": kept if training else live,
        "total": total,
        "limit": int(LIMIT),
        "fits": total <= LIMIT,
    }
    if not found["fits"]:
        found["advice"] = _advice(found, live=live, training=training)
    return found


def _activations(program: ExportedProgram) -> tuple[int, int]:
    """Bytes of all results that are no views, and of the most that are needed at one time."""
    nodes = list(program.graph.nodes)
    last: dict[torch.fx.Node, int] = {}
    owner: dict[torch.fx.Node, torch.fx.Node] = {}
    for at, node in enumerate(nodes):
        if node.op == "call_function" and _shares(node) and node.args:
            first = node.args[0]
            if isinstance(first, torch.fx.Node):
                owner[node] = owner.get(first, first)
        for given in node.all_input_nodes:
            last[owner.get(given, given)] = at
    kept = live = most = 0
    ends: dict[int, int] = {}
    for at, node in enumerate(nodes):
        if node.op == "call_function" and node not in owner:
            size = _bytes(node.meta.get("val"))
            kept += size
            live += size
            until = last.get(node, at)
            ends[until] = ends.get(until, 0) + size
        most = max(most, live)
        live -= ends.pop(at, 0)
    return kept, most


def _shares(node: torch.fx.Node) -> bool:
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name.partition("::")[2] in _VIEWS
    return getattr(target, "__name__", "") == "getitem"


def _bytes(value: Any) -> int:
    if isinstance(value, Tensor):
        width = 1 if value.dtype == torch.bool else min(value.element_size(), 4)
        return int(value.numel()) * width
    if isinstance(value, list | tuple):
        return sum(_bytes(one) for one in value)
    return 0


def _advice(found: Mapping[str, Any], *, live: int, training: bool) -> list[str]:
    """What would make it fit, by the same estimate."""
    fixed = found["weights"] + found["optimiser"]
    moving = found["inputs"] + found["activations"]
    said = []
    if fixed < LIMIT:
        share = (LIMIT - fixed) / moving
        said.append(f"packs of {share:.0%} of this one's nodes and edges")
    said.append(f"about {math.ceil(found['total'] / LIMIT)} pipeline stages, one IPU each")
    if training and fixed + found["inputs"] + 2 * live <= LIMIT:
        said.append("recomputation: keep each layer's input and compute the rest again backward")
    return said
