"""`Block` and `BeginBlock`: marks of where a part of a model begins, for the execution strategy."""

from __future__ import annotations

import functools

import torch

from ._errors import Error
from ._trace import current
from ._values import expect

HANDLE = "_poptorch_block"


class Block(torch.nn.Module):
    """`with poptorch.Block("name", ipu_id=0):` - what runs inside belongs to the block."""

    def __init__(self, user_id=None, ipu_id=None):
        super().__init__()
        _check(user_id, ipu_id)
        self._user_id = user_id
        self._ipu_id = ipu_id

    @staticmethod
    def useAutoId():
        if current() is not None:
            current().strategy._reset_auto_id()

    @staticmethod
    def start(user_id=None, ipu_id=None):
        _check(user_id, ipu_id)
        if current() is not None:
            current().strategy._begin(user_id, ipu_id)

    def __enter__(self):
        Block.start(self._user_id, self._ipu_id)

    def __exit__(self, kind, value, traceback):
        return None


def BeginBlock(layer_to_call, user_id=None, ipu_id=None):
    """Begin a block each time this layer is called; Error where it already begins one."""
    _check(user_id, ipu_id)
    if hasattr(layer_to_call, HANDLE):
        raise Error("The layer already begins a block: call poptorch.removeBlocks first")
    begin = functools.partial(_begin, user_id, ipu_id)
    setattr(layer_to_call, HANDLE, layer_to_call.register_forward_pre_hook(begin))
    return layer_to_call


def BlockFunction(user_id=None, ipu_id=None):
    """A decorator: the function's body is a block."""

    def decorate(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return wrapped

    return decorate


def removeBlocks(module):
    """Undo BeginBlock in a module and all inside it."""
    for part in module.modules():
        if hasattr(part, HANDLE):
            getattr(part, HANDLE).remove()
            delattr(part, HANDLE)


def _begin(user_id, ipu_id, module, inputs):
    Block.start(user_id, ipu_id)


def _check(user_id, ipu_id):
    expect(user_id is None or isinstance(user_id, str), f"A block's id is a string: {user_id!r}")
    expect(ipu_id is None or isinstance(ipu_id, int), f"An IPU's id is an integer: {ipu_id!r}")
