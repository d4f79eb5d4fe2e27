"""A training run from config to result: data, loop, best weights, test, plots, MLflow."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zoo import artifact
from zoo.recipes import run_folder
from zoo.recipes.config import Config
from zoo.recipes.tasks import RecipeTask, open_task, plain_name, shown
from zoo.training import replicas
from zoo.training.loop import TrainingResult, train
from zoo.training.memory import PeakMemory
from zoo.training.progress import Display
from zoo.training.tracking import NoTracker, Tracker, Tracking, known_run, versions
from zoo.training.tracking_records import known_database


def run(
    *,
    config: Config,
    folder: Path,
    resume: bool = False,
    after_step: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Train a config in `folder` and return the result, which also stands in `result.json`.

    A finished run isn't done again: resuming it returns its result. RequestError where another
    process is training there, or where there is a run and `resume` isn't asked for.
    """
    joined = replicas.join_torchrun()
    if resume and run_folder.finished(folder):
        Display(quiet=replicas.rank() != 0).say(f"{folder} is finished; this is its result")
        return run_folder.read_result(folder)
    if not resume and replicas.rank() == 0:
        run_folder.check_free(folder)
    if config.train.replicas > 1 and not joined:
        replicas.spawn(_work, config, folder, resume, after_step, replicas=config.train.replicas)
    else:
        _work(config, folder, resume, after_step)
        replicas.wait_for_all()
    return run_folder.read_result(folder)


def _work(
    config: Config, folder: Path, resume: bool, after_step: Callable[[int], None] | None
) -> None:
    """One process of a run; the first of its replicas tracks, plots and writes the result."""
    began = time.monotonic()
    main = replicas.rank() == 0
    task = open_task(config)
    with contextlib.ExitStack() as stack:
        if main:
            # Not before there is something to train: what fails above leaves no folder behind.
            asked = config.model_dump_json(indent=1)
            stack.enter_context(run_folder.claimed(folder, content=asked, resume=resume))
        memory = stack.enter_context(PeakMemory())
        display = stack.enter_context(_display(task, main))
        log = stack.enter_context(_tracker(config, folder))
        display.say(_opening_words(config, task, folder))
        log.params(config.model_dump(mode="json"))
        log.tags({**versions(), "split_sha256": task.split_sha256, "folder": str(folder)})
        log.dataset(name=config.data.adapter, digest=task.digest)
        trained = train(
            task=task,
            settings=config.train,
            folder=folder,
            tracker=log,
            display=display,
            resume=resume and run_folder.has_checkpoint(folder),
            after_step=after_step,
        )
        replicas.wait_for_all()  # the first one has written what all read now
        _, best = artifact.read_weights(artifact.weights_path(folder / "checkpoints" / "best"))
        module = trained.state.evaluated
        module.load_state_dict(best)
        predicted = {split: task.predictions(module, split) for split in ("valid", "test")}
        metrics = {split: task.metrics(*predicted[split]) for split in predicted}
        task.write_model(folder, module)
        if not main:
            return
        result = _result(config, task, trained, metrics, folder)
        result["peak_rss_anon_mb"] = round(memory.read(), 1)
        plots = _plots(folder, task, trained, predicted["test"])
        log.metrics(
            {f"{split}/{k}": v for split, m in metrics.items() for k, v in m.items()}
            | {
                "train_graphs_per_s": trained.graphs_per_s or float("nan"),
                "peak_rss_anon_mb": result["peak_rss_anon_mb"],
            },
            step=trained.state.progress.step,
        )
        for path in plots:
            log.artifact(path, folder="plots")
        log.artifact(artifact.trained(folder), folder="checkpoint")
        _log_model(log, folder, task)
        result["run_id"] = log.run_id
        result["wall_s"] = round(time.monotonic() - began, 1)
        log.artifact(run_folder.write_result(folder, result))
        _closing_words(display, config, result, folder, log)


def _display(task: RecipeTask, main: bool) -> Display:
    name, unit = task.select, task.units.get(task.select, "")

    def describe(row: Any) -> str:
        value = shown(row[f"valid/{name}"], unit)
        return (
            f"train loss {row['train/loss']:.4g}, valid {plain_name(name)} {value}, "
            f"lr {row['lr']:.2g}"
        )

    return Display(describe=describe, quiet=not main)


def _tracker(config: Config, folder: Path) -> Tracking:
    if replicas.rank() != 0 or not config.train.tracking:
        return NoTracker()
    return Tracker(
        experiment=config.entry,
        run_name=folder.name,
        folder=folder,
        run_id=known_run(folder),
        # Resumed from another place, the run goes on where it was tracked, unless told otherwise.
        uri=os.environ.get("MLFLOW_TRACKING_URI") or known_database(folder),
    )


def _result(
    config: Config,
    task: RecipeTask,
    trained: TrainingResult,
    metrics: dict[str, dict[str, float]],
    folder: Path,
) -> dict[str, Any]:
    progress = trained.state.progress
    speed = trained.graphs_per_s
    return {
        "entry": config.entry,
        "seed": config.train.seed,
        "backend": config.train.backend,
        "device": config.train.device,
        "precision": config.train.precision,
        "replicas": replicas.count(),
        "threads": torch.get_num_threads(),
        "epochs": len(progress.history),
        "best_epoch": progress.best_epoch,
        "steps": progress.step,
        "metrics": metrics,
        "selected_by": task.select,
        "units": task.units,
        "split_sha256": task.split_sha256,
        "skipped": task.skipped,
        "batch_shape": dict(task.shape.__dict__),
        "packing_efficiency": task.train_loader.efficiency(),
        "train_graphs_per_s": None if speed is None else round(speed, 1),
        "checkpoint": str(artifact.trained(folder)),
        "folder": str(folder),
    }


def _plots(
    folder: Path,
    task: RecipeTask,
    trained: TrainingResult,
    test: tuple[np.ndarray, np.ndarray],
) -> list[Path]:
    from zoo.training import plots

    out = folder / "plots"
    filling = task.train_loader.filling()
    return [
        plots.save_learning_curve(
            path=out / "learning-curve.png",
            history=trained.state.progress.history,
            metric=f"valid/{task.select}",
            unit=task.units.get(task.select, ""),
        ),
        *task.plots(out, *test),
        plots.save_batch_filling(
            path=out / "batch-filling.png",
            nodes_filling=filling["nodes"],
            edges_filling=filling["edges"],
            graphs=filling["graphs"] * task.shape.graphs,
        ),
    ]


def _log_model(log: Tracking, folder: Path, task: RecipeTask) -> None:
    """The MLflow model: a script that loads the weight file, nothing pickled."""
    from importlib.metadata import version

    weights = artifact.weights_path(folder)
    log.model(
        script=Path(__file__).parents[1] / "serving.py",
        artifacts={"weights": weights},
        signature={
            "inputs": [
                {"name": name, "type": kind, "required": False}
                for name, kind in task.inputs.items()
            ],
            "outputs": [
                *({"name": column, "type": "double"} for column in task.outputs),
                {"name": "valid", "type": "boolean"},
                {"name": "reason", "type": "string"},
                {"name": "warning", "type": "string"},
            ],
        },
        requirements=[f"gnn-zoo=={version('gnn-zoo')}"],
    )


def _opening_words(config: Config, task: RecipeTask, folder: Path) -> str:
    made_up = "made-up " if config.data.synthetic else ""
    return f"{config.entry}: {made_up}{task.words()}; run folder {folder}"


def _closing_words(
    display: Display, config: Config, result: dict[str, Any], folder: Path, log: Tracking
) -> None:
    name = result["selected_by"]
    unit = result["units"].get(name, "")
    test, valid = (shown(result["metrics"][split][name], unit) for split in ("test", "valid"))
    display.say(
        f"{config.entry}: test {plain_name(name)} {test}, valid {plain_name(name)} {valid} "
        f"(best epoch {result['best_epoch']})"
    )
    if config.target and not config.data.synthetic:
        target = config.target
        published = shown(target.value, target.unit or result["units"].get(target.metric, ""))
        display.say(f"published {plain_name(target.metric)}: {published} ({target.source})")
    display.say(f"checkpoint: {result['checkpoint']}")
    display.say(f"plots: {folder / 'plots'}")
    if result["run_id"]:
        store = f" --backend-store-uri {log.uri}" if log.uri.startswith("sqlite") else ""
        where = "mlflow ui" + store if store else log.uri
        display.say(f"tracked as run {result['run_id']}; look at it with: {where}")
