"""What `zoo run`, `zoo resume` and `zoo evaluate` do, by name."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo import artifact
from zoo.chem.checks import check_energy_units
from zoo.errors import RequestError, unknown
from zoo.recipes.building import find_weights, load_file
from zoo.recipes.config import Config, load_config, with_overrides
from zoo.recipes.finetuning import read_request
from zoo.recipes.run import run
from zoo.recipes.run_folder import CONFIG, new_folder, read_config
from zoo.recipes.settings import EnergyConfig
from zoo.recipes.tasks import RecipeTask, open_task
from zoo.training import replicas
from zoo.training.memory import PeakMemory


def start(
    name: str | Path,
    *,
    overrides: Sequence[str] = (),
    preset: str = "full",
    seed: int | None = None,
    folder: str | Path | None = None,
) -> dict[str, Any]:
    """See `zoo.run`."""
    chosen = [*overrides, *([] if seed is None else [f"train.seed={seed}"])]
    config = load_config(name, preset=preset, overrides=chosen)
    replicas.join_torchrun()
    place = Path(replicas.agree(str(folder or new_folder(config))))
    return run(config=config, folder=place)


def resume(folder: str | Path) -> dict[str, Any]:
    """See `zoo.resume`."""
    place = Path(folder)
    if (request := read_request(place)) is not None:
        from zoo.recipes.finetune import finetune

        return finetune(request, folder=place, resume=True)
    return run(config=read_config(place), folder=place, resume=True)


def evaluate(
    name: str | Path, *, overrides: Sequence[str] = (), split: str = "test"
) -> dict[str, Any]:
    """See `zoo.evaluate`."""
    if split not in ("train", "valid", "test"):
        raise unknown(kind="split", name=split, known=("train", "valid", "test"))
    began = time.monotonic()
    path = find_weights(name)
    model = load_file(path)
    spec = model.spec
    config = _config_of(path, spec, overrides)
    with PeakMemory() as memory:
        task = open_task(config)
        trained_on = spec.extra.get("split_sha256")
        if trained_on is not None and trained_on != task.split_sha256:
            raise RequestError(
                f"{name} was trained on another split ({trained_on[:12]}) than this data gives "
                f"({task.split_sha256[:12]}): its test molecules may be among the trained ones"
            )
        found = []
        for module in model.modules:
            task.take_over(spec=spec, module=module)
            rows, predicted = task.predictions(task.module, split)
            found.append(predicted)
        doubts = _doubts(config, task, spec, rows)
        metrics = task.metrics(rows, np.mean(found, axis=0))
    return {
        "entry": spec.entry,
        "seed": config.train.seed,
        "backend": "eager",
        "device": config.train.device,
        "precision": "float32",
        "replicas": 1,
        "epochs": 0,
        "steps": 0,
        "metrics": {split: metrics},
        "units": task.units,
        "molecules": len(rows),
        "split_sha256": task.split_sha256,
        "batch_shape": dict(task.shape.__dict__),
        "packing_efficiency": task.efficiency(split),
        "train_graphs_per_s": None,
        "peak_rss_anon_mb": round(memory.peak_rss_anon_mb, 1),
        "wall_s": round(time.monotonic() - began, 1),
        "run_id": None,
        "checkpoint": str(path),
        "warnings": doubts,
    }


def _doubts(config: Config, task: RecipeTask, spec: artifact.Spec, rows: np.ndarray) -> list[str]:
    """Labels of a user's own files whose magnitude says that they are in another unit."""
    from zoo.recipes.energy import EnergyTask

    if config.data.folder is None or not isinstance(task, EnergyTask):
        return []
    store, some = task.data.store, rows[:1000]
    ptr = store.node_ptr
    numbers = [store.node["z"][ptr[g] : ptr[g + 1]] for g in some]
    warning = check_energy_units(task.data.labels.values[some], numbers, spec)
    return [warning] if warning else []


def _config_of(path: Path, spec: artifact.Spec, overrides: Sequence[str]) -> Config:
    """The config behind a weight file: its run's own if it lies in one, else its entry's recipe.
    The architecture is the one that the file says.
    """
    place = path.absolute().parent
    in_checkpoint = place.parent.name == "checkpoints"
    if in_checkpoint:
        place = place.parent.parent
    if (in_checkpoint or path.name == artifact.MODEL) and (place / CONFIG).is_file():
        config = with_overrides(read_config(place), overrides, where=str(place / CONFIG))
    else:
        config = load_config(spec.entry, overrides=overrides)
    predicted = spec.properties[0].name
    if isinstance(config, EnergyConfig) and config.data.property != predicted:
        raise RequestError(f"{path} predicts {predicted}, not {config.data.property}")
    arguments = type(config.model.arguments)(**spec.arguments)
    return config.model_copy(
        update={"model": config.model.model_copy(update={"arguments": arguments})}
    )
