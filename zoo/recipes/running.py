"""What `zoo run`, `zoo resume` and `zoo evaluate` do, by name."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo import artifact, registry
from zoo.chem.checks import check_energy_units
from zoo.errors import RequestError, unknown
from zoo.recipes.building import find_weights
from zoo.recipes.config import Config, load_config, with_overrides
from zoo.recipes.energy import EnergyData, EnergyTask, open_data
from zoo.recipes.run import new_folder, read_config, run
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
    if (place / "checkpoints").exists():
        raise RequestError(f"{place} holds a run already\ncontinue it with: zoo resume {place}")
    return run(config=config, folder=place)


def resume(folder: str | Path) -> dict[str, Any]:
    """See `zoo.resume`."""
    place = Path(folder)
    return run(config=read_config(place), folder=place, resume=True)


def evaluate(
    name: str | Path, *, overrides: Sequence[str] = (), split: str = "test"
) -> dict[str, Any]:
    """See `zoo.evaluate`."""
    if split not in ("train", "valid", "test"):
        raise unknown(kind="split", name=split, known=("train", "valid", "test"))
    began = time.monotonic()
    path = find_weights(name)
    spec, tensors = artifact.read_weights(path)
    config = _config_of(name, spec, overrides)
    with PeakMemory() as memory:
        data = open_data(config)
        task = EnergyTask(config=config, data=data)
        trained_on = spec.extra.get("split_sha256")
        if trained_on is not None and trained_on != data.split_sha256:
            raise RequestError(
                f"{name} was trained on another split ({trained_on[:12]}) than this data gives "
                f"({data.split_sha256[:12]}): its test molecules may be among the trained ones"
            )
        task.module.load_state_dict(tensors)
        rows, predicted = task.predictions_by(spec, split)
        doubts = _doubts(config, data, spec, rows)
        metrics = task.metrics(rows, predicted)
    unit = data.unit
    return {
        "entry": spec.entry,
        "seed": config.train.seed,
        "backend": "eager",
        "device": "cpu",
        "precision": "float32",
        "replicas": 1,
        "epochs": 0,
        "steps": 0,
        "metrics": {split: metrics},
        "units": {"mae": unit, "rmse": unit, "r2": ""},
        "molecules": len(rows),
        "split_sha256": data.split_sha256,
        "batch_shape": data.shape.__dict__,
        "packing_efficiency": task.loader(split).efficiency(),
        "train_graphs_per_s": None,
        "peak_rss_anon_mb": round(memory.peak_rss_anon_mb, 1),
        "wall_s": round(time.monotonic() - began, 1),
        "run_id": None,
        "checkpoint": str(path),
        "warnings": doubts,
    }


def _doubts(config: Config, data: EnergyData, spec: artifact.Spec, rows: np.ndarray) -> list[str]:
    """Labels of a user's own files whose magnitude says that they are in another unit."""
    if config.data.folder is None:
        return []
    some, ptr = rows[:1000], data.store.node_ptr
    numbers = [data.store.node["z"][ptr[g] : ptr[g + 1]] for g in some]
    warning = check_energy_units(data.labels.values[some], numbers, spec)
    return [warning] if warning else []


def _config_of(name: str | Path, spec: artifact.Spec, overrides: Sequence[str]) -> Config:
    """The config behind weights: the run's own where there is one, else the entry's recipe with the
    architecture that the weight file says.
    """
    folder = Path(name)
    for place in (folder, *folder.parents[:2]):
        if (place / "config.json").is_file():
            config = read_config(place)
            break
    else:
        entry, tag = registry.resolve(spec.entry)
        config = load_config(f"{entry.name}.{tag}", overrides=overrides)
    return with_overrides(
        config,
        {"model": {"architecture": spec.architecture, "arguments": dict(spec.arguments)}},
    )
