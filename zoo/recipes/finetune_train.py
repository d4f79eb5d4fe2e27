"""Tuning networks on a table: members from trained weights, the same from scratch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from zoo import artifact
from zoo.errors import RequestError
from zoo.models.gin import GIN
from zoo.recipes import run_folder
from zoo.recipes.finetune_request import FinetuneRequest
from zoo.recipes.property import PropertyTask
from zoo.recipes.property_data import PropertyData
from zoo.recipes.property_model import PropertyModel, untrained
from zoo.training.loop import train
from zoo.training.progress import Display
from zoo.training.settings import TrainSettings
from zoo.training.tracking_protocol import Tracking


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A network's best weights, what it gives for validation and test, and how it came about.

    raw: for each split its store indices and outputs, as `PropertyTask.raw_predictions` has them.
    """

    task: PropertyTask
    tensors: dict[str, Tensor]
    raw: dict[str, tuple[np.ndarray, np.ndarray]]
    epochs: int
    best_epoch: int
    graphs_per_s: float | None
    seconds: float
    history: list[dict[str, float]]


def starting_module(
    *, base: PropertyModel, data: PropertyData, seed: int, scratch: bool, freeze: bool
) -> GIN:
    """The base's first network with a new output layer for these data, or all of it new."""
    arguments = base.module.arguments.model_copy(update={"outputs": data.outputs})
    if scratch:
        module = untrained(arguments, seed=seed)
    else:
        module = base.with_new_head(outputs=data.outputs, seed=seed)
    if data.kind == "binary":
        _start_at_frequencies(module, data)
    if freeze:
        module.freeze()
    return module


def _start_at_frequencies(module: GIN, data: PropertyData) -> None:
    """Let a new output layer begin with how frequent each label is in training: rare ones would
    take it epochs to learn.
    """
    train = data.values[data.splits["train"]]
    known = np.maximum((~np.isnan(train)).sum(axis=0), 1)
    share = (np.nansum(train, axis=0) + 1) / (known + 2)
    with torch.no_grad():
        module.output.bias.copy_(torch.from_numpy(np.log(share / (1 - share))))


def what_is_kept(base: PropertyModel, data: PropertyData) -> list[str]:
    """What becomes of the base's weights, in lines for people."""
    state = base.module.state_dict()
    body = {k: v for k, v in state.items() if not k.startswith(GIN.HEAD)}
    head = {k: v for k, v in state.items() if k.startswith(GIN.HEAD)}
    numbers = sum(v.numel() for v in body.values())
    new = (base.module.arguments.features + 1) * data.outputs
    names = ", ".join(p.name for p in data.properties)
    return [
        f"kept of {base.spec.entry}: {len(body)} tensors, {numbers:,} numbers",
        f"dropped: {', '.join(head)} (for {', '.join(base.columns)})",
        f"new: {', '.join(head)}, {new:,} numbers (for {names})",
    ]


def train_settings(
    request: FinetuneRequest, *, molecules: int, packs: int, seed: int, scratch: bool
) -> TrainSettings:
    """How a network is trained; from scratch at one learning rate, else the body's is lower."""
    epochs = request.budget(molecules)
    return TrainSettings(
        epochs=epochs,
        seed=seed,
        lr=request.lr,
        body_lr=1.0 if scratch else request.body_lr,
        schedule="cosine",
        warmup_steps=min(100, packs),
        ema_decay=0.0,
        patience=request.patience,
        precision=request.precision,
        tracking=False,
    )


def train_network(
    *,
    request: FinetuneRequest,
    base: PropertyModel,
    data: PropertyData,
    seed: int,
    scratch: bool,
    folder: Path,
    tracker: Tracking,
    display: Callable[[PropertyTask], Display],
) -> Trained:
    """Train one network in `folder`, or take up where it was stopped; one that is done is read."""
    module = starting_module(
        base=base, data=data, seed=seed, scratch=scratch, freeze=request.freeze and not scratch
    )
    task = PropertyTask(entry=base.spec.entry, data=data, module=module, seed=seed)
    settings = train_settings(
        request,
        molecules=len(data.splits["train"]),
        packs=len(task.train_loader),
        seed=seed,
        scratch=scratch,
    )
    torch.manual_seed(seed)
    with display(task) as shown:
        trained = train(
            task=task,
            settings=settings,
            folder=folder,
            tracker=tracker,
            display=shown,
            resume=run_folder.has_checkpoint(folder),
        )
    _, best = artifact.read_weights(artifact.weights_path(folder / "checkpoints" / "best"))
    judged = trained.state.evaluated
    judged.load_state_dict(best)
    progress = trained.state.progress
    return Trained(
        task=task,
        tensors=best,
        raw={split: task.raw_predictions(judged, split) for split in ("valid", "test")},
        epochs=len(progress.history),
        best_epoch=progress.best_epoch or 0,
        graphs_per_s=trained.graphs_per_s,
        seconds=trained.seconds,
        history=progress.history,
    )


def check_base(model: object, *, name: str) -> PropertyModel:
    """The model, if it is one that can be tuned on a table of SMILES (RequestError)."""
    if isinstance(model, PropertyModel):
        model.check_readable()
        return model
    raise RequestError(
        f"{name} learns from geometries, and a table of SMILES has none\n"
        "finetune a model of molecular graphs, such as gin-molhiv"
    )
