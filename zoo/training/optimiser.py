"""AdamW, its schedule and the moving average of weights, all torch's own."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from zoo.training.settings import TrainSettings


def make_optimiser(*, module: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """AdamW whose weight decay leaves vectors (biases, norms) alone.

    `settings.body_lr` slows down what doesn't begin with one of the module's `HEAD`. Parameters
    that need no gradient are left out.
    """
    head: tuple[str, ...] = getattr(module, "HEAD", ())
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            body = settings.body_lr != 1 and not name.startswith(head)
            groups.setdefault((parameter.ndim < 2, body), []).append(parameter)
    return torch.optim.AdamW(
        [
            {
                "params": groups[vectors, body],
                "lr": settings.lr * (settings.body_lr if body else 1.0),
                **({"weight_decay": 0.0} if vectors else {}),
            }
            for vectors, body in sorted(groups)
        ],
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def make_schedule(
    *, optimiser: torch.optim.Optimizer, settings: TrainSettings, steps: int
) -> LRScheduler:
    """Per-step factor: linear warm-up, then cosine to zero at `steps`, or constant."""

    def factor(step: int) -> float:
        warm = min(1.0, (step + 1) / (settings.warmup_steps + 1))
        if settings.schedule != "cosine":
            return warm
        done = max(0, step - settings.warmup_steps) / max(1, steps - settings.warmup_steps)
        return warm * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    return LambdaLR(optimiser, factor)


def make_plateau(
    *, optimiser: torch.optim.Optimizer, settings: TrainSettings
) -> ReduceLROnPlateau | None:
    """Halves the learning rate when validation stops improving, where the recipe says so."""
    if settings.schedule != "plateau":
        return None
    return ReduceLROnPlateau(optimiser, factor=0.5, patience=settings.plateau_epochs)


def make_average(*, module: nn.Module, settings: TrainSettings) -> AveragedModel | None:
    """The exponential moving average of the weights, or None when switched off."""
    if settings.ema_decay == 0:
        return None
    update = get_ema_multi_avg_fn(settings.ema_decay)  # type: ignore[no-untyped-call]
    return AveragedModel(module, multi_avg_fn=update)


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> tuple[dict[str, Tensor], Any]:
    """An optimiser's state as named tensors, and the rest of it as plain values."""
    state = optimiser.state_dict()
    tensors = {
        f"{number}.{name}": value
        for number, values in state["state"].items()
        for name, value in values.items()
    }
    return tensors, state["param_groups"]


def restore_optimiser(
    optimiser: torch.optim.Optimizer, *, tensors: dict[str, Tensor], groups: Any
) -> None:
    """Undo `optimiser_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = value
    optimiser.load_state_dict({"state": state, "param_groups": groups})
