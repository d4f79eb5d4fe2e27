"""One optimiser step: gradients of some packs, checks, optimiser, schedule, average."""

from __future__ import annotations

import copy
import math
import weakref
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from zoo.batching.pack import Batch
from zoo.errors import ZooError
from zoo.training import replicas
from zoo.training.lanes import lane_map
from zoo.training.settings import TrainSettings
from zoo.training.state import TrainingState
from zoo.training.task import Loss


def take_step(
    state: TrainingState,
    module: nn.Module,
    loss: Loss,
    packs: list[Batch],
    settings: TrainSettings,
) -> float:
    """One optimiser step over some packs; returns the mean loss over all replicas' real labels."""
    task, progress = state.task, state.progress
    task.module.train()
    device = next(module.parameters()).device
    packs = [{name: value.to(device) for name, value in pack.items()} for pack in packs]
    hooked = isinstance(module, DistributedDataParallel) or settings.backend != "eager"
    hooked = hooked or device.type != "cpu"
    gradients = _gradients_in_turn if hooked else _gradients_in_lanes
    by_pack = gradients(module, loss, packs, settings.precision == "bf16")
    totals = replicas.total(by_pack.sum(0))
    total, count_all = float(totals[0]), float(totals[1])
    if not math.isfinite(total):
        bad = [pack for pack, row in zip(packs, by_pack, strict=True) if not row.isfinite().all()]
        raise _not_finite(f"the loss is {total}", state, bad)
    parameters = [p for p in task.module.parameters() if p.grad is not None]
    # Gradients are sums (averaged over replicas): make them the mean over all real labels.
    scale = replicas.count() / max(count_all, 1.0)
    torch._foreach_mul_([p.grad for p in parameters if p.grad is not None], scale)
    norm = torch.nn.utils.clip_grad_norm_(parameters, settings.clip_norm, foreach=True)
    if not math.isfinite(float(norm)):
        # Weights that took this step would be saved as the last checkpoint.
        raise _not_finite(f"the gradient's norm is {float(norm)}", state, packs)
    state.optimiser.step()
    state.optimiser.zero_grad(set_to_none=True)
    state.schedule.step()
    if state.average:
        state.average.update_parameters(task.module)
    progress.loss_sum += total
    progress.loss_count += count_all
    return total / max(count_all, 1.0)


def _not_finite(what: str, state: TrainingState, packs: list[Batch]) -> ZooError:
    """The error of a step that can't be taken, naming the graphs in these packs of any replica."""
    none = torch.zeros(0, dtype=torch.int32)
    mine = [pack["graph_id"][pack["graphs_mask"]].cpu() for pack in packs]
    ids = replicas.gather(torch.cat([none, *mine])).tolist()
    shown = ", ".join(map(str, ids[:12])) + (f" ... ({len(ids)})" if len(ids) > 12 else "")
    return ZooError(
        f"{what} at step {state.progress.step + 1} of epoch {state.task.train_loader.epoch + 1}; "
        f"the batch holds graphs {shown}\n"
        "what was saved before is kept; try a smaller train.lr or look at these graphs"
    )


def _gradients_in_lanes(module: nn.Module, loss: Loss, packs: list[Batch], half: bool) -> Tensor:
    """Set the parameters' gradients to the packs' sum; returns each pack's sum of losses and count
    of labels: float64 [packs, 2] on the CPU.

    Each pack is differentiated on its own, so that lanes share nothing they write: each pack's
    module has buffers of its own (batch normalisation's statistics), and their mean is kept.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    device = parameters[0].device

    def one(given: tuple[nn.Module, Batch]) -> tuple[Tensor, tuple[Tensor, ...]]:
        own, batch = given
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            summed, count = loss(own, batch)
        gradients = torch.autograd.grad(summed, parameters)
        return torch.stack([summed.detach(), count.detach()]).double(), gradients

    if len(packs) == 1:
        results = [one((module, packs[0]))]
    else:
        twins = _twins(module, count=len(packs))
        results = list(lane_map(one, zip(twins, packs, strict=True)))
        _keep_mean(module, twins)
    first = results[0][1]
    for _, gradients in results[1:]:
        torch._foreach_add_(first, gradients)
    for parameter, gradient in zip(parameters, first, strict=True):
        parameter.grad = gradient
    return torch.stack([totals for totals, _ in results])


_TWINS: weakref.WeakKeyDictionary[nn.Module, list[nn.Module]] = weakref.WeakKeyDictionary()


def _twins(module: nn.Module, *, count: int) -> list[nn.Module]:
    """As many modules with the same parameters; each has buffers of its own, if there are any.

    They are kept for the next step: making them takes as long as a small layer.
    """
    buffers = list(module.buffers())
    if not buffers:
        return [module] * count
    held = _TWINS.setdefault(module, [])
    if held and [b.dtype for b in held[0].buffers()] != [b.dtype for b in buffers]:
        held.clear()
    shared = {id(p): p for p in module.parameters()}
    held += [copy.deepcopy(module, dict(shared)) for _ in range(count - len(held))]
    for twin in held[:count]:
        twin.train(module.training)
        for own, new in zip(twin.buffers(), buffers, strict=True):
            own.copy_(new)
    return held[:count]


def _keep_mean(module: nn.Module, twins: list[nn.Module]) -> None:
    """Make the module's buffers the mean of the twins' (of counts: the largest)."""
    for kept, *others in zip(module.buffers(), *(twin.buffers() for twin in twins), strict=True):
        both = torch.stack(others)
        kept.copy_(both.mean(0) if both.is_floating_point() else both.amax(0))


def _gradients_in_turn(module: nn.Module, loss: Loss, packs: list[Batch], half: bool) -> Tensor:
    """The same with one backward pass after the other, for modules that hook into them."""
    totals = []
    device = next(module.parameters()).device
    for number, batch in enumerate(packs):
        last = number == len(packs) - 1
        with nullcontext() if last else replicas.without_sync(module):
            with torch.autocast(device.type, torch.bfloat16, enabled=half):
                summed, count = loss(module, batch)
            summed.backward()  # type: ignore[no-untyped-call]
        totals.append(torch.stack([summed.detach(), count.detach()]).double().cpu())
    return torch.stack(totals)
