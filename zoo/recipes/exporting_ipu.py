"""An energy recipe as a folder that trains and predicts under PopTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.artifact import Spec, write_weights
from zoo.backends.graph import trace
from zoo.backends.ipu.folder import write_folder
from zoo.batching.pack import Batch
from zoo.errors import RequestError
from zoo.recipes.building import find_weights
from zoo.recipes.config import energy_config, is_file, load_config
from zoo.recipes.energy import EnergyTask, open_data
from zoo.recipes.energy_model import load_energy_model
from zoo.recipes.exporting import predict_step
from zoo.recipes.packed import column, shares
from zoo.recipes.settings import EnergyConfig


def export_ipu(
    name: str | Path,
    *,
    folder: Path | None,
    overrides: Sequence[str],
    preset: str,
    packs: int,
) -> dict[str, Any]:
    """Write the folder; see `zoo.export`."""
    if packs < 0:
        raise RequestError(f"packs is a number of packs, or 0 for all, not {packs}")
    loaded = load_config(name, preset=preset, overrides=overrides)
    config = energy_config(loaded, what="the IPU folder")
    if config.train.schedule == "plateau":
        raise RequestError("the folder's script knows no plateau; use train.schedule=cosine")
    task = EnergyTask(config=config, data=open_data(config))
    loader, module = task.train_loader, task.module
    example = loader.example()
    training = trace(module=module.train(), step=task.loss, batch=example, gradients=True)
    inference = trace(module=module.eval(), step=predict_step, batch=example)
    weights = {"initial": (task.spec, module.state_dict()), "weights": _trained(name, config, task)}
    target = folder or Path(f"{config.entry}-ipu")

    def counted(split: Iterable[Batch]) -> Iterator[tuple[Batch, int]]:
        for batch in islice(split, packs or None):
            known = batch["graphs_mask"].unsqueeze(1) & ~torch.isnan(batch["y"])
            yield batch, int(known.sum())

    counts = write_folder(
        folder=target,
        training=training,
        inference=inference,
        prefix="module.",
        weights={
            stem: partial(write_weights, tensors=tensors, spec=spec)
            for stem, (spec, tensors) in weights.items()
        },
        batches={"train": counted(loader), "test": counted(task.loader("test"))},
        options=_options(config, weights["weights"][0], packs=packs or len(loader)),
        readme=_readme(config, task),
    )
    return {
        "folder": str(target),
        "format": "ipu",
        "entry": config.entry,
        "batch_shape": dict(task.data.shape.__dict__),
        "packs": counts,
        "checked": "statically, not run on an IPU",
    }


def _trained(
    name: str | Path, config: EnergyConfig, task: EnergyTask
) -> tuple[Spec, dict[str, Tensor]]:
    """The weights to predict with: the entry's, or the untrained ones where it has none that fit
    the recipe as it was changed.
    """
    try:
        path = find_weights(config.entry if is_file(name) else name)
    except RequestError:
        return task.spec, task.module.state_dict()
    model = load_energy_model(path)
    same = model.module.arguments == config.model.arguments
    if not same or model.spec.properties[0].name != config.data.property:
        return task.spec, task.module.state_dict()
    return model.spec, model.module.state_dict()


def _options(config: EnergyConfig, spec: Spec, *, packs: int) -> dict[str, Any]:
    """What run_ipu.py is told; the user may edit it."""
    train = config.train
    scaling = spec.scaling[spec.properties[0].name]
    steps = -(-packs // train.accumulate)
    return {
        "entry": config.entry,
        "column": column(spec),
        "unscale": {
            "per_atom": shares(spec).tolist(),
            "mean": scaling.mean,
            "std": scaling.std,
        },
        "seed": train.seed,
        "epochs": train.epochs,
        "device_iterations": 1,
        "gradient_accumulation": train.accumulate,
        "replicas": 1,
        "available_memory_proportion": None,
        "executable_cache": None,
        "optimiser": {
            "lr": train.lr,
            "betas": [0.9, 0.999],
            "eps": 1e-8,
            "weight_decay": train.weight_decay,
            "clip_norm": train.clip_norm,
            "schedule": train.schedule,
            "warmup_steps": train.warmup_steps,
            "steps": steps * train.epochs,
        },
    }


def _readme(config: EnergyConfig, task: EnergyTask) -> str:
    shape = task.data.shape
    return f"""# {config.entry} for IPUs

Checked statically and on a CPU; **not run on an IPU**. Needs Poplar SDK 3.4 (poptorch, torch
2.0.1), numpy and safetensors.

    python run_ipu.py train --out trained.safetensors    # from initial.safetensors
    python run_ipu.py infer --out predictions.csv        # with weights.safetensors
    python run_ipu.py bench
    python run_ipu.py compile --out model.poptorch       # needs the SDK, no IPU

- `model.py`: the training step and the prediction as plain ATen calls, traced at {shape.nodes}
  nodes, {shape.edges} edges and {shape.graphs} graphs.
- `data/`: packs of that shape, one array per input. `labels.npy` counts a pack's known labels.
- `options.json`: device iterations, gradient accumulation, replicas, memory, executable cache and
  optimiser; edit it as you like. With several device iterations the learning rate stays the same
  during a call.
- A loss is the sum over the packs of a step divided by the known labels in all of them, so any
  split of a step over accumulation and replicas trains the same.
- There is no moving average of the weights here. What `train` writes is a weight file:
  `zoo evaluate trained.safetensors`, `zoo predict trained.safetensors INPUT`.
- `manifest.json` holds the sha256 of every file but `options.json`; a changed one is refused.
"""
