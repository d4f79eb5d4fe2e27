"""A step as a whole graph of torch's own operators at one fixed shape, by `torch.export`."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from zoo.errors import ZooError
from zoo.ops.dispatch import REFERENCES, plain_torch

Step = Callable[[nn.Module, dict[str, Tensor]], Any]
"""What a recipe compiles: a function of a module and a batch, pure in its tensors."""


class Bound(nn.Module):
    """A step bound to its module, with the batch's tensors as keyword arguments.

    Inputs that are named in `absent` are given as empty tensors: the step never looks at them.
    """

    def __init__(self, *, module: nn.Module, step: Step, absent: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.module = module
        self._step = step
        self._absent = {name: (value.shape, value.dtype) for name, value in absent.items()}

    def forward(self, **batch: Tensor) -> Any:
        empty = {name: torch.empty(shape, dtype=t) for name, (shape, t) in self._absent.items()}
        return self._step(self.module, {**batch, **empty})


def trace(
    *, module: nn.Module, step: Step, batch: Mapping[str, Tensor], gradients: bool = False
) -> ExportedProgram:
    """The graph of `step(module, batch)` at this batch's shapes, whose inputs are the tensors of
    the batch that it uses, in the batch's order.

    The fused ops are there as their plain-torch references. With `gradients` the graph is one to
    differentiate; parts of the module then keep their training behaviour. ZooError where the step
    can't be one graph: a shape or a branch that depends on values.
    """
    whole = _export(module=module, step=step, batch=batch, absent={}, gradients=gradients)
    read = {node.name for node in whole.graph.nodes if node.op == "placeholder" and node.users}
    used = {name: value for name, value in batch.items() if name in read}
    if len(used) == len(batch):
        return whole
    absent = {name: value for name, value in batch.items() if name not in read}
    return _export(module=module, step=step, batch=used, absent=absent, gradients=gradients)


def _export(
    *,
    module: nn.Module,
    step: Step,
    batch: Mapping[str, Tensor],
    absent: Mapping[str, Tensor],
    gradients: bool,
) -> ExportedProgram:
    bound = Bound(module=module, step=step, absent=absent).train(module.training)
    try:
        with plain_torch(), exact_lines(), torch.set_grad_enabled(gradients), quiet():
            program = torch.export.export(bound, (), kwargs=dict(batch), strict=False)
    except ZooError:
        raise
    except Exception as error:
        raise ZooError(
            f"{type(module).__name__} can't be exported as one graph: {first_line(error)}\n"
            "`zoo check` names the lines that stand in the way"
        ) from error
    program.graph_module.graph.eliminate_dead_code(_acts)
    left = {str(node.target) for node in program.graph.nodes} & {
        f"{name.replace('::', '.')}.default" for name in REFERENCES
    }
    if left:
        raise ZooError(
            f"the graph of {type(module).__name__} still holds {', '.join(sorted(left))}"
        )
    return program


def _acts(node: torch.fx.Node) -> bool:
    """Whether a node matters besides its value: it writes into a tensor, or holds a graph of its
    own (what was under `torch.no_grad`), which may.
    """
    return node.is_impure() or isinstance(node.target, torch._ops.HigherOrderOperator)


def first_line(error: BaseException) -> str:
    """The first line of an error that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what torch's exporters and compilers say of themselves."""
    loggers = [
        logging.getLogger(f"torch.{part}") for part in ("fx", "onnx", "_inductor", "_dynamo")
    ]
    loggers.append(logging.getLogger("onnxscript"))
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        sink = io.StringIO()
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(sink),
            contextlib.redirect_stderr(sink),
        ):
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def exact_lines() -> Iterator[None]:
    """Have each node remember the innermost line of the model, not only those in `forward`.

    The exporter keeps the frames of functions called forward alone; its filter is meant to be
    replaced, but it makes the tracer itself, so that the class has to be changed for a while.
    """
    from traceback import StackSummary

    from torch.fx.experimental.proxy_tensor import PythonKeyTracer

    def keep(self: Any, frames: StackSummary) -> StackSummary:
        return StackSummary.from_list([f for f in frames if is_of_a_model(f.filename)])

    tracer: Any = PythonKeyTracer
    kept = tracer.__dict__.get("_filter_traceback_frames")
    tracer._filter_traceback_frames = keep
    try:
        yield
    finally:
        if kept is None:
            del tracer._filter_traceback_frames
        else:
            tracer._filter_traceback_frames = kept


_TORCH = os.path.dirname(torch.__file__) + os.sep
_STANDARD = os.path.dirname(os.__file__) + os.sep
_HERE = os.path.dirname(__file__) + os.sep


def is_of_a_model(path: str) -> bool:
    """Whether a file's lines are a model's: not torch's, Python's or this machinery's."""
    return not path.startswith((_TORCH, _HERE, "<")) and (
        "site-packages" in path or not path.startswith(_STANDARD)
    )


def innermost(error: BaseException) -> tuple[str, int] | None:
    """The innermost line of a model that an error passed through."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if is_of_a_model(frame.f_code.co_filename):
            found = (frame.f_code.co_filename, line)
    return found


def place(node: torch.fx.Node) -> tuple[str, int] | None:
    """File and line of the model that a node comes from, where the tracer knew it."""
    return told_place(str(node.meta.get("stack_trace") or ""))


def told_place(text: str) -> tuple[str, int] | None:
    """The last file and line that a printed traceback names."""
    found = re.findall(r'File "(.+?)", line (\d+)', text)
    return (found[-1][0], int(found[-1][1])) if found else None
