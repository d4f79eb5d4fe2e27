"""The user's module on the host, whose weights are pulled from the device when they are read.

As in PopTorch, wrapping for training changes the class of the module, of its parameters and of its
buffers. Reading one of them through Python pulls the weights first, if the device has newer ones.
What was taken out before (the values of a state_dict, a detached tensor, an array) shares the
host's memory and is stale until something pulls: `copyWeightsToHost`, or such a read.
"""

from __future__ import annotations

import copy

import torch

from ._errors import Error


def wrap(module, pull):
    """Make reads of the module's weights call `pull` first; `unwrap` undoes it."""
    if is_wrapped(module):
        raise Error(
            "The model has already been wrapped by trainingModel: call destroy() on that wrapper "
            "before wrapping it again"
        )
    for name, buffer in module.named_buffers():
        if type(buffer) is not torch.Tensor:
            raise Error(f"All buffers must be an instance of torch.Tensor: {name}, {type(buffer)}")
    parameter_class, buffer_class = _parameter_class(pull), _buffer_class(pull)
    for parameter in module.parameters():
        parameter.__class__ = parameter_class
    for buffer in module.buffers():
        buffer.__class__ = buffer_class
    module.__class__ = _module_class(type(module), pull)


def is_wrapped(module):
    """Whether a trainingModel has wrapped this module."""
    return hasattr(type(module), "_poptorch_unwrapped")


def unwrap(module):
    """Give the module, its parameters and its buffers their own classes back."""
    module.__class__ = type(module)._poptorch_unwrapped
    for parameter in module.parameters():
        parameter.__class__ = torch.nn.Parameter
    for buffer in module.buffers():
        buffer.__class__ = torch.Tensor


def _new(base, *args):
    return base.__new__(base, *args)


def _module_class(base, pull):
    class Wrapped(base):
        _poptorch_unwrapped = base

        def copyWeightsToHostIfNeeded(self):
            return pull()

        def __reduce_ex__(self, protocol):
            # Copies and pickles are of the user's class, and know nothing of a device.
            made = super().__reduce_ex__(protocol)
            return (_new, (base, *made[1][1:]), *made[2:])

    Wrapped.__name__ = Wrapped.__qualname__ = f"Poptorch{base.__name__}"
    return Wrapped


def _plainly(func, args, kwargs):
    """Call `func` so that its results are plain tensors.

    It needs no pull: that a class has `__torch_function__` makes torch read the attribute of the
    tensor itself, which pulls.
    """
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def _parameter_class(pull):
    class PoptorchParameter(torch.nn.Parameter):
        def __getattribute__(self, name):
            pull()
            return super().__getattribute__(name)

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return _plainly(func, args, kwargs)

        def __deepcopy__(self, memo):
            memo[id(self)] = torch.nn.Parameter(self.detach().clone(), self.requires_grad)
            return memo[id(self)]

        def __reduce_ex__(self, protocol):
            return torch.nn.Parameter(self.detach(), self.requires_grad).__reduce_ex__(protocol)

    return PoptorchParameter


def _buffer_class(pull):
    class PoptorchBuffer(torch.Tensor):
        def __getattribute__(self, name):
            pull()
            return super().__getattribute__(name)

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return _plainly(func, args, kwargs)

        def __deepcopy__(self, memo):
            memo[id(self)] = copy.deepcopy(self.detach(), memo)
            return memo[id(self)]

        def __reduce_ex__(self, protocol):
            return self.detach().__reduce_ex__(protocol)

    return PoptorchBuffer
