"""Rules for what a model's Python calls: a mode above autograd.

Here a composite still has its name, losses can be told from their parts, and the calls that never
reach a kernel (item, print, `.cpu()`) can be seen.
"""

from __future__ import annotations

import contextlib

import torch
from torch.overrides import TorchFunctionMode

from . import _operators, _writes
from ._errors import Error
from ._structures import mapped, tensors

# Calls that bring values to the host.
ON_HOST = {
    "__array__", "__bool__", "__complex__", "__contains__", "__float__", "__format__", "__index__",
    "__int__", "__repr__", "cpu", "is_nonzero", "item", "numpy", "tolist",
}  # fmt: skip

# Factories of `torch` that PopTorch sends to the IPU when no device is given. Any other way to make
# a tensor from nothing (torch.ops.aten.zeros, torch.eye, torch.from_numpy) makes it on the CPU.
FACTORIES = {
    "arange", "empty", "full", "full_like", "linspace", "logspace", "normal", "ones", "rand",
    "randint", "randn", "randperm", "range", "tensor", "zeros", "zeros_like",
}  # fmt: skip

# Losses that PopTorch marks by itself, and the place of their class weight if they have one.
LOSSES = {
    "binary_cross_entropy": None,
    "binary_cross_entropy_with_logits": None,
    "cosine_embedding_loss": None,
    "cross_entropy": 2,
    "cross_entropy_loss": 2,
    "ctc_loss": None,
    "hinge_embedding_loss": None,
    "kl_div": None,
    "l1_loss": None,
    "margin_ranking_loss": None,
    "mse_loss": None,
    "multilabel_soft_margin_loss": None,
    "nll_loss": 2,
    "nll_loss2d": 2,
    "nll_loss2d_forward": 2,
    "nll_loss_forward": 2,
    "nll_loss_nd": 2,
    "poisson_nll_loss": None,
    "smooth_l1_loss": None,
    "soft_margin_loss": None,
    "triplet_margin_loss": None,
}

RECURRENT = {"gru", "lstm", "rnn_relu", "rnn_tanh"}


class Calls(TorchFunctionMode):
    """Looks at each call of torch's that a model makes."""

    def __init__(self, trace):
        super().__init__()
        self._trace = trace

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        trace = self._trace
        if trace.busy:
            return func(*args, **kwargs)
        name = _operators.base_name(func)
        if name == "__get__":
            return _property(trace, func, args, kwargs)
        _refuse(trace, func, name, args, kwargs)
        args, kwargs, device = _without_ipu(name, args, kwargs)
        given = list(tensors((args, kwargs)))
        if device == "cpu" and name in ("to", "_to_copy") and any(map(trace.is_on_ipu, given)):
            raise Error(f"{name}: a tensor can't be brought to the CPU while the model is traced")
        creates = device or ("ipu" if given or _redirected(func, name) else "cpu")
        whole = name if _operators.listed(name) else None
        with trace.having(creates=creates, whole=whole):
            result = _writes.write(trace, name, args, kwargs)
            if result is NotImplemented:
                result = func(*args, **kwargs)
        if creates == "ipu" and (_redirected(func, name) or device):
            trace.put(result, constant=not given)
        if name in LOSSES:
            trace.add_loss(next(tensors(result)), given)
        return result


@contextlib.contextmanager
def no_gradients_inside():
    """The ways to ask autograd for something in forward that no call of torch's shows."""

    def refuse(*args, **kwargs):
        raise Error(
            "torch.autograd inside forward: the backward pass is made by the compiler, so "
            "autograd.backward and custom autograd.Function aren't available"
        )

    before = torch.autograd.backward, torch.autograd.Function.__dict__.get("apply")
    torch.autograd.backward = refuse
    torch.autograd.Function.apply = classmethod(refuse)
    try:
        yield
    finally:
        torch.autograd.backward = before[0]
        if before[1] is None:
            del torch.autograd.Function.apply
        else:
            torch.autograd.Function.apply = before[1]


def _property(trace, func, args, kwargs):
    if getattr(func.__self__, "__name__", "") == "device" and trace.is_on_ipu(args[0]):
        return torch.device("ipu", 0)
    return func(*args, **kwargs)


def _redirected(func, name):
    return name in FACTORIES and not hasattr(func, "_schema") and not _is_packet(func)


def _is_packet(func):
    return hasattr(func, "_qualified_op_name")


def _without_ipu(name, args, kwargs):
    """Arguments with the device "ipu" replaced by the CPU, and the device named there, if any."""
    named = []

    def local(value):
        if not isinstance(value, torch.device):
            return value
        named.append(value.type)
        return torch.device("cpu") if value.type == "ipu" else value

    kwargs = dict(kwargs)
    if isinstance(kwargs.get("device"), str):
        kwargs["device"] = torch.device(kwargs["device"])
    if name == "to" and len(args) > 1 and isinstance(args[1], str):
        args = (args[0], torch.device(args[1]), *args[2:])
    args, kwargs = mapped(local, tuple(args)), mapped(local, kwargs)
    return args, kwargs, named[0] if named else None


def _refuse(trace, func, name, args, kwargs):
    """Raise Error for a call that no IPU can obey; note operators that have no lowering."""
    if name in ON_HOST:
        raise Error(f"{name}: the value of a tensor can't be had while the model is traced")
    if func is torch.autograd.grad or func is torch.Tensor.backward:
        raise Error(
            f"{name} inside forward: the backward pass is made by the compiler, so gradients can't "
            "be asked for, nor differentiated again"
        )
    if name == "where" and len(args) + len(kwargs) == 1:
        raise Error("where(condition): a shape that depends on data can't be had on the IPU")
    if name == "one_hot" and (list(args[1:]) or [kwargs.get("num_classes", -1)])[0] == -1:
        raise Error("one_hot: num_classes must be given")
    if name == "norm" and any(isinstance(v, str) and v == "nuc" for v in (*args, *kwargs.values())):
        raise Error("norm: the nuclear norm is unsupported")
    if name in RECURRENT and len(args) == 9 and (args[4] != 1 or args[5] != 0 or args[7]):
        raise Error(f"{name}: one layer, one direction and no dropout")
    if name == "ctc_loss" and kwargs.get("reduction") == "none":
        raise Error("ctc_loss: reduction none is unsupported")
    place = LOSSES.get(name)
    if place is not None:
        weight = args[place] if len(args) > place else kwargs.get("weight")
        if weight is not None:
            raise Error(f"{name}: class weights are unsupported")
    if _operators.refused(name):
        if _operators.status(name) == "error":
            raise Error(f"{name}: PopTorch refuses it")
        trace.unsupported.add(f"aten::{_operators.out_of_place(name)}")
