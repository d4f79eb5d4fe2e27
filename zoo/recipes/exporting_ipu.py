"""A recipe as a folder that trains and predicts under PopTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from zoo.artifact import Spec, read_weights, write_weights
from zoo.backends.graph import trace
from zoo.backends.ipu.folder import write_folder
from zoo.batching.pack import Batch
from zoo.errors import RequestError
from zoo.ops.dispatch import device_dropout
from zoo.recipes.building import find_weights
from zoo.recipes.config import Config, is_file, load_config
from zoo.recipes.exporting import facts, predict_step
from zoo.recipes.packed import shares
from zoo.recipes.settings import LinkConfig
from zoo.recipes.tasks import PackedTask, RecipeTask, open_task


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
    config = load_config(name, preset=preset, overrides=overrides)
    if config.train.schedule == "plateau":
        raise RequestError("the folder's script knows no plateau; use train.schedule=cosine")
    if isinstance(config, LinkConfig):
        raise RequestError(f"{name} answers on a graph: there is no IPU folder of it yet")
    task = cast(PackedTask, open_task(config))
    loader, module = task.train_loader, task.module
    example = loader.example()
    # Dropout is the device's own: counting it takes whole numbers of 64 bits.
    with device_dropout():
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
        options=_options(config, task, weights["weights"][0], packs=packs or len(loader)),
        readme=_readme(config, task),
    )
    return {
        "folder": str(target),
        "format": "ipu",
        "entry": config.entry,
        "batch_shape": dict(task.shape.__dict__),
        "packs": counts,
        "checked": "statically, not run on an IPU",
    }


def _trained(
    name: str | Path, config: Config, task: RecipeTask
) -> tuple[Spec, Mapping[str, Tensor]]:
    """The weights to predict with: the entry's, or the untrained ones where it has none that fit
    the recipe as it was changed.
    """
    own = task.spec, task.module.state_dict()
    try:
        path = find_weights(config.entry if is_file(name) else name)
    except RequestError:
        return own
    spec, tensors = read_weights(path)
    same = spec.arguments == task.spec.arguments and spec.properties == task.spec.properties
    if not same or not own[1].keys() <= tensors.keys():
        return own
    return spec, {key: t.float() if t.is_floating_point() else t for key, t in tensors.items()}


def _unscale(spec: Spec) -> dict[str, Any]:
    """How values or probabilities are made of what the network gives; see `facts`."""
    if spec.task == "property":
        found: dict[str, Any] = facts(spec, sha256="")["unscale"]
        return found
    own = spec.scaling[spec.properties[0].name]
    return {"per_atom": shares(spec).tolist(), "mean": [own.mean], "std": [own.std]}


def _options(config: Config, task: RecipeTask, spec: Spec, *, packs: int) -> dict[str, Any]:
    """What run_ipu.py is told; the user may edit it."""
    train = config.train
    steps = -(-packs // train.accumulate)
    return {
        "entry": config.entry,
        "columns": task.outputs,
        "unscale": _unscale(spec),
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


def _readme(config: Config, task: RecipeTask) -> str:
    shape = task.shape
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
