"""`poptorch.optim`: torch's optimisers with the attributes that the IPU adds.

On an IPU only numbers are read from these objects, when a model is wrapped and at `setOptimizer`.
An attribute given explicitly is variable: later values reach the device through `setOptimizer`. One
left out is constant: it is compiled in. The learning rate is always variable.
"""

from __future__ import annotations

import torch

from ._values import expect


class VariableAttributes:
    """Which attributes of an optimiser may change after it has been compiled."""

    def __init__(self, variable_attributes, allowed_attributes):
        self._allowed = list(allowed_attributes)
        self._variable = set()
        for attr in variable_attributes:
            self.markAsVariable(attr)

    def isConstant(self, attr):
        self._check(attr)
        return attr not in self._variable

    def markAsConstant(self, attr):
        self._check(attr)
        self._variable.discard(attr)

    def markAsVariable(self, attr):
        self._check(attr)
        self._variable.add(attr)

    def _check(self, attr):
        expect(attr in self._allowed, f"Unknown attribute {attr!r}; there are {self._allowed}")


class Optimizer:
    """What the IPU's optimisers share: a state of their own, which isn't that of torch's."""

    def __init__(self):
        self._ipu_state = None
        self._read_device = None  # set by the executor: the state on the device

    def __getstate__(self):
        # torch's own leaves out attributes that it doesn't know; an executor can't be pickled.
        names = {"defaults", "state", "param_groups", "variable_attrs", "_ipu_state", "_ipu_names"}
        names |= set(self._ipu_names)
        return {name: value for name, value in self.__dict__.items() if name in names}

    def __setstate__(self, state):
        self._read_device = None
        torch.optim.Optimizer.__setstate__(self, state)

    def state_dict(self):
        if self._read_device is not None:
            self._ipu_state = self._read_device()
        return self.get_state_dict()

    def load_state_dict(self, state):
        self.set_state_dict(state)

    def get_state_dict(self):
        groups = torch.optim.Optimizer.state_dict(self)["param_groups"]
        return {"ipu_state": self._ipu_state, "ipu_param": {}, "param_groups": groups}

    def set_state_dict(self, state):
        missing = {"ipu_state", "param_groups"} - set(state)
        if missing:
            raise ValueError(f"Not the state of an IPU's optimiser: it lacks {sorted(missing)}")
        self._ipu_state = state["ipu_state"]
        for group, saved in zip(self.param_groups, state["param_groups"]):
            group.update({key: value for key, value in saved.items() if key != "params"})

    def has_state(self):
        return self._ipu_state is not None


def _given(**arguments):
    return {name: value for name, value in arguments.items() if value is not None}


def _set_up(optimizer, variable, fixed):
    """Keep what only the IPU reads: `variable` names and values, then those always constant."""
    Optimizer.__init__(optimizer)
    optimizer.variable_attrs = VariableAttributes(["lr"], ["lr", *variable])
    optimizer._ipu_names = [*variable, *fixed]
    for name, (value, default) in variable.items():
        if value is not None:
            optimizer.variable_attrs.markAsVariable(name)
        if name not in optimizer.defaults:
            setattr(optimizer, name, default if value is None else value)
    for name, (value, default) in fixed.items():
        setattr(optimizer, name, default if value is None else value)


class SGD(Optimizer, torch.optim.SGD):
    def __init__(
        self,
        params,
        lr,
        momentum=None,
        dampening=None,
        weight_decay=None,
        nesterov=None,
        maximize=None,
        foreach=None,
        differentiable=None,
        loss_scaling=None,
        velocity_scaling=None,
        use_combined_accum=None,
        accum_type=None,
        velocity_accum_type=None,
        max_grad_norm=None,
    ):
        given = _given(
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
            maximize=maximize,
        )
        torch.optim.SGD.__init__(self, params, lr=lr, **given)
        variable = {
            "momentum": (momentum, None),
            "dampening": (dampening, None),
            "weight_decay": (weight_decay, None),
            "loss_scaling": (loss_scaling, 1.0),
            "velocity_scaling": (velocity_scaling, 1.0),
        }
        fixed = {
            "use_combined_accum": (use_combined_accum, False),
            "accum_type": (accum_type, torch.float32),
            "velocity_accum_type": (velocity_accum_type, torch.float32),
            "max_grad_norm": (max_grad_norm, float("inf")),
        }
        _set_up(self, variable, fixed)


def _moments(accum_type, first, second):
    return {
        "accum_type": (accum_type, torch.float32),
        "first_order_momentum_accum_type": (first, torch.float32),
        "second_order_momentum_accum_type": (second, torch.float32),
    }


class Adam(Optimizer, torch.optim.Adam):
    def __init__(
        self,
        params,
        lr=None,
        betas=None,
        eps=None,
        weight_decay=None,
        amsgrad=None,
        foreach=None,
        maximize=None,
        capturable=None,
        differentiable=None,
        fused=None,
        loss_scaling=None,
        accum_type=None,
        first_order_momentum_accum_type=None,
        second_order_momentum_accum_type=None,
        max_grad_norm=None,
    ):
        given = _given(
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
            maximize=maximize,
        )
        torch.optim.Adam.__init__(self, params, **given)
        variable = {
            "betas": (betas, None),
            "eps": (eps, None),
            "weight_decay": (weight_decay, None),
            "loss_scaling": (loss_scaling, 1.0),
        }
        fixed = _moments(
            accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type
        )
        fixed["max_grad_norm"] = (max_grad_norm, float("inf"))
        _set_up(self, variable, fixed)


class AdamW(Optimizer, torch.optim.AdamW):
    def __init__(
        self,
        params,
        lr=None,
        betas=None,
        eps=None,
        weight_decay=None,
        amsgrad=None,
        maximize=None,
        foreach=None,
        capturable=None,
        differentiable=None,
        fused=None,
        loss_scaling=None,
        bias_correction=None,
        accum_type=None,
        first_order_momentum_accum_type=None,
        second_order_momentum_accum_type=None,
        max_grad_norm=None,
    ):
        given = _given(
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
            maximize=maximize,
        )
        torch.optim.AdamW.__init__(self, params, **given)
        variable = {
            "betas": (betas, None),
            "eps": (eps, None),
            "weight_decay": (weight_decay, None),
            "loss_scaling": (loss_scaling, 1.0),
        }
        fixed = _moments(
            accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type
        )
        fixed["bias_correction"] = (bias_correction, True)
        fixed["max_grad_norm"] = (max_grad_norm, float("inf"))
        _set_up(self, variable, fixed)


class RMSprop(Optimizer, torch.optim.RMSprop):
    def __init__(
        self,
        params,
        lr=None,
        alpha=None,
        eps=None,
        weight_decay=None,
        momentum=None,
        centered=None,
        foreach=None,
        maximize=None,
        differentiable=None,
        loss_scaling=None,
        accum_type=None,
        first_order_momentum_accum_type=None,
        second_order_momentum_accum_type=None,
        use_tf_variant=None,
    ):
        given = _given(
            lr=lr,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
            maximize=maximize,
        )
        torch.optim.RMSprop.__init__(self, params, **given)
        variable = {
            "alpha": (alpha, None),
            "eps": (eps, None),
            "weight_decay": (weight_decay, None),
            "momentum": (momentum, None),
            "loss_scaling": (loss_scaling, 1.0),
        }
        fixed = _moments(
            accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type
        )
        fixed["use_tf_variant"] = (use_tf_variant, False)
        _set_up(self, variable, fixed)


class LAMB(Optimizer, torch.optim.Optimizer):
    def __init__(
        self,
        params,
        lr=None,
        betas=None,
        eps=None,
        weight_decay=None,
        bias_correction=None,
        loss_scaling=None,
        max_weight_norm=None,
        accum_type=None,
        first_order_momentum_accum_type=None,
        second_order_momentum_accum_type=None,
    ):
        given = _given(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        defaults = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, **given}
        torch.optim.Optimizer.__init__(self, params, defaults)
        variable = {
            "betas": (betas, None),
            "eps": (eps, None),
            "weight_decay": (weight_decay, None),
            "loss_scaling": (loss_scaling, 1.0),
            "max_weight_norm": (max_weight_norm, 65500.0),
        }
        fixed = _moments(
            accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type
        )
        fixed["bias_correction"] = (bias_correction, True)
        _set_up(self, variable, fixed)

    def step(self, closure=None):
        from ._updates import lamb

        loss = None if closure is None else closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    lamb(parameter, state, {**group, **self.__dict__})
        return loss
