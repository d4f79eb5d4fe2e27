"""Arguments of a call: put in order, compared with the compiled ones, split and joined again."""

from __future__ import annotations

import inspect
import logging

import torch

from . import enums
from ._errors import BatchDimensionError, Error
from ._structures import mapped, tensors

LOGGER = logging.getLogger("poptorch")

AGAIN = "To compile for other inputs make a new wrapper, or call destroy() on this one."
NARROWER = {torch.float64: torch.float32, torch.bfloat16: torch.float16}


class Signature:
    """The parameters of a model's forward."""

    def __init__(self, function):
        self._signature = inspect.signature(function)

    def order(self, args, kwargs):
        """All arguments by name, defaults included; tensors contiguous. Error where one lacks."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise Error(f"The arguments don't fit the model's forward: {error}") from error
        bound.apply_defaults()
        given = dict(bound.arguments)
        for tensor in tensors(given):
            if tensor.requires_grad:
                raise Error(
                    "An input tensor to an IPU model can not have requires_grad set to True; set "
                    "it inside the model"
                )
            if not tensor.is_contiguous():
                LOGGER.warning("An input isn't contiguous: it is copied")
        return mapped(lambda v: v.contiguous() if isinstance(v, torch.Tensor) else v, given)

    def call(self, function, given):
        """Call `function` with the arguments of `order`."""
        bound = inspect.BoundArguments(self._signature, given)
        return function(*bound.args, **bound.kwargs)


def check_same(compiled, given, name="the arguments"):
    """Raise Error unless `given` has the structure, shapes, types and constants of `compiled`."""
    if type(compiled) is not type(given):
        raise Error(f"Type mismatch for {name}: {type(compiled)} became {type(given)}. {AGAIN}")
    if isinstance(compiled, torch.Tensor):
        if compiled.dtype != given.dtype:
            raise Error(f"Data type mismatch for {name}: {compiled.dtype}, {given.dtype}. {AGAIN}")
        if compiled.shape != given.shape:
            before, now = tuple(compiled.shape), tuple(given.shape)
            raise Error(f"Shape mismatch for {name}: {before} became {now}. {AGAIN}")
    elif isinstance(compiled, dict):
        if set(compiled) != set(given):
            raise Error(f"Keys mismatch for {name}: {set(compiled)}, {set(given)}. {AGAIN}")
        for key in compiled:
            check_same(compiled[key], given[key], f"{name}[{key!r}]")
    elif isinstance(compiled, (list, tuple)):
        if len(compiled) != len(given):
            raise Error(f"Length mismatch for {name}: {len(compiled)}, {len(given)}. {AGAIN}")
        for i, (before, now) in enumerate(zip(compiled, given)):
            check_same(before, now, f"{name}[{i}]")
    elif compiled != given:
        raise Error(
            f"Value mismatch for {name}: {compiled!r} was compiled in as a constant, and is now "
            f"{given!r}. {AGAIN}"
        )


def split(given, options):
    """Arguments of each micro batch: `batches[iteration][accumulation][replica]`.

    Dimension 0 holds iterations, then accumulation steps, then groups of replicas. Replicas of a
    group share their input. A 0-d tensor is the same for all.
    """
    iterations = options.device_iterations
    accumulation = options.Training.gradient_accumulation
    groups = options._input_groups
    parts = iterations * accumulation * groups
    for tensor in tensors(given):
        if tensor.dim() and tensor.size(0) % parts:
            raise BatchDimensionError(
                f"Invalid batch dimension: in the input {tuple(tensor.shape)}, the batch dimension "
                f"must be a multiple of Options.deviceIterations({iterations}) * "
                f"(Options.replicationFactor({options.replication_factor}) / input_group_size"
                f"({options.input_group_size})) * "
                f"Options.Training.gradientAccumulation({accumulation}) = {parts}"
            )

    def micro(place):
        def cut(value):
            if not isinstance(value, torch.Tensor):
                return value
            if value.dim():
                rows = value.size(0) // parts
                value = value[place * rows : (place + 1) * rows]
            return _as_on_device(value)

        return mapped(cut, given)

    def group_of(replica):
        if options.input_group_type == enums.CommGroupType.Orthogonal:
            return replica % groups
        return replica // options.input_group_size

    return [
        [
            [
                micro((i * accumulation + a) * groups + group_of(r))
                for r in range(options.replication_factor)
            ]
            for a in range(accumulation)
        ]
        for i in range(iterations)
    ]


def _as_on_device(tensor):
    """A copy with the values that the device holds: float64 narrowed, int64 wrapped to 32 bits.

    The type stays int64, which is what indices on a CPU must be.
    """
    if tensor.dtype is torch.int64:
        return tensor.to(torch.int32).to(torch.int64)
    return tensor.to(NARROWER.get(tensor.dtype, tensor.dtype), copy=True)


def join(outputs, options):
    """What a call returns of the outputs of its micro batches, as `outputs[step][replica]`.

    `step` counts accumulation steps of all iterations. Per replica: Final keeps the last step,
    EveryN every n-th, Sum adds them, All keeps all. What is kept is joined along dimension 0 in the
    order of the inputs; 0-d tensors become one-dimensional if there are several.
    """
    mode, period = options.output_mode, options.output_return_period
    if mode == enums.OutputMode.EveryN and len(outputs) % period:
        raise Error(f"OutputMode.EveryN: {period} must divide the {len(outputs)} micro batches")
    if mode == enums.OutputMode.Final:
        outputs = outputs[-1:]
    elif mode == enums.OutputMode.EveryN:
        outputs = outputs[period - 1 :: period]
    elif mode == enums.OutputMode.Sum:
        outputs = [[mapped(_sum, *steps) for steps in zip(*outputs)]]
    return mapped(_joined, *(replica for step in outputs for replica in step))


def _sum(*values):
    return sum(values[1:], values[0]) if isinstance(values[0], torch.Tensor) else values[0]


def _joined(*values):
    if not isinstance(values[0], torch.Tensor):
        return values[0]
    if len(values) == 1:
        joined = values[0]
    else:
        joined = torch.cat(values) if values[0].dim() else torch.stack(values)
    narrower = {torch.int64: torch.int32, **NARROWER}
    joined = joined.to(narrower.get(joined.dtype, joined.dtype))
    joined.backward = _no_backward
    return joined


def _no_backward(*args, **kwargs):
    raise Error(
        "backward() cannot be called explicitly on outputs of a PopTorch model: a trainingModel "
        "has made the backward pass and the step already"
    )
