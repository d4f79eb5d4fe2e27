"""The updates that no optimiser of torch's makes; each changes a parameter and its state in place.

`settings` holds the attributes of the parameter's group and of the optimiser.
"""

from __future__ import annotations

import torch


def _moments(parameter, gradient, state, settings):
    if not state:
        state["step"] = 0
        state["exp_avg"] = torch.zeros_like(parameter)
        state["exp_avg_sq"] = torch.zeros_like(parameter)
    state["step"] += 1
    first, second = settings["betas"]
    state["exp_avg"].mul_(first).add_(gradient, alpha=1 - first)
    state["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
    if not settings["bias_correction"]:
        return state["exp_avg"], state["exp_avg_sq"]
    return (
        state["exp_avg"] / (1 - first ** state["step"]),
        state["exp_avg_sq"] / (1 - second ** state["step"]),
    )


@torch.no_grad()
def lamb(parameter, state, settings):
    """LAMB, the norm of the weights in its trust ratio bounded by `max_weight_norm`."""
    mean, square = _moments(parameter, parameter.grad, state, settings)
    step = mean / (square.sqrt() + settings["eps"]) + settings["weight_decay"] * parameter
    weight = parameter.norm().clamp(max=settings["max_weight_norm"])
    length = step.norm()
    trust = torch.where((weight > 0) & (length > 0), weight / length, torch.ones_like(weight))
    parameter.sub_(settings["lr"] * trust * step)


@torch.no_grad()
def adamw(parameter, state, settings):
    """AdamW; it differs from torch's where `bias_correction` is off."""
    parameter.mul_(1 - settings["lr"] * settings["weight_decay"])
    mean, square = _moments(parameter, parameter.grad, state, settings)
    parameter.sub_(settings["lr"] * mean / (square.sqrt() + settings["eps"]))


@torch.no_grad()
def rmsprop(parameter, state, settings):
    """RMSprop as TensorFlow has it: eps under the root, averages that begin at one."""
    if not state:
        state["square_avg"] = torch.ones_like(parameter)
        state["grad_avg"] = torch.zeros_like(parameter)
        state["momentum_buffer"] = torch.zeros_like(parameter)
    alpha = settings["alpha"]
    gradient = parameter.grad + settings["weight_decay"] * parameter
    state["square_avg"].mul_(alpha).addcmul_(gradient, gradient, value=1 - alpha)
    variance = state["square_avg"]
    if settings["centered"]:
        state["grad_avg"].mul_(alpha).add_(gradient, alpha=1 - alpha)
        variance = variance - state["grad_avg"] ** 2
    step = settings["lr"] * gradient / (variance + settings["eps"]).sqrt()
    state["momentum_buffer"].mul_(settings["momentum"]).add_(step)
    parameter.sub_(state["momentum_buffer"])
