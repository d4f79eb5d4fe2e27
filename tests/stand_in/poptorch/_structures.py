"""Tensors inside tuples, lists, named tuples and dicts."""

from __future__ import annotations

import torch


def tensors(structure):
    """Every tensor inside, depth first, in order."""
    if isinstance(structure, torch.Tensor):
        yield structure
    elif isinstance(structure, (list, tuple)):
        for element in structure:
            yield from tensors(element)
    elif isinstance(structure, dict):
        for element in structure.values():
            yield from tensors(element)


def mapped(function, *structures):
    """The first structure with each leaf replaced by `function` of the leaves at its place."""
    first = structures[0]
    if isinstance(first, dict):
        return type(first)((k, mapped(function, *(s[k] for s in structures))) for k in first)
    if isinstance(first, (list, tuple)):
        leaves = [mapped(function, *elements) for elements in zip(*structures)]
        return type(first)(*leaves) if hasattr(first, "_fields") else type(first)(leaves)
    return function(*structures)
