"""How good a finetuned model is: beside the same from scratch, a forest and the mean, on one test
split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo.chem.fingerprints import Fingerprints, selected
from zoo.chem.similarity import nearest_similarity, references
from zoo.datasets.labelled import Labelled
from zoo.recipes.baselines import forest, mean_predictor
from zoo.recipes.bootstrap import bootstrap_interval
from zoo.recipes.finetune_data import METRICS, Fold
from zoo.recipes.finetune_files import (
    HIGHER,
    Line,
    joined_predictions,
    save_plots,
    write_comparison,
    write_predictions,
)
from zoo.recipes.finetune_request import FinetuneRequest
from zoo.recipes.finetune_train import Trained
from zoo.recipes.metrics import property_metrics
from zoo.recipes.property_model import PropertyModel
from zoo.recipes.tasks import plain_name


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The comparison, all metrics of the model, remarks, and the files that were written."""

    metric: str
    unit: str
    lines: list[Line]
    metrics: dict[str, dict[str, float]]
    notes: list[str]
    files: list[Path]


def judge(
    *,
    request: FinetuneRequest,
    table: Labelled,
    parted: Sequence[Fold],
    tuned: Sequence[Sequence[Trained]],
    scratch: Sequence[Sequence[Trained]] | None,
    model: PropertyModel,
    fingerprints: Fingerprints,
    threads: int,
    folder: Path,
    say: Callable[[str], None],
) -> Outcome:
    """Predict the test molecules (with folds: all, each by those who never saw it) in every way,
    compare, and write table, predictions and plots into `folder`.
    """
    kind = model.kind
    metric = METRICS[kind]
    unit = tuned[0][0].task.units.get(metric, "")
    rows = np.concatenate([some[0].raw["test"][0] for some in tuned])
    truth = table.y[rows]
    ways: dict[str, tuple[str, np.ndarray]] = {}
    own, spread = joined_predictions(tuned, "test")
    name = "this model" if len(tuned[0]) == 1 else f"this model ({len(tuned[0])} members)"
    ways["model"] = (f"{name}, finetuned", own)
    if scratch is not None:
        ways["scratch"] = ("the same from scratch", joined_predictions(scratch, "test")[0])
    notes: list[str] = []
    kinds = [p.kind for p in model.properties]
    if request.forest:
        say("growing a random forest for each label")
        found, said = _by_fold(
            parted,
            lambda train, test: forest(
                fingerprints=fingerprints,
                y=table.y,
                train=train,
                rows=test,
                kinds=kinds,
                seed=request.seed,
                threads=threads,
            ),
        )
        ways["forest"] = ("random forest on Morgan fingerprints", found)
        notes += [note for note in said if "sample" in note]
    found, _ = _by_fold(
        parted,
        lambda train, test: mean_predictor(y=table.y, train=train, rows=test, kinds=kinds),
    )
    ways["mean"] = ("mean of the training labels", found)
    names = [p.name for p in model.properties]
    lines = []
    for key, (title, predicted) in ways.items():
        found_metrics, left_out = property_metrics(
            truth=truth, predicted=predicted, kind=kind, names=names
        )
        low, high = bootstrap_interval(
            metric=metric, truth=truth, predicted=predicted, seed=request.seed
        )
        value = found_metrics.get(metric, float("nan"))
        lines.append(
            Line(key=key, name=title, value=value, low=low, high=high, metrics=found_metrics)
        )
    if left_out:
        notes.append(
            f"not counted, for want of both classes in the test split: {', '.join(left_out)}"
        )
    valid_rows = np.concatenate([some[0].raw["valid"][0] for some in tuned])
    metrics = {
        "valid": property_metrics(
            truth=table.y[valid_rows],
            predicted=joined_predictions(tuned, "valid")[0],
            kind=kind,
            names=names,
        )[0],
        "test": lines[0].metrics,
    }
    for line in written(lines, metric=metric, unit=unit, rows=len(rows)):
        say(line)
    similarity = _similarity(parted, fingerprints)
    files = [
        write_comparison(folder / "comparison.csv", lines, metric, unit),
        write_predictions(
            folder / "test-predictions.csv", table, model, rows, own, spread, similarity
        ),
        *save_plots(
            folder / "plots", table, tuned, model, ways, lines, rows, similarity, metric, unit
        ),
    ]
    notes += [*model.doubts, *_doubts(lines, metric)]
    return Outcome(metric=metric, unit=unit, lines=lines, metrics=metrics, notes=notes, files=files)


def _by_fold(
    parted: Sequence[Fold], predict: Callable[[np.ndarray, np.ndarray], Any]
) -> tuple[np.ndarray, list[str]]:
    found = [predict(one.data.splits["train"], one.data.splits["test"]) for one in parted]
    notes = [note for one in found for note in one.notes]
    return np.concatenate([one.predictions for one in found]), list(dict.fromkeys(notes))


def _similarity(parted: Sequence[Fold], fingerprints: Fingerprints) -> np.ndarray:
    """Of each test molecule to the nearest training one of its fold: float32 [test]."""
    found = []
    for one in parted:
        known = references(selected(fingerprints, rows=one.data.splits["train"]))
        query = selected(fingerprints, rows=one.data.splits["test"])
        found.append(nearest_similarity(query=query, reference=known)[0])
    return np.concatenate(found)


def written(lines: Sequence[Line], *, metric: str, unit: str, rows: int) -> list[str]:
    """The comparison as a table for people."""
    title = plain_name(metric) + (f" [{unit}]" if unit else "")
    arrow = "higher is better" if metric in HIGHER else "lower is better"
    width = max(len(line.name) for line in lines)
    out = [f"test split, {rows:,} molecules; {title}, {arrow}; 95 % bootstrap interval"]
    for line in lines:
        interval = f"{line.low:.3f} to {line.high:.3f}"
        value = f"{line.value:.3f}"
        out.append(f"  {line.name:<{width}}  {value:>8}   {interval}")
    return out


def _doubts(lines: Sequence[Line], metric: str) -> list[str]:
    """What an honest reader should be told of the comparison."""
    sign = 1 if metric in HIGHER else -1
    first, others = lines[0], lines[1:]
    notes = []
    for line in others:
        better = sign * (line.value - first.value)
        if better > 0:
            notes.append(
                f"{line.name} is better on this test split: {line.value:.3f}, this model "
                f"{first.value:.3f}"
            )
    return notes


def signature(columns: Sequence[str]) -> dict[str, Any]:
    """What the MLflow model of a property model takes and gives."""
    return {
        "inputs": [{"name": "smiles", "type": "string", "required": True}],
        "outputs": [
            *({"name": column, "type": "double"} for column in columns),
            {"name": "valid", "type": "boolean"},
            {"name": "reason", "type": "string"},
            {"name": "warning", "type": "string"},
        ],
    }
