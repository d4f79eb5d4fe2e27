"""Runs a step on real values and keeps what it calls, with the line of the model that called it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.backends.graph import is_of_a_model
from zoo.backends.ipu.rules import named


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of an ATen operator: its name, arguments by name, results, and place."""

    operator: str
    arguments: Mapping[str, Any]
    results: list[Tensor]
    place: tuple[str, int] | None

    def tensors(self) -> list[Tensor]:
        """The tensors among the arguments."""
        return list(_tensors(self.arguments))


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, every operator that runs is handed to `keep`."""

    def __init__(self, keep: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._keep = keep

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        schema = func._schema
        space, _, name = schema.name.partition("::")
        if space == "prim":  # a question about a tensor, nothing to compute
            return out
        prefix = "" if space == "aten" else f"{space}::"
        self._keep(
            Call(
                operator=f"{prefix}{name}.{schema.overload_name or 'default'}",
                arguments=named(schema, args, kwargs),
                results=[t for t in _flat(out) if isinstance(t, Tensor)],
                place=_here(),
            )
        )
        return out


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _flat(one)
    else:
        yield value


def _here() -> tuple[str, int] | None:
    """The innermost line that is a model's, not torch's or the zoo's machinery."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if is_of_a_model(path) and path != __file__:
            return path, frame.f_lineno
        frame = frame.f_back
    return None


def plain_attention() -> Any:
    """Within it, attention falls apart into products and a softmax, as it does in torch 2.0.1 for
    a device that has no kernel of its own for it.
    """
    return sdpa_kernel(SDPBackend.MATH)


def parts(node: torch.fx.Node) -> list[Call]:
    """What a node's operator falls apart into before it is lowered, on the shapes it was traced at;
    empty where it stays whole.
    """
    calls: list[Call] = []
    target: Any = node.target
    args, kwargs = values(node.args), values(node.kwargs)
    mode = next((v.fake_mode for v in _tensors((args, kwargs)) if hasattr(v, "fake_mode")), None)
    if mode is None:
        return []
    with mode, plain_attention(), Recorder(calls.append):
        target(*args, **kwargs)
    return calls


def values(argument: Any) -> Any:
    """A node's arguments with the (fake) values that tracing gave them."""
    if isinstance(argument, torch.fx.Node):
        return argument.meta.get("val")
    if isinstance(argument, Mapping):
        return {key: values(value) for key, value in argument.items()}
    if isinstance(argument, list | tuple):
        return type(argument)(values(value) for value in argument)
    return argument


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
