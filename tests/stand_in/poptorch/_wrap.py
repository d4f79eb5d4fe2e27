"""Wrapping and loading models, and the few functions about the machine."""

from __future__ import annotations

import logging

import torch

from . import _files, enums
from ._errors import Error
from ._executor import PoplarExecutor

VERSION = "3.4.0"

# PopTorch's names, by its numbers, and Python's levels.
LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERR": 40, "OFF": 100}


def trainingModel(model, options=None, optimizer=None):
    """Wrap a module whose forward computes its loss; see `PoplarExecutor`."""
    return PoplarExecutor(_module(model), options, True, VERSION, optimizer)


def inferenceModel(model, options=None):
    """Wrap a module for inference; weights follow a trainingModel of the same module."""
    return PoplarExecutor(_module(model), options, False, VERSION)


def load(filename, edit_opts_fn=None):
    """The compiled model that `compileAndExport` or `save` wrote, ready for a device."""
    content = _files.read(filename, VERSION)
    if "model" not in content:
        raise Error(f"{filename} was written with export_model=False: use loadExecutable")
    chosen = content["options"].clone()
    chosen._values.pop("ipu_version", None)
    if chosen.connection_type == enums.ConnectionType.Never:
        chosen.connectionType(enums.ConnectionType.Always)
    if edit_opts_fn is not None:
        edit_opts_fn(chosen)
    optimizer = content["optimizer"]
    executor = PoplarExecutor(content["model"], chosen, content["training"], VERSION, optimizer)
    executor.loadExecutable(filename)
    return executor


def _module(model):
    if isinstance(model, PoplarExecutor):
        model = model.model
    if not isinstance(model, torch.nn.Module):
        raise Error(f"Expected a torch.nn.Module, not a {type(model)}")
    return model


def ipuHardwareIsAvailable(num_ipus=1):
    return False


def ipuHardwareVersion():
    raise AssertionError("There is no IPU hardware")


def setLogLevel(level):
    """Level of the logger "poptorch", which warnings go to: a name of `LEVELS` or its place."""
    names = list(LEVELS)
    name = names[level] if isinstance(level, int) and 0 <= level < len(names) else level
    if name not in LEVELS:
        raise ValueError(f"{level!r} isn't one of {names}")
    logging.getLogger("poptorch").setLevel(LEVELS[name])
