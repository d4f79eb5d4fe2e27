"""Tune a model of molecules on a person's own table, and say honestly how good it is."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from zoo.artifact import MODEL
from zoo.chem.fingerprints import fingerprints, joined
from zoo.chem.pool import cores
from zoo.chem.report import Report
from zoo.datasets.labelled import Labelled
from zoo.recipes import finetune_results, run_folder
from zoo.recipes.building import load
from zoo.recipes.finetune_data import Fold, folds, read_table, stated
from zoo.recipes.finetune_request import FinetuneRequest
from zoo.recipes.finetune_train import Trained, check_base, train_network, what_is_kept
from zoo.recipes.property import PropertyTask
from zoo.recipes.property_model import PropertyModel
from zoo.recipes.property_weights import write_model
from zoo.recipes.tasks import plain_name, shown
from zoo.training.memory import PeakMemory
from zoo.training.progress import Display
from zoo.training.signals import stop_signals
from zoo.training.tracking import NoTracker, Tracker, Tracking, known_run, versions
from zoo.training.tracking_records import known_database

REPORT = "table.report.csv"


@dataclass
class Members:
    """The networks trained for one line of the comparison, for each fold."""

    name: str
    by_fold: list[list[Trained]] = field(default_factory=list)

    @property
    def all(self) -> list[Trained]:
        return [one for some in self.by_fold for one in some]


def finetune(
    request: FinetuneRequest, *, folder: Path | None = None, resume: bool = False
) -> dict[str, Any]:
    """Do what is asked, in `folder`; returns the result, which also stands in `result.json` there.

    RequestError and DataError for what is wrong with model, table or request, before any training.
    StoppedError after SIGTERM: `zoo resume FOLDER` goes on.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        stack.enter_context(stop_signals())
        memory = stack.enter_context(PeakMemory())
        base = check_base(load(request.model), name=request.model)
        place = folder or run_folder.stamped(_name(request, base), seed=request.seed)
        if resume and run_folder.finished(place):
            return run_folder.read_result(place)
        if not resume:
            run_folder.check_free(place)
        display = Display()
        display.say(f"reading {request.data}")
        report = Report(place / REPORT)
        with report:
            table = read_table(request, report=report)
        parted = folds(table, request)
        for line in stated(table, parted, split=request.split, seed=request.seed):
            display.say(line)
        for line in what_is_kept(base, parted[0].data):
            display.say(line)
        stack.enter_context(
            run_folder.claimed(place, content=request.model_dump_json(indent=1), resume=resume)
        )
        log = stack.enter_context(_tracker(request, base, place))
        log.params(request.model_dump(mode="json"))
        digests = [one.data.split_sha256 for one in parted]
        log.tags({**versions(), "split_sha256": digests[0], "folder": str(place)})
        log.dataset(name=request.data.name, digest=table.store.digest)
        prints = joined(fingerprints(table.smiles, workers=cores()))
        tuned = _train(request, base, parted, place, log, display, scratch=False)
        scratch = None
        if request.scratch:
            scratch = _train(request, base, parted, place, log, display, scratch=True)
        model = write_model(
            path=place / MODEL,
            entry=_name(request, base),
            largest_fragment=request.largest_fragment,
            parted=[fold.data for fold in parted],
            tuned=tuned.by_fold,
            prints=prints,
        )
        outcome = finetune_results.judge(
            request=request,
            table=table,
            parted=parted,
            tuned=tuned.by_fold,
            scratch=None if scratch is None else scratch.by_fold,
            model=model,
            fingerprints=prints,
            threads=torch.get_num_threads(),
            folder=place,
            say=display.say,
        )
        result = _result(request, base, table, parted, tuned, outcome, place)
        result["peak_rss_anon_mb"] = round(memory.read(), 1)
        _track(log, place, outcome, model)
        result["run_id"] = log.run_id
        result["wall_s"] = round(time.monotonic() - began, 1)
        log.artifact(run_folder.write_result(place, result))
        _closing_words(display, outcome, place, result, report, log)
    return result


def _name(request: FinetuneRequest, base: PropertyModel) -> str:
    """What the tuned model is called: `gin-molhiv-on-mine`."""
    stem = f"{base.spec.entry.partition('.')[0]}-on-{request.data.name.partition('.')[0]}"
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in stem)


def _train(
    request: FinetuneRequest,
    base: PropertyModel,
    parted: Sequence[Fold],
    folder: Path,
    log: Tracking,
    display: Display,
    *,
    scratch: bool,
) -> Members:
    """Train a member for each seed and fold; the first one's epochs are tracked."""
    members = Members(name="from scratch" if scratch else "this model")
    count = 1 if scratch else request.ensemble
    for at, fold in enumerate(parted):
        some = []
        for number in range(count):
            own = ("scratch" if scratch else "member") + f"-{at * count + number}"
            which = [fold.name] if fold.name else []
            which += [f"member {number + 1}"] if count > 1 else []
            said = ", ".join([members.name, *which])
            display.say(f"training {said}")
            first = not scratch and at == number == 0
            some.append(
                train_network(
                    request=request,
                    base=base,
                    data=fold.data,
                    seed=request.seed + number,
                    scratch=scratch,
                    folder=folder / own,
                    tracker=log if first else NoTracker(),
                    display=_shown,
                )
            )
        members.by_fold.append(some)
    return members


def _shown(task: PropertyTask) -> Display:
    name, unit = task.select, task.units.get(task.select, "")

    def describe(row: Any) -> str:
        return (
            f"train loss {row['train/loss']:.4g}, "
            f"valid {plain_name(name)} {shown(row[f'valid/{name}'], unit)}"
        )

    return Display(describe=describe)


def _tracker(request: FinetuneRequest, base: PropertyModel, folder: Path) -> Tracking:
    import os

    if not request.tracking:
        return NoTracker()
    return Tracker(
        experiment=f"finetune {base.spec.entry}",
        run_name=folder.name,
        folder=folder,
        run_id=known_run(folder),
        uri=os.environ.get("MLFLOW_TRACKING_URI") or known_database(folder),
    )


def _result(
    request: FinetuneRequest,
    base: PropertyModel,
    table: Labelled,
    parted: Sequence[Fold],
    tuned: Members,
    outcome: finetune_results.Outcome,
    folder: Path,
) -> dict[str, Any]:
    first = tuned.all[0]
    speed = first.graphs_per_s
    return {
        "entry": base.spec.entry,
        "task": "finetune",
        "data": str(request.data),
        "seed": request.seed,
        "backend": "eager",
        "device": "cpu",
        "precision": request.precision,
        "replicas": 1,
        "threads": torch.get_num_threads(),
        "epochs": first.epochs,
        "best_epoch": first.best_epoch,
        "steps": sum(len(one.task.train_loader) * one.epochs for one in tuned.all),
        "metrics": outcome.metrics,
        "units": first.task.units,
        "comparison": [line.as_dict() for line in outcome.lines],
        "judged_by": outcome.metric,
        "labels": [
            {"name": label.name, "kind": label.kind, "known": label.known, "unit": label.unit}
            for label in table.labels
        ],
        "rows": {
            "read": table.counts.rows,
            "kept": table.counts.kept,
            "dropped": dict(table.counts.dropped),
            "duplicates": table.counts.duplicates,
            "conflicting": table.counts.conflicting,
        },
        "split": request.split,
        "split_sha256": parted[0].data.split_sha256,
        "split_sizes": {k: len(v) for k, v in parted[0].data.splits.items()},
        "batch_shape": dict(first.task.shape.__dict__),
        "packing_efficiency": first.task.train_loader.efficiency(),
        "train_graphs_per_s": None if speed is None else round(speed, 1),
        "checkpoint": str(folder / MODEL),
        "folder": str(folder),
        "notes": outcome.notes,
    }


def _track(
    log: Tracking, folder: Path, outcome: finetune_results.Outcome, model: PropertyModel
) -> None:
    flat = {
        f"{split}/{name}": value
        for split, metrics in outcome.metrics.items()
        for name, value in metrics.items()
    }
    flat |= {f"comparison/{line.key}": line.value for line in outcome.lines}
    log.metrics(flat, step=0)
    for path in outcome.files:
        log.artifact(path, folder="plots" if path.suffix == ".png" else None)
    if (folder / REPORT).exists():
        log.artifact(folder / REPORT)
    log.artifact(folder / MODEL, folder="checkpoint")
    log.model(
        script=Path(__file__).parents[1] / "serving.py",
        artifacts={"weights": folder / MODEL},
        signature=finetune_results.signature(model.columns),
        requirements=[f"gnn-zoo=={_version()}"],
    )


def _version() -> str:
    from importlib.metadata import version

    return version("gnn-zoo")


def _closing_words(
    display: Display,
    outcome: finetune_results.Outcome,
    folder: Path,
    result: dict[str, Any],
    report: Report,
    log: Tracking,
) -> None:
    for note in outcome.notes:
        display.say(f"note: {note}")
    if report.problems:
        display.say(f"rows and cells in doubt: {folder / REPORT}")
    display.say(f"model: {folder / MODEL}; predict with: zoo predict {folder} INPUT -o OUT.csv")
    display.say(f"plots and table: {folder}")
    if result["run_id"]:
        store = f" --backend-store-uri {log.uri}" if log.uri.startswith("sqlite") else ""
        where = "mlflow ui" + store if store else log.uri
        display.say(f"tracked as run {result['run_id']}; look at it with: {where}")
