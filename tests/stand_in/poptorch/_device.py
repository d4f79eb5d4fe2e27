"""The model on the device: a copy made when it is compiled, with weights of its own.

A compiled graph keeps what Python saw while it was traced. So the copy's Python attributes (the
training flag, counters, constants) are put back before each run, and integer buffers too, which are
compiled in as constants. Parameters and floating-point buffers live on between runs.
"""

from __future__ import annotations

import contextlib
import copy
import logging

import torch

from ._arguments import NARROWER
from ._calls import Calls, no_gradients_inside
from ._errors import Error, unsupported_ops
from ._kernels import Kernels
from ._structures import mapped
from ._trace import Trace

LOGGER = logging.getLogger("poptorch")

BATCH_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)
STORES = ("_parameters", "_buffers")


class Device:
    """Runs micro batches of a compiled model under the rules of a trace."""

    def __init__(self, module, training, options):
        self._module = copy.deepcopy(module)
        self._training = training
        self._strategy = options._strategy
        self._narrow()
        self.parameters = dict(self._module.named_parameters())
        self.buffers = {n: b for n, b in self._module.named_buffers() if b.is_floating_point()}
        self._frozen = {
            n: (b, b.clone()) for n, b in self._module.named_buffers() if not b.is_floating_point()
        }
        self._attributes = [
            (part, {k: v for k, v in part.__dict__.items() if k not in STORES})
            for part in self._module.modules()
        ]
        self._replicas = options.replication_factor
        self._broadcast = options.broadcast_buffers
        self._replica_buffers = None
        self.set_buffers()

    def _narrow(self):
        for part in self._module.modules():
            for store in STORES:
                for tensor in getattr(part, store).values():
                    if tensor is not None and tensor.dtype in NARROWER:
                        LOGGER.warning("%s is narrowed on the IPU", tensor.dtype)
                        tensor.data = tensor.data.to(NARROWER[tensor.dtype])

    def set_buffers(self):
        """All replicas begin with the buffers as they are now."""
        self._replica_buffers = [
            {n: b.clone() for n, b in self.buffers.items()} for _ in range(self._replicas)
        ]

    def weights(self):
        """Parameters and buffers that change, by name; of buffers, those of the first replica."""
        self._load(0)
        return {**self.parameters, **self.buffers}

    def snapshot(self):
        """Copies of all weights, for `write`."""
        return {n: t.detach().clone() for n, t in self.weights().items()}

    @torch.no_grad()
    def write(self, weights):
        """Copy these values, by name, to the device; integer buffers stay what was compiled."""
        for name, tensor in {**self.parameters, **self.buffers}.items():
            tensor.copy_(weights[name])
        self.set_buffers()

    @torch.no_grad()
    def _load(self, replica):
        """Before a run, not after one: its backward pass may still need what it left behind."""
        for buffer, value in self._frozen.values():
            if not torch.equal(buffer, value):
                buffer.copy_(value)
        for buffer in self.buffers.values():
            buffer.detach_()
        if self._replicas > 1:
            for name, buffer in self.buffers.items():
                buffer.copy_(self._replica_buffers[replica][name])

    @torch.no_grad()
    def _keep(self, replica):
        if self._replicas == 1:
            return
        kept = self._replica_buffers[replica]
        for name, buffer in self.buffers.items():
            if self._broadcast and not torch.equal(buffer, kept[name]):
                raise Error(
                    f"Buffer {name} changes in forward: with several replicas that needs "
                    "options.broadcastBuffers(False)"
                )
            kept[name].copy_(buffer)

    def run(self, signature, given, replica=0):
        """Outputs, detached, and in training the final loss, of one micro batch."""
        self._load(replica)
        before = {s: [dict(getattr(p, s)) for p in self._module.modules()] for s in STORES}
        trace = Trace(self._training, self._strategy)
        self._strategy._start_trace()
        trace.put(given)
        trace.put([*self._module.parameters(), *self._module.buffers()])
        try:
            outputs = self._traced(trace, signature, given)
            self._check_in_place(before)
        finally:
            self._put_back(before)
        if trace.unsupported:
            raise unsupported_ops(trace.unsupported)
        self._keep(replica)
        loss = trace.final_loss() if self._training else None
        return mapped(_detached, outputs), loss

    def _traced(self, trace, signature, given):
        try:
            with trace.running(), _grad(self._training), Kernels(trace), Calls(trace):
                return signature.call(self._module, given)
        except Exception as error:
            # What comes after an operator without a lowering never ran on an IPU.
            if trace.unsupported and not isinstance(error, Error):
                raise unsupported_ops(trace.unsupported) from error
            raise

    def _check_in_place(self, before):
        for store, kept in before.items():
            word = "Buffer" if store == "_buffers" else "Parameter"
            for part, then in zip(self._module.modules(), kept):
                now = getattr(part, store)
                for name in then if not isinstance(part, BATCH_NORMS) else ():
                    if now.get(name) is not then[name]:
                        raise Error(
                            f"{word} {name} is reassigned within the model when calling the "
                            f"forward method. This is not supported. Consider using self.{name}"
                            ".copy_(src) to copy data from a source tensor"
                        )

    @torch.no_grad()
    def _put_back(self, before):
        for part, attributes in self._attributes:
            for name in [k for k in part.__dict__ if k not in attributes and k not in STORES]:
                del part.__dict__[name]
            part.__dict__.update(attributes)
        for store, kept in before.items():
            for part, then in zip(self._module.modules(), kept):
                getattr(part, store).clear()
                getattr(part, store).update(then)


@contextlib.contextmanager
def _grad(training):
    """Training traces with gradients, and refuses other uses of autograd; inference has none."""
    if training:
        with torch.enable_grad(), no_gradients_inside():
            yield
    else:
        with torch.no_grad():
            yield


def _detached(value):
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
