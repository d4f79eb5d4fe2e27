"""The stand-in of PopTorch, for tests: imported from tests/stand_in, and forgotten afterwards."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

STAND_IN = Path(__file__).parents[1] / "stand_in"


@contextlib.contextmanager
def poptorch_stand_in() -> Iterator[ModuleType]:
    """`poptorch`, importable inside and gone outside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(STAND_IN)
        try:
            yield importlib.import_module("poptorch")
        finally:
            for name in [n for n in sys.modules if n.partition(".")[0] == "poptorch"]:
                del sys.modules[name]


class Calling(torch.nn.Module):
    """A model whose forward is a function: of the module, then of the arguments.

    It has a weight (3, 2), and the buffers it is given.
    """

    def __init__(self, function, **buffers):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(6.0).reshape(3, 2) / 6 - 0.3)
        for name, value in buffers.items():
            self.register_buffer(name, value.clone())
        self.function = function

    def forward(self, *args):
        return self.function(self, *args)


def squares(m, x, y):
    """A forward for `Calling`: the predictions, and the mean of their squared errors."""
    out = x @ m.weight
    return out, torch.nn.functional.mse_loss(out, y)


def rows_for_squares(count):
    """Arguments for `squares`, always the same."""
    generator = torch.Generator().manual_seed(3)
    return torch.randn(count, 3, generator=generator), torch.randn(count, 2, generator=generator)


def options_for(poptorch, iterations=1, accumulation=1, replicas=1, mode=None, reduction=None):
    """Options that split a batch in so many parts; `mode` holds the arguments of outputMode."""
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    if mode is not None:
        options.outputMode(*mode)
    if reduction is not None:
        options.Training.accumulationAndReplicationReductionType(reduction)
    return options


def trainer(poptorch, module, lr=0.1, **options):
    """A training executor of the module with plain SGD; options as in `options_for`."""
    optimizer = poptorch.optim.SGD(module.parameters(), lr=lr)
    return poptorch.trainingModel(module.train(), options_for(poptorch, **options), optimizer)


def train_once(poptorch, function, *args, **buffers):
    """One call of a function of a module and of arguments: what it returned, and the module."""
    module = Calling(function, **buffers)
    model = trainer(poptorch, module, lr=1.0)
    try:
        return model(*args), module
    finally:
        model.destroy()
