"""The one training loop. Knows steps, replicas, checkpoints and tracking; no task."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from zoo.backends import compiled
from zoo.batching.loader import groups
from zoo.errors import StoppedError
from zoo.files import find_folder
from zoo.training import replicas
from zoo.training.optimiser import make_average, make_optimiser, make_plateau, make_schedule
from zoo.training.progress import Display
from zoo.training.settings import TrainSettings
from zoo.training.signals import Stop, stop_signals
from zoo.training.state import Progress, TrainingState, restore, save
from zoo.training.step import take_step
from zoo.training.task import Task
from zoo.training.tracking_protocol import Tracking

WARM_UP = 10
"""Steps left out of the throughput: kernels are compiled and caches filled in them."""


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What a finished run knows of itself. `state` holds the last weights, not the best."""

    state: TrainingState
    graphs_per_s: float | None
    seconds: float


def has_bf16_products() -> bool:
    """Whether this processor multiplies in bfloat16; True where torch doesn't say."""
    found = torch.cpu.get_capabilities()
    names = ("avx512_bf16", "amx_bf16")
    return any(found[name] for name in names) if all(name in found for name in names) else True


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
    if settings.precision == "bf16" and settings.device == "cpu" and not has_bf16_products():
        display.say(
            "warning: this processor has no bfloat16 products, which makes them slow: "
            "train.precision=float32 may be ten times as fast"
        )
    loss = compiled(task.loss, backend=settings.backend)
    speeds: list[float] = []
    began = time.monotonic() - state.progress.seconds
    main = replicas.rank() == 0
    with stop_signals() as stopped:
        while state.progress.finished is False:
            if replicas.any_true(stopped.asked):
                raise _stop_error(stopped, folder)
            loader = task.train_loader
            epoch = loader.epoch
            display.epoch(
                number=epoch + 1,
                of=settings.epochs,
                steps=per_epoch,
                done=loader.position // settings.accumulate,
            )
            started = time.perf_counter()
            for packs in groups(loader, size=settings.accumulate):
                value = take_step(state, module, loss, packs, settings)
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
    steady = speeds[WARM_UP:] or speeds
    return TrainingResult(
        state=state,
        graphs_per_s=statistics.median(steady) if steady else None,
        seconds=state.progress.seconds,
    )


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
    value = valid[task.select]
    sign = -1 if task.higher_is_better else 1
    if state.plateau:
        state.plateau.step(sign * value)
    rate = state.optimiser.param_groups[0]["lr"]
    row = {
        "epoch": float(epoch + 1),
        "train/loss": progress.loss_sum / max(progress.loss_count, 1.0),
        "lr": rate,
        **{f"valid/{name}": value for name, value in valid.items()},
    }
    progress.history.append(row)
    progress.loss_sum = progress.loss_count = 0.0
    # NaN is better than nothing at all, and never better than a number nor as good as one.
    best = progress.best
    better = best is None or sign * value < sign * best or math.isnan(best)
    if better:
        progress.best, progress.best_epoch = value, epoch + 1
    waited = epoch + 1 - (progress.best_epoch or 0)
    progress.finished = epoch + 1 >= settings.epochs or 0 < settings.patience <= waited
    tracker.metrics(row, step=progress.step)
    display.end_epoch(row)
    if replicas.rank() == 0:
        save(state, folder=folder, best=better)


def _stop_error(stop: Stop, folder: Path) -> StoppedError:
    saved = find_folder(folder / "checkpoints" / "last").exists()
    when = "after saving" if saved else "before the first step"
    return StoppedError(f"stopped by {stop.name} {when}\ncontinue with: zoo resume {folder}")
