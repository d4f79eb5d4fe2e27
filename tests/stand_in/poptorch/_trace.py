"""What is known while a forward runs as the IPU would trace it.

Facts about a tensor are kept by its storage, so views share them: whether it is on the IPU, whether
it can be computed at compile time, and which losses it was computed from.
"""

from __future__ import annotations

import contextlib

from ._errors import Error
from ._structures import tensors

_current = None


def current():
    """The trace under way, or None."""
    return _current


def isRunningOnIpu():
    """True while a model is traced, and only then."""
    return _current is not None


def storage(tensor):
    """What identifies a tensor's memory, for as long as something keeps it alive."""
    return tensor.untyped_storage()._cdata


class Trace:
    """One forward: `training` says whether a loss is wanted, `strategy` is told of blocks."""

    def __init__(self, training, strategy):
        self.training = training
        self.strategy = strategy
        self.unsupported = set()
        self.whole = None  # the call that PopTorch takes whole, whose parts don't count
        self.creates = "ipu"  # where a factory puts its tensor
        self.internal = False  # the stand-in's own arithmetic, which no rule is for
        self.busy = False  # a rule is being looked at: calls made by it are no calls of the model
        self._on_ipu = {}  # storage: whether it is a compile-time constant
        self._losses_in = {}  # storage: losses that it was computed from
        self._losses = []  # tensor, and the losses that feed into it
        self._alive = []  # a storage's address means something only while it is in use

    def put(self, structure, constant=False):
        """These tensors are on the IPU."""
        for tensor in tensors(structure):
            self._alive.append(tensor)
            self._on_ipu[storage(tensor)] = constant

    def is_on_ipu(self, tensor):
        return storage(tensor) in self._on_ipu

    def is_constant(self, tensor):
        return self._on_ipu.get(storage(tensor), False)

    def losses_in(self, structure):
        """Losses that any of these tensors was computed from."""
        return set().union(*(self._losses_in.get(storage(t), ()) for t in tensors(structure)))

    def follow(self, inputs, outputs):
        """An operator has turned these tensors into those."""
        losses = self.losses_in(inputs)
        constant = all(self.is_constant(t) for t in inputs)
        among = any if self.internal and inputs else all
        from_ipu = among(self.is_on_ipu(t) for t in inputs)
        for tensor in tensors(outputs):
            key = storage(tensor)
            if losses:
                self._losses_in[key] = self._losses_in.get(key, set()) | losses
            if key in self._on_ipu:
                self._on_ipu[key] = self._on_ipu[key] and constant
            elif from_ipu and self.creates == "ipu":
                self._on_ipu[key] = constant
            self._alive.append(tensor)

    def add_loss(self, tensor, inputs):
        """`tensor` is a loss computed from `inputs`."""
        fed_by = self.losses_in(inputs)
        self._losses_in[storage(tensor)] = fed_by | {len(self._losses)}
        self._losses.append((tensor, fed_by))
        self._alive.append(tensor)

    def final_loss(self):
        """The one loss that no other is computed from; Error where there is none, or several."""
        fed = set().union(*(fed_by for _, fed_by in self._losses))
        final = [tensor for i, (tensor, _) in enumerate(self._losses) if i not in fed]
        if not final:
            raise Error("Couldn't find a loss in graph!")
        if len(final) > 1:
            raise Error(
                "Multiple independent losses found in graph. Graph must have one final loss. "
                "Wrap final graph loss in poptorch.identity_loss."
            )
        return final[0]

    @contextlib.contextmanager
    def having(self, **state):
        """Set these attributes, and put back what they were."""
        before = {name: getattr(self, name) for name in state}
        self.__dict__.update(state)
        try:
            yield
        finally:
            self.__dict__.update(before)

    @contextlib.contextmanager
    def running(self):
        """Make this the trace under way."""
        global _current
        before, _current = _current, self
        try:
            yield self
        finally:
            _current = before
