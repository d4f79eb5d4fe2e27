"""A compiled model: what a call does on the device."""

from __future__ import annotations

import collections
import contextlib

import torch

from . import enums, optim
from ._arguments import check_same, join, split
from ._device import Device
from ._errors import Error
from ._steps import DeviceOptimizer, Settings

HOOKS = {"before": collections.OrderedDict(), "after": collections.OrderedDict()}


class Program:
    """Compiled for the arguments `given`: one micro batch is traced, and nothing of it kept.

    `optimizer` is None for inference.
    """

    def __init__(self, module, signature, given, options, optimizer):
        self._signature, self._given, self._options = signature, given, options
        self._training = optimizer is not None
        first = split(given, options)[0][0][0]
        self.device = Device(module, self._training, options)
        if self._training:
            self.settings = Settings(optimizer)
            self._steps = _device_optimizer(module, self.device, optimizer, self.settings)
        seed = options._values.get("random_seed", torch.initial_seed())
        self.rng_state = [seed, *torch.Generator().manual_seed(seed).get_state().tolist()]
        before = self.device.snapshot()
        for hook in HOOKS["before"].values():
            hook()
        with self._random(keep=False):
            _, loss = self.device.run(signature, first)
        for hook in HOOKS["after"].values():
            hook()
        if self._training:
            self._gradients(loss)
        self.device.write(before)
        _check_stages(options, self._training)

    def call(self, given):
        """Outputs of a call; Error where the arguments aren't like the compiled ones."""
        check_same(self._given, given)
        outputs = []
        with self._random(keep=True):
            for iteration in split(given, self._options):
                outputs += self._iterate(iteration)
        return join(outputs, self._options)

    def _iterate(self, steps):
        """The outputs of one device iteration, `[step][replica]`; in training it ends in a step."""
        outputs, sums = [], {}
        for replicas in steps:
            outputs.append([])
            for replica, micro in enumerate(replicas):
                output, loss = self.device.run(self._signature, micro, replica)
                outputs[-1].append(output)
                if self._training:
                    for name, gradient in self._gradients(loss).items():
                        sums[name] = sums[name] + gradient if name in sums else gradient
        if self._training:
            self._steps.step(self._reduced(sums, len(steps) * self._options.replication_factor))
        return outputs

    def _gradients(self, loss):
        """Gradients of a loss by parameter; of its sum, where it has a shape."""
        wanted = {n: p for n, p in self.device.parameters.items() if p.requires_grad}
        if not loss.requires_grad or not wanted:
            raise Error("The loss depends on no parameter that can be trained")
        gradients = torch.autograd.grad(
            loss, list(wanted.values()), torch.ones_like(loss), allow_unused=True
        )
        return {n: g for n, g in zip(wanted, gradients) if g is not None}

    def _reduced(self, sums, count):
        kind = self._options.Training.accumulation_and_replication_reduction_type
        if kind == enums.ReductionType.Sum or count == 1:
            return sums
        return {name: total / count for name, total in sums.items()}

    @contextlib.contextmanager
    def _random(self, keep):
        """Random numbers come from the device's own stream, and leave the host's alone."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(torch.tensor(self.rng_state[1:], dtype=torch.uint8))
            yield
            if keep:
                self.rng_state = [self.rng_state[0], *torch.get_rng_state().tolist()]

    def set_optimizer(self, settings):
        """Go on with these numbers; Error where one of them was compiled in."""
        settings.check_replaces(self.settings)
        self._steps.load(settings)

    def optimizer_state(self):
        """A copy of the optimiser's state on the device."""
        return self._steps.state()

    def set_optimizer_state(self, state):
        """Write what `optimizer_state` returned to the device."""
        self._steps.load_state(state)


def _device_optimizer(module, device, optimizer, settings):
    names = {id(p): n for n, p in module.named_parameters()}
    groups = []
    for group in optimizer.param_groups:
        if any(id(p) not in names for p in group["params"]):
            raise Error("The optimizer has a parameter that isn't one of the model's")
        of_group = [names[id(p)] for p in group["params"]]
        groups.append([(name, device.parameters[name]) for name in of_group])
    steps = DeviceOptimizer(settings, groups)
    if isinstance(optimizer, optim.Optimizer) and optimizer.has_state():
        steps.load_state(optimizer._ipu_state)
    return steps


def _check_stages(options, training):
    """Raise Error where the options don't suit the stages and IPUs that the trace came upon."""
    strategy = options._strategy
    stages = strategy._stage_count() if strategy._pipelined() else 1
    accumulation, iterations = options.Training.gradient_accumulation, options.device_iterations
    if training and stages > 1 and accumulation < 2 * stages - 1:
        raise Error(
            f"A pipeline of {stages} stages trains with gradientAccumulation of at least "
            f"{2 * stages - 1}, not {accumulation}"
        )
    if not training and iterations < stages:
        raise Error(
            f"A pipeline of {stages} stages needs deviceIterations of at least {stages}, "
            f"not {iterations}"
        )
    ipus = strategy._ipu_count() * options.replication_factor
    if ipus & (ipus - 1) and not options.auto_round_num_ipus:
        raise Error(f"{ipus} IPUs: the number must be a power of two (autoRoundNumIPUs)")


def registerPreCompileHook(hook):
    return _register("before", hook)


def registerPostCompileHook(hook):
    return _register("after", hook)


def _register(when, hook):
    handle = torch.utils.hooks.RemovableHandle(HOOKS[when])
    HOOKS[when][handle.id] = hook
    return handle
