"""What the device knows of an optimiser: numbers read once, its own state, and the step."""

from __future__ import annotations

import copy

import torch

from . import _updates, optim
from ._errors import Error
from ._values import expect

# Attributes of a group; what the device can be told to change, then what is compiled in for good.
GROUP = {
    "SGD": (("lr", "momentum", "dampening", "weight_decay"), ("nesterov", "maximize")),
    "Adam": (("lr", "betas", "eps", "weight_decay"), ("maximize",)),
    "AdamW": (("lr", "betas", "eps", "weight_decay"), ("maximize",)),
    "RMSprop": (("lr", "alpha", "eps", "weight_decay", "momentum"), ("centered",)),
    "LAMB": (("lr", "betas", "eps", "weight_decay"), ()),
}
WHOLE = (
    ("loss_scaling", "velocity_scaling", "max_weight_norm"),
    (
        "accum_type",
        "velocity_accum_type",
        "first_order_momentum_accum_type",
        "second_order_momentum_accum_type",
        "max_grad_norm",
        "bias_correction",
        "use_combined_accum",
        "use_tf_variant",
    ),
)

# With an optimiser of torch's an attribute is constant while it has this value; betas and alpha
# always are.
DEFAULTS = {"momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "eps": 1e-8}


class Settings:
    """The numbers of an optimiser as they were when it was read."""

    def __init__(self, optimizer):
        self.kind = _kind(optimizer)
        self.groups, self.whole, self.constant = [], {}, set()
        variable, fixed = GROUP[self.kind]
        for place, group in enumerate(optimizer.param_groups):
            if group.get("amsgrad"):
                raise ValueError("Only non-amsgrad Adam and AdamW optimisers are supported")
            self.groups.append({n: group[n] for n in (*variable, *fixed)})
            self.constant |= {
                (place, n) for n in variable if _constant(optimizer, self.kind, n, group[n])
            }
            self.constant |= {(place, n) for n in fixed}
        for name in (*WHOLE[0], *WHOLE[1]):
            if hasattr(optimizer, name):
                self.whole[name] = getattr(optimizer, name)
                if name in WHOLE[1] or _constant(optimizer, self.kind, name, self.whole[name]):
                    self.constant.add((None, name))

    def values(self):
        """Every value by place and name: the number of the group, or None for the optimiser."""
        named = {(None, name): value for name, value in self.whole.items()}
        for place, group in enumerate(self.groups):
            named.update({(place, name): value for name, value in group.items()})
        return named

    def check_replaces(self, compiled):
        """Raise Error where a compiled model can't go on with these settings."""
        ours, theirs = self.values(), compiled.values()
        if self.kind != compiled.kind or set(ours) != set(theirs):
            raise Error(
                f"The optimiser can't be replaced after compilation: {compiled.kind} with "
                f"{len(compiled.groups)} groups by {self.kind} with {len(self.groups)}"
            )
        for key in ours:
            where = f"{key[1]}" + ("" if key[0] is None else f" of group {key[0]}")
            if (key in self.constant) != (key in compiled.constant):
                raise Error(f"{where} can't turn from constant to variable, or back, once compiled")
            if key in self.constant and ours[key] != theirs[key]:
                raise Error(
                    f"{where} was compiled in as the constant {theirs[key]} and can't become "
                    f"{ours[key]}; pass it to the first optimiser explicitly to make it variable"
                )


def _kind(optimizer):
    kinds = (
        (torch.optim.SGD, "SGD"),
        (torch.optim.AdamW, "AdamW"),
        (torch.optim.Adam, "Adam"),
        (torch.optim.RMSprop, "RMSprop"),
        (optim.LAMB, "LAMB"),
    )
    found = [name for cls, name in kinds if isinstance(optimizer, cls)]
    expect(found, f"Unsupported optimiser {type(optimizer).__name__}; {list(GROUP)} are supported")
    return found[0]


def _constant(optimizer, kind, name, value):
    attributes = getattr(optimizer, "variable_attrs", None)
    if attributes is not None:
        return attributes.isConstant(name)
    if name == "lr":
        return False
    default = 0.01 if (kind, name) == ("AdamW", "weight_decay") else DEFAULTS.get(name, value)
    return value == default


class DeviceOptimizer:
    """Steps the device's parameters; `groups` holds (name, parameter) pairs, group by group."""

    def __init__(self, settings, groups):
        self._named = dict(pair for group in groups for pair in group)
        self._groups = [[parameter for _, parameter in group] for group in groups]
        self._own = _own_update(settings)
        self._state = {parameter: {} for parameter in self._named.values()}
        if self._own is None:
            cls = getattr(torch.optim, settings.kind)
            self._torch = cls(
                [{"params": p, **s} for p, s in zip(self._groups, settings.groups)],
                lr=1.0,
                foreach=False,
            )
            self._state = self._torch.state
        self.load(settings)

    def load(self, settings):
        """Take over these numbers; the state stays."""
        self._settings = settings
        if self._own is None:
            for group, values in zip(self._torch.param_groups, settings.groups):
                group.update(values)

    def step(self, gradients):
        """One step with gradients by name; a parameter without one stays as it is."""
        gradients = self._clipped({n: g for n, g in gradients.items() if n in self._named})
        for name, parameter in self._named.items():
            parameter.grad = gradients.get(name)
        if self._own is None:
            self._torch.step()
        else:
            for parameters, values in zip(self._groups, self._settings.groups):
                for parameter in parameters:
                    if parameter.grad is not None:
                        settings = {**self._settings.whole, **values}
                        self._own(parameter, self._state[parameter], settings)
        for parameter in self._named.values():
            parameter.grad = None

    def _clipped(self, gradients):
        limit = self._settings.whole.get("max_grad_norm", float("inf"))
        if limit == float("inf") or not gradients:
            return gradients
        norm = torch.stack([g.norm() for g in gradients.values()]).norm()
        return {n: g * (limit / norm.clamp(min=limit)) for n, g in gradients.items()}

    def state(self):
        """A copy of the state: by parameter's name, then by the state's."""
        return {n: copy.deepcopy(dict(self._state.get(p, {}))) for n, p in self._named.items()}

    def load_state(self, state):
        """The opposite of `state`; Error where a parameter isn't there."""
        for name, values in state.items():
            if name not in self._named:
                raise Error(f"The optimiser's state has a parameter {name!r} that isn't stepped")
            self._state[self._named[name]] = copy.deepcopy(values)


def _own_update(settings):
    if settings.kind == "LAMB":
        return _updates.lamb
    if settings.kind == "AdamW" and not settings.whole.get("bias_correction", True):
        return _updates.adamw
    if settings.kind == "RMSprop" and settings.whole.get("use_tf_variant"):
        return _updates.rmsprop
    return None
