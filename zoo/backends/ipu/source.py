"""A traced step written out as plain Python over ATen calls, for PopTorch 3.4 and torch 2.0.1.

PopTorch asserts torch 2.0.1 at import, which can't read a newer torch's files. The written module
needs torch and poptorch alone, in the syntax of Python 3.8.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from zoo.errors import ZooError

# What a newer torch asserts of a graph; there is nothing to compute.
_ASSERTIONS = {"_assert_tensor_metadata", "_assert_async", "_assert_scalar", "sym_constrain_range"}
# Where a tensor is made is PopTorch's business.
_DROPPED = {"device", "pin_memory", "layout", "non_blocking"}
# What only a traced graph says, by a name that PopTorch knows.
_RENAMED = {"lift_fresh_copy.default": "clone.default"}


@dataclass(frozen=True, kw_only=True)
class Written:
    """The source of one class. `names` are the weights' names in the model by the class's own,
    `constants` the tensors it needs besides them, `inputs` its forward's arguments in order.
    """

    source: str
    names: dict[str, str]
    constants: dict[str, Tensor]
    inputs: list[str]
    changes_buffers: bool


def write_class(program: ExportedProgram, *, name: str, prefix: str, loss: bool) -> Written:
    """A torch module `name` whose forward computes the traced step.

    It is built from a dict of tensors by their names in the model (`prefix` is what the tracing
    put before those). With `loss` the step's outputs are a sum of losses and a count: forward takes
    one more input, `share` [1], multiplies the sum by it and returns that as PopTorch's one loss.
    """
    signature = program.graph_signature
    names: dict[torch.fx.Node, str] = {}
    taken = {"self", "torch", "aten", "poptorch", "share"}
    members: list[str] = []
    held_names: dict[str, str] = {}
    constants: dict[str, Tensor] = {}
    inputs: list[str] = []
    kinds = {s.arg.name: s for s in signature.input_specs}
    tensors: dict[str, Any] = {**program.state_dict, **program.constants}
    body: list[str] = []
    made: dict[tuple[str, str, str], str] = {}
    outputs = _outputs(program)
    # Of a loss and its count, the count is not asked for: nor is what it is made from.
    needed = _needed(program, outputs[:1] if loss else outputs)
    for node in program.graph.nodes:
        if node.op == "placeholder":
            spec = kinds[node.name]
            if node not in needed:
                continue
            if spec.kind == InputKind.USER_INPUT:
                names[node] = _fresh(node.name, taken)
                inputs.append(names[node])
                continue
            target = str(spec.target)
            held = target.removeprefix(prefix)
            member = _fresh(re.sub(r"\W", "_", held), taken)
            names[node] = f"self.{member}"
            if spec.kind == InputKind.PARAMETER:
                members.append(f'self.{member} = torch.nn.Parameter(tensors["{held}"])')
            else:
                members.append(f'self.register_buffer("{member}", tensors["{held}"])')
            if target in program.state_dict:
                held_names[member] = held
            else:
                constants[held] = tensors[target].detach().clone().contiguous()
        elif node.op == "get_attr":
            raise ZooError(
                f"{name} isn't one operator after another: it holds {node.target}\n"
                "a part of a training step under torch.no_grad() does that: use detach() instead"
            )
        elif node.op == "call_function" and node in needed and not _skipped(node):
            if not node.all_input_nodes:
                # Made from nothing, by a call that doesn't go through PopTorch's own factories: it
                # would lie on the host. So it is a constant, once for all that are alike.
                key = (str(node.target), str(node.args), str(node.kwargs))
                if key not in made:
                    value = node.target(*node.args, **node.kwargs)
                    made[key] = _fresh(f"made_{node.name}", taken)
                    constants[made[key]] = value
                    members.append(f'self.register_buffer("{made[key]}", tensors["{made[key]}"])')
                names[node] = f"self.{made[key]}"
                continue
            names[node] = _fresh(node.name, taken)
            body.append(f"{names[node]} = {_call(node, names)}")
    values = [names[value] for value in (outputs[:1] if loss else outputs)]
    if loss:
        inputs.append("share")
        body.append(f'return poptorch.identity_loss({values[0]} * share, reduction="sum")')
    else:
        body.append(f"return {', '.join(values)}")
    changed = any(_changes_in_place(node) for node in program.graph.nodes)
    lines = [
        f"class {name}(torch.nn.Module):",
        "    def __init__(self, tensors):",
        "        super().__init__()",
        *(f"        {line}" for line in members),
        "",
        f"    def forward(self, {', '.join(inputs)}):",
        *(f"        {line}" for line in body),
    ]
    return Written(
        source="\n".join(lines) + "\n",
        names=held_names,
        constants=constants,
        inputs=inputs,
        changes_buffers=changed,
    )


def _outputs(program: ExportedProgram) -> list[torch.fx.Node]:
    (last,) = (node for node in program.graph.nodes if node.op == "output")
    return list(last.args[0])


def _needed(program: ExportedProgram, outputs: Sequence[torch.fx.Node]) -> set[torch.fx.Node]:
    """The nodes that some outputs are made from, and those that change a buffer."""
    found: set[torch.fx.Node] = set()
    waiting = [*outputs, *(n for n in program.graph.nodes if _changes_in_place(n))]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def module_source(classes: Mapping[str, Written], *, title: str) -> str:
    """The file that holds some written classes."""
    head = (
        f'"""{title}: plain ATen calls for torch 2.0.1, written by `zoo export`."""\n'
        "import poptorch\nimport torch\n\naten = torch.ops.aten\n"
    )
    return head + "".join(f"\n\n{written.source}" for written in classes.values())


def _fresh(name: str, taken: set[str]) -> str:
    """A Python name that nothing else has."""
    if not name.isidentifier():  # a part of an nn.Sequential: "0_weight"
        name = f"v_{name}"
    base, number = name, 1
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    taken.add(name)
    return name


def operator_name(node: torch.fx.Node) -> str:
    """`index_select.default` of a node that calls an ATen operator, else what it calls."""
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        space = "" if target.namespace == "aten" else f"{target.namespace}::"
        return f"{space}{target._schema.name.partition('::')[2]}.{target._overloadname}"
    return str(getattr(target, "__name__", target))


def _skipped(node: torch.fx.Node) -> bool:
    return operator_name(node).partition(".")[0] in _ASSERTIONS


def _changes_in_place(node: torch.fx.Node) -> bool:
    """Whether a node writes into a buffer, as batch norm does to its statistics."""
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if target._schema.name == "aten::batch_norm":
        return bool(node.args[5])
    return bool(target._schema.is_mutable)


def _call(node: torch.fx.Node, names: Mapping[torch.fx.Node, str]) -> str:
    target: Any = node.target
    if target is operator.getitem:
        return f"{_literal(node.args[0], names)}[{_literal(node.args[1], names)}]"
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        raise ZooError(f"{operator_name(node)} has no place in a file for PopTorch")
    arguments = [_literal(value, names) for value in node.args]
    arguments += [
        f"{key}={_literal(value, names)}"
        for key, value in node.kwargs.items()
        if key not in _DROPPED
    ]
    name = operator_name(node)
    return f"aten.{_RENAMED.get(name, name)}({', '.join(arguments)})"


def _literal(value: Any, names: Mapping[torch.fx.Node, str]) -> str:
    """An argument as source text."""
    if isinstance(value, torch.fx.Node):
        return names[value]
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(v, names) for v in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, bool | int | float | str) or value is None:
        return repr(value)
    if isinstance(value, torch.dtype | torch.memory_format):
        return str(value)
    raise ZooError(f"{value!r} can't be written as an argument for PopTorch")
