"""`poptorch.<function>`: losses, loops and slices, and the marks that only a compiler obeys."""

from __future__ import annotations

import contextlib

import torch

from . import enums
from ._errors import Error
from ._structures import tensors
from ._trace import current
from ._values import expect

REDUCTIONS = {"sum": "sum", "mean": "mean", "none": "none", 0: "sum", 1: "mean", 2: "none"}


def identity_loss(x, reduction):
    """Mark `x`, reduced, as what training minimises; the backward pass starts here."""
    expect(reduction in REDUCTIONS, f"Unsupported reduction type {reduction!r}")
    kind = REDUCTIONS[reduction]
    with _unruled():
        # "none" copies: a loss must have memory of its own to be told from what it was made of.
        loss = x.clone() if kind == "none" else getattr(x, kind)()
    if current() is not None:
        current().add_loss(loss, x)
    return loss


def for_loop(count, body, inputs):
    """Call `body` on its own outputs `count` times, a constant number; shapes must stay."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise Error(f"for_loop: count must be a constant integer, not a {type(count).__name__}")
    if not isinstance(inputs, list) or not all(isinstance(t, torch.Tensor) for t in inputs):
        raise Error("for_loop: inputs must be a list of tensors")
    values = inputs
    for _ in range(count):
        values = _as_list(body(*values))
        _same("for_loop", "its inputs", inputs, values)
    return values


def cond(condition, then_body, then_inps, else_body, else_inps):
    """The outputs of one of two bodies, both of which are compiled; for inference only."""
    trace = current()
    if trace is not None and trace.training:
        raise Error("cond has no backward pass: it can be used for inference only")
    then, other = _as_list(then_body(*then_inps)), _as_list(else_body(*else_inps))
    _same("cond", "the other body's outputs", then, other)
    with _unruled():
        return [torch.where(condition.to(torch.bool), a, b) for a, b in zip(then, other)]


def nop(tensor):
    return tensor


def ipu_print_tensor(
    tensor,
    title="",
    print_gradient=True,
    summarise_threshold=1000,
    edge_items=3,
    max_line_width=80,
    digits=4,
    float_format="auto",
    separator=", ",
    open_bracket="(",
    close_bracket=")",
):
    return tensor


def dynamic_slice(tensor, dim, start, size, step):
    """`size` rows from `start` on, which is a tensor; `size` must divide the dimension."""
    with _unruled():
        rows = _rows("dynamic_slice", tensor, dim, start, size)[::step]
        return tensor.index_select(dim, rows)


def dynamic_update(input, src, dim, start, size):
    """A copy of `input` with `size` rows from `start` on replaced by `src`."""
    with _unruled():
        rows = _rows("dynamic_update", input, dim, start, size)
        return input.index_copy(dim, rows, src)


def recomputationCheckpoint(*tensors):
    if len(tensors) > 1:
        return tuple(tensors)
    return tensors[0]


def serializedMatMul(lhs, rhs, mode, factor=0, keep_precision=False):
    """The product of two matrices, computed in `factor` parts; which `factor` must divide."""
    kind = isinstance(mode, enums.MatMulSerializationMode)
    expect(kind, f"Not a poptorch.MatMulSerializationMode: {mode!r}")
    sizes = {
        enums.MatMulSerializationMode.InputChannels: lhs.size(-2),
        enums.MatMulSerializationMode.ReducingDim: lhs.size(-1),
        enums.MatMulSerializationMode.OutputChannels: rhs.size(-1),
    }
    if mode in sizes and (factor < 1 or sizes[mode] % factor):
        raise Error(f"serializedMatMul: {sizes[mode]} doesn't divide into {factor} parts")
    return torch.matmul(lhs, rhs)


def set_available_memory(tensor, available_memory_proportion):
    fits = 0 < available_memory_proportion <= 1
    expect(fits, f"A proportion is from 0 to 1, not {available_memory_proportion!r}")
    return tensor


def set_overlap_for_input(input_tensors, mode):
    expect(isinstance(mode, enums.OverlapMode), f"Not a poptorch.OverlapMode: {mode!r}")
    return input_tensors


def set_overlap_for_output(output_tensors, mode):
    expect(isinstance(mode, enums.OverlapMode), f"Not a poptorch.OverlapMode: {mode!r}")
    return output_tensors


@contextlib.contextmanager
def _unruled():
    """The stand-in's own arithmetic; PopTorch has an operator of its own here."""
    trace = current()
    with contextlib.nullcontext() if trace is None else trace.having(internal=True, busy=True):
        yield


def _as_list(outputs):
    return [outputs] if isinstance(outputs, torch.Tensor) else list(tensors(outputs))


def _same(name, other, expected, outputs):
    """Raise Error unless both lists hold as many tensors, of the same shapes and types."""
    ours = [(t.dtype, tuple(t.shape)) for t in outputs]
    theirs = [(t.dtype, tuple(t.shape)) for t in expected]
    if ours != theirs:
        raise Error(f"{name}: the body's outputs {ours} must be like {other}: {theirs}")


def _rows(name, tensor, dim, start, size):
    if tensor.size(dim) % size:
        raise Error(f"{name}: size {size} must divide the dimension, which is {tensor.size(dim)}")
    if not isinstance(start, torch.Tensor):
        raise Error(f"{name}: start must be a tensor")
    return start.reshape(1).to(torch.int64) + torch.arange(size)
