"""Rules for what reaches a kernel, whoever called it: a mode below autograd."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import _operators
from ._errors import Error
from ._structures import mapped, tensors

# Operators that may bring a CPU tensor to the IPU.
UPLOADS = {"copy_", "_to_copy", "lift_fresh"}


class Kernels(TorchDispatchMode):
    """Checks each operator of a trace and follows its tensors."""

    def __init__(self, trace):
        super().__init__()
        self._trace = trace

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        trace = self._trace
        with trace.having(busy=True):
            args, kwargs = _in_32_bits(args, kwargs or {})
            inputs = list(tensors((args, kwargs)))
            if not trace.internal:
                _check(trace, func, args, kwargs, inputs)
            outputs = func(*args, **kwargs)
            if any(t.is_complex() for t in tensors(outputs)):
                raise Error(f"{func}: complex tensors are unsupported")
            trace.follow(inputs, outputs)
        return outputs


def _in_32_bits(args, kwargs):
    """float64 is silently narrowed on the device."""

    def narrow(value):
        return torch.float32 if value is torch.float64 else value

    return mapped(narrow, args), mapped(narrow, kwargs)


def _check(trace, func, args, kwargs, inputs):
    name = _operators.base_name(func)
    plain = _operators.out_of_place(name)
    if (
        _operators.status(name) == "error" and trace.whole != "one_hot"
    ):  # it looks at values, on a CPU
        raise Error(f"{name}: {_reason(plain)}")
    foreign = [t for t in inputs if not trace.is_on_ipu(t)]
    if foreign and len(foreign) < len(inputs) and name not in UPLOADS:
        raise Error(
            f"{name}: a tensor on the CPU, {_described(foreign[0])}, meets one on the IPU. "
            "Register it as a buffer, or create it with torch.<factory> or device=x.device"
        )
    limit = LIMITS.get(plain)
    problem = limit(_by_name(func, args, kwargs)) if limit else None
    if problem:
        raise Error(f"{name}: {problem}")
    if trace.whole is None and _operators.status(name) != "supported":
        constant = all(trace.is_constant(t) for t in inputs)
        if not (_operators.status(name) == "constant-only" and constant):
            trace.unsupported.add(plain if "::" in plain else f"aten::{plain}")


def _reason(plain):
    if plain in ("nonzero", "_local_scalar_dense", "item"):
        return "a value or a shape that depends on data can't be had while the model is traced"
    return "PopTorch has a handler that always raises"


def _described(tensor):
    return f"{tensor.dtype} {tuple(tensor.shape)}"


def _by_name(func, args, kwargs):
    """Arguments by the names in the operator's schema, with its defaults."""
    bound = {}
    for place, argument in enumerate(func._schema.arguments):
        if place < len(args):
            bound[argument.name] = args[place]
        else:
            bound[argument.name] = kwargs.get(argument.name, argument.default_value)
    return bound


def _limit_index(a):
    for index in a["indices"]:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            return "reading by a boolean mask has a shape that depends on data; use where"
        if index is not None and index.numel() and int(index.min()) < 0:
            return "negative indices aren't wrapped on the IPU"
    return None


def _limit_index_put(a):
    for index in a["indices"]:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            return "several indices, one of them a boolean mask"
    return None


def _limit_slice(a):
    size = a["self"].size(a["dim"])
    start, end = a["start"], a["end"]
    start = 0 if start is None else start + size * (start < 0)
    end = size if end is None else end + size * (end < 0)
    return None if start < min(end, size) else "a slice must not be empty"


def _limit_nll(a):
    return None if a.get("weight") is None else "class weights are unsupported"


def _limit_bitwise(a):
    dtypes = [t.dtype for t in a.values() if isinstance(t, torch.Tensor)]
    return "uint8 is unsupported" if torch.uint8 in dtypes else None


def _limit_norm_layer(a):
    return None if a["weight"] is not None else "norm layers need affine=True"


def _limit_embedding(a):
    odd = a["scale_grad_by_freq"] or a["sparse"]
    return "scale_grad_by_freq and sparse are unsupported" if odd else None


LIMITS = {
    "index": _limit_index,
    "index_put": _limit_index_put,
    "slice": _limit_slice,
    "nll_loss_forward": _limit_nll,
    "nll_loss2d_forward": _limit_nll,
    "bitwise_and": _limit_bitwise,
    "bitwise_or": _limit_bitwise,
    "bitwise_xor": _limit_bitwise,
    "bitwise_not": _limit_bitwise,
    "native_layer_norm": _limit_norm_layer,
    "native_group_norm": _limit_norm_layer,
    "native_batch_norm": _limit_norm_layer,
    "embedding": _limit_embedding,
    "topk": lambda a: None if a["sorted"] else "sorted=False is unsupported",
    "bincount": lambda a: None if a["minlength"] > 0 else "minlength must be above zero",
}
