"""The one training loop. Knows steps, replicas, checkpoints and tracking; no task."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from zoo.backends import compiled
from zoo.batching.pack import Batch
from zoo.errors import StoppedError, ZooError
from zoo.training import replicas
from zoo.training.lanes import lane_map
from zoo.training.optimiser import make_average, make_optimiser, make_plateau, make_schedule
from zoo.training.progress import Display
from zoo.training.settings import TrainSettings
from zoo.training.signals import Stop, stop_signals
from zoo.training.state import Progress, TrainingState, restore, save
from zoo.training.task import Loss, Task
from zoo.training.tracking_protocol import Tracking

WARM_UP = 10
"""Steps left out of the throughput: kernels are compiled and caches filled in them."""


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What a finished run knows of itself. `state` holds the last weights, not the best."""

    state: TrainingState
    graphs_per_s: float | None
    seconds: float
    interrupted: bool = False


def train(
    *,
    task: Task,
    settings: TrainSettings,
    folder: Path,
    tracker: Tracking,
    display: Display,
    resume: bool = False,
    after_step: Callable[[int], None] | None = None,
) -> TrainingResult:
    """Train until `settings.epochs` (or patience) is done; resumable to the bit.

    Checkpoints go to `folder/checkpoints/last` and `best`. StoppedError after a SIGTERM or SIGINT,
    with everything saved; ZooError for a non-finite loss, naming the batch's graphs, with the last
    checkpoint left as it was. `after_step(step)` is called when a step and its checkpoint are done.
    """
    module = replicas.wrap(task.module)
    optimiser = make_optimiser(module=task.module, settings=settings)
    per_epoch = -(-len(task.train_loader) // settings.accumulate)
    state = TrainingState(
        task=task,
        optimiser=optimiser,
        schedule=make_schedule(
            optimiser=optimiser, settings=settings, steps=per_epoch * settings.epochs
        ),
        plateau=make_plateau(optimiser=optimiser, settings=settings),
        average=make_average(module=task.module, settings=settings),
        progress=Progress(),
    )
    if resume:
        for warning in restore(state, directory=folder / "checkpoints" / "last"):
            display.say(f"warning: {warning}")
    loss = compiled(task.loss, backend=settings.backend)
    speeds: list[float] = []
    began = time.monotonic() - state.progress.seconds
    main = replicas.rank() == 0
    with stop_signals() as stopped:
        while state.progress.finished is False:
            loader = task.train_loader
            epoch = loader.epoch
            display.epoch(
                number=epoch + 1,
                of=settings.epochs,
                steps=per_epoch,
                done=loader.position // settings.accumulate,
            )
            started = time.perf_counter()
            for packs in _groups(iter(loader), settings.accumulate):
                value = _step(state, module, loss, packs, settings)
                progress = state.progress
                progress.step += 1
                progress.seconds = time.monotonic() - began
                graphs = sum(int(b["graphs_mask"].sum()) for b in packs) * replicas.count()
                speeds.append(graphs / (time.perf_counter() - started))
                display.step(loss=value, graphs_per_s=speeds[-1])
                if progress.step % 50 == 0:
                    tracker.metrics(
                        {"train/loss": value, "train/graphs_per_s": speeds[-1]},
                        step=progress.step,
                    )
                stop = replicas.any_true(stopped.asked)
                at_end = loader.position >= len(loader)
                if main and not at_end and (stop or progress.step % settings.checkpoint_steps == 0):
                    save(state, folder=folder)
                if after_step:
                    after_step(progress.step)
                if stop and not at_end:
                    raise _stop_error(stopped, folder)
                started = time.perf_counter()
            _end_epoch(state, settings, folder, tracker, display, epoch=epoch)
            if replicas.any_true(stopped.asked) and not state.progress.finished:
                raise _stop_error(stopped, folder)
    steady = speeds[WARM_UP:] or speeds
    return TrainingResult(
        state=state,
        graphs_per_s=statistics.median(steady) if steady else None,
        seconds=state.progress.seconds,
    )


def _groups(batches: Iterator[Batch], size: int) -> Iterator[list[Batch]]:
    """Packs of one optimiser step; the last group of an epoch may be smaller."""
    group: list[Batch] = []
    for batch in batches:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _step(
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
        "the last checkpoint is kept; try a smaller train.lr or look at these graphs"
    )


def _gradients_in_lanes(module: nn.Module, loss: Loss, packs: list[Batch], half: bool) -> Tensor:
    """Set the parameters' gradients to the packs' sum; returns each pack's sum of losses and count
    of labels: float64 [packs, 2] on the CPU.

    Each pack is differentiated on its own, so that lanes share nothing they write.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]

    def one(batch: Batch) -> tuple[Tensor, tuple[Tensor, ...]]:
        with torch.autocast(batch["z"].device.type, torch.bfloat16, enabled=half):
            summed, count = loss(module, batch)
        gradients = torch.autograd.grad(summed, parameters)
        return torch.stack([summed.detach(), count.detach()]).double(), gradients

    results = [one(packs[0])] if len(packs) == 1 else list(lane_map(one, packs))
    first = results[0][1]
    for _, gradients in results[1:]:
        torch._foreach_add_(first, gradients)
    for parameter, gradient in zip(parameters, first, strict=True):
        parameter.grad = gradient
    return torch.stack([totals for totals, _ in results])


def _gradients_in_turn(module: nn.Module, loss: Loss, packs: list[Batch], half: bool) -> Tensor:
    """The same with one backward pass after the other, for modules that hook into them."""
    totals = []
    for number, batch in enumerate(packs):
        last = number == len(packs) - 1
        with nullcontext() if last else replicas.without_sync(module):
            with torch.autocast(batch["z"].device.type, torch.bfloat16, enabled=half):
                summed, count = loss(module, batch)
            summed.backward()  # type: ignore[no-untyped-call]
        totals.append(torch.stack([summed.detach(), count.detach()]).double().cpu())
    return torch.stack(totals)


def _end_epoch(
    state: TrainingState,
    settings: TrainSettings,
    folder: Path,
    tracker: Tracking,
    display: Display,
    *,
    epoch: int,
) -> None:
    """Validate, choose the best, decide whether to go on, and save."""
    task, progress = state.task, state.progress
    valid = task.evaluate(state.evaluated, "valid")
    if state.plateau:
        state.plateau.step(valid[task.select])
    rate = state.optimiser.param_groups[0]["lr"]
    row = {
        "epoch": float(epoch + 1),
        "train/loss": progress.loss_sum / max(progress.loss_count, 1.0),
        "lr": rate,
        **{f"valid/{name}": value for name, value in valid.items()},
    }
    progress.history.append(row)
    progress.loss_sum = progress.loss_count = 0.0
    value = valid[task.select]
    # NaN is better than nothing at all, and never better than a number nor as good as one.
    better = progress.best is None or value < progress.best or math.isnan(progress.best)
    if better:
        progress.best, progress.best_epoch = value, epoch + 1
    waited = epoch + 1 - (progress.best_epoch or 0)
    progress.finished = epoch + 1 >= settings.epochs or 0 < settings.patience <= waited
    tracker.metrics(row, step=progress.step)
    display.end_epoch(row)
    if replicas.rank() == 0:
        save(state, folder=folder, best=better)


def _stop_error(stop: Stop, folder: Path) -> StoppedError:
    return StoppedError(f"stopped by {stop.name} after saving\ncontinue with: zoo resume {folder}")
