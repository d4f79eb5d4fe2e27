"""A training run's whole state, and how it goes into a checkpoint and comes out of one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel

from zoo import artifact
from zoo.errors import RequestError
from zoo.ops.launcher import CHUNKS
from zoo.training.optimiser import optimiser_tensors, restore_optimiser
from zoo.training.task import Task


@dataclass(kw_only=True)
class Progress:
    """Where a run stands; everything in it is JSON."""

    step: int = 0
    best: float | None = None
    best_epoch: int | None = None
    history: list[dict[str, float]] = field(default_factory=list)
    loss_sum: float = 0.0
    loss_count: float = 0.0
    seconds: float = 0.0
    finished: bool = False


@dataclass(kw_only=True)
class TrainingState:
    """The parts that a step changes."""

    task: Task
    optimiser: torch.optim.Optimizer
    schedule: LRScheduler
    plateau: ReduceLROnPlateau | None
    average: AveragedModel | None
    progress: Progress

    @property
    def evaluated(self) -> nn.Module:
        """The module whose weights are judged and kept: the moving average where there is one."""
        module: nn.Module = self.average.module if self.average else self.task.module
        return module


def save(state: TrainingState, *, folder: Path, best: bool = False) -> Path:
    """Write `checkpoints/last` (and `best`), each replaced as a whole; returns the first."""
    tensors, groups = optimiser_tensors(state.optimiser)
    parts = {"optimiser": tensors, "module": state.task.module.state_dict()}
    if state.average:
        parts["average"] = {
            "n": state.average.n_averaged.clone(),
            **{f"module.{k}": v for k, v in state.average.module.state_dict().items()},
        }
    parts["rng"] = {"torch": torch.get_rng_state()}
    content: dict[str, Any] = {
        "weights": state.evaluated.state_dict(),
        "spec": state.task.spec,
        "state_tensors": {f"{p}.{k}": v for p, part in parts.items() for k, v in part.items()},
        "state": {
            "progress": state.progress.__dict__,
            "groups": groups,
            "schedule": _plain(state.schedule.state_dict()),
            "plateau": _plain(state.plateau.state_dict()) if state.plateau else None,
            "loader": state.task.train_loader.state_dict(),
            "threads": torch.get_num_threads(),
            "chunks": CHUNKS,
        },
    }
    if best:
        artifact.write_checkpoint(directory=folder / "checkpoints" / "best", **content)
    return artifact.write_checkpoint(directory=folder / "checkpoints" / "last", **content)


def restore(state: TrainingState, *, directory: Path) -> list[str]:
    """Load a checkpoint; returns warnings about what may keep the bits from being the same.

    RequestError where it is of another model or was trained on other data.
    """
    tensors, plain = artifact.read_state(directory)
    written, mine = artifact.read_spec(artifact.weights_path(directory)), state.task.spec
    for name in type(mine).model_fields:
        if getattr(written, name) != getattr(mine, name):
            raise RequestError(
                f"{directory} can't be resumed: the model, the data or the settings were changed "
                f"since (another {name.replace('_', ' ')})\nundo that, or start a new run"
            )
    parts: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        part, _, name = key.partition(".")
        parts.setdefault(part, {})[name] = value
    state.task.module.load_state_dict(parts["module"])
    restore_optimiser(state.optimiser, tensors=parts.get("optimiser", {}), groups=plain["groups"])
    state.schedule.load_state_dict(plain["schedule"])
    if state.plateau:
        state.plateau.load_state_dict(plain["plateau"])
    if state.average:
        if "average" not in parts:
            raise RequestError(f"{directory} holds no moving average; set train.ema_decay=0")
        average = parts["average"]
        state.average.n_averaged.copy_(average.pop("n"))
        state.average.module.load_state_dict(
            {k.removeprefix("module."): v for k, v in average.items()}
        )
    torch.set_rng_state(parts["rng"]["torch"])
    state.task.train_loader.load_state_dict(plain["loader"])
    state.progress = Progress(**plain["progress"])
    warnings = []
    if plain["threads"] != torch.get_num_threads():
        warnings.append(
            f"this run had {plain['threads']} threads and now has {torch.get_num_threads()}: "
            "the result may differ in the last bits"
        )
    return warnings


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """A scheduler's state without what isn't JSON (its functions)."""
    return {k: v for k, v in values.items() if _is_json(v)}


def _is_json(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_json(v) for v in value)
    return value is None or isinstance(value, (bool, int, float, str))
