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
from zoo.files import replace_file
from zoo.recipes.baselines import forest, mean_predictor
from zoo.recipes.bootstrap import bootstrap_interval
from zoo.recipes.finetune_data import METRICS, Fold
from zoo.recipes.finetune_request import FinetuneRequest
from zoo.recipes.finetune_train import Trained
from zoo.recipes.metrics import property_metrics
from zoo.recipes.property import columns
from zoo.recipes.property_model import PropertyModel
from zoo.recipes.property_weights import in_units
from zoo.recipes.tasks import plain_name

HIGHER = ("roc_auc", "accuracy")
_CHANCE = {"roc_auc": 0.5}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One predictor in the comparison: its metric with the ends of the 95 % bootstrap interval, and
    its other metrics.
    """

    key: str
    name: str
    value: float
    low: float
    high: float
    metrics: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


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
    own, spread = _joined(tuned, "test")
    name = "this model" if len(tuned[0]) == 1 else f"this model ({len(tuned[0])} members)"
    ways["model"] = (f"{name}, finetuned", own)
    if scratch is not None:
        ways["scratch"] = ("the same from scratch", _joined(scratch, "test")[0])
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
            predicted=_joined(tuned, "valid")[0],
            kind=kind,
            names=names,
        )[0],
        "test": lines[0].metrics,
    }
    for line in written(lines, metric=metric, unit=unit, rows=len(rows)):
        say(line)
    similarity = _similarity(parted, fingerprints)
    files = [
        _write_comparison(folder / "comparison.csv", lines, metric, unit),
        _write_predictions(
            folder / "test-predictions.csv", table, model, rows, own, spread, similarity
        ),
        *_plots(folder / "plots", table, tuned, model, ways, lines, rows, similarity, metric, unit),
    ]
    notes += [*model.doubts, *_doubts(lines, metric)]
    return Outcome(metric=metric, unit=unit, lines=lines, metrics=metrics, notes=notes, files=files)


def _joined(found: Sequence[Sequence[Trained]], split: str) -> tuple[np.ndarray, np.ndarray | None]:
    means, spreads = zip(*(in_units(some, split) for some in found), strict=True)
    held = [one for one in spreads if one is not None]
    return np.concatenate(means), np.concatenate(held) if len(held) == len(means) else None


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


def _write_comparison(path: Path, lines: Sequence[Line], metric: str, unit: str) -> Path:
    import pandas as pd

    title = plain_name(metric) + (f" [{unit}]" if unit else "")
    frame = pd.DataFrame(
        {
            "predictor": [line.name for line in lines],
            title: [line.value for line in lines],
            "low 95%": [line.low for line in lines],
            "high 95%": [line.high for line in lines],
        }
    )
    others = dict.fromkeys(k for line in lines for k in line.metrics if k != metric)
    for name in others:
        frame[name] = [line.metrics.get(name, float("nan")) for line in lines]
    replace_file(path, frame.to_csv(index=False).encode())
    return path


def _write_predictions(
    path: Path,
    table: Labelled,
    model: PropertyModel,
    rows: np.ndarray,
    predicted: np.ndarray,
    spread: np.ndarray | None,
    similarity: np.ndarray,
) -> Path:
    """Each test molecule with its labels and what was predicted."""
    import pandas as pd

    frame = pd.DataFrame({"row": table.rows[rows], "smiles": [table.smiles[row] for row in rows]})
    for at, p in enumerate(model.properties):
        frame[f"{p.name} (given)"] = table.y[rows, at]
    for at, name in enumerate(columns(model.properties)):
        frame[f"{name} (predicted)"] = predicted[:, at]
        if spread is not None:
            frame[f"{name} (std)"] = spread[:, at]
    frame["similarity"] = similarity
    replace_file(path, frame.to_csv(index=False).encode())
    return path


def _plots(
    folder: Path,
    table: Labelled,
    tuned: Sequence[Sequence[Trained]],
    model: PropertyModel,
    ways: dict[str, tuple[str, np.ndarray]],
    lines: Sequence[Line],
    rows: np.ndarray,
    similarity: np.ndarray,
    metric: str,
    unit: str,
) -> list[Path]:
    from zoo.recipes.classification_plots import (
        save_precision_recall,
        save_reliability,
        save_roc,
    )
    from zoo.recipes.molecule_plots import (
        Bar,
        save_comparison,
        save_error_by_similarity,
        save_parity_intervals,
    )
    from zoo.training.plots import save_learning_curve

    truth, predicted = table.y[rows], ways["model"][1]
    names = [p.name for p in model.properties]
    out = [
        save_learning_curve(
            path=folder / "learning-curve.png",
            history=tuned[0][0].history,
            metric=f"valid/{metric}",
            unit=unit,
        ),
        save_comparison(
            path=folder / "comparison.png",
            bars=[Bar(name=x.name, value=x.value, low=x.low, high=x.high) for x in lines],
            metric=plain_name(metric),
            unit=unit,
            higher_is_better=metric in HIGHER,
            start=_CHANCE.get(metric, 0.0),
        ),
    ]
    if model.kind == "regression":
        half = model.half_widths(_joined(tuned, "test")[1], rows=len(rows))
        half = np.full(truth.shape, np.nan) if half is None else half
        out.append(
            save_parity_intervals(
                path=folder / "parity.png",
                truth=truth,
                predicted=predicted,
                half_widths=half,
                names=names,
                units=[p.unit for p in model.properties],
                level=model.level or 0.9,
            )
        )
        if len(names) == 1:
            out.append(
                save_error_by_similarity(
                    path=folder / "error-by-similarity.png",
                    similarity=similarity,
                    errors=np.abs(predicted[:, 0] - truth[:, 0]),
                    unit=unit,
                )
            )
    elif model.kind == "binary":
        shown_ways = {title: values for _, (title, values) in ways.items()}
        shown_ways.pop(ways["mean"][0])
        for save, file in (
            (save_roc, "roc.png"),
            (save_precision_recall, "precision-recall.png"),
        ):
            out.append(save(path=folder / file, labels=truth, predicted=shown_ways, names=names))
        raw = [np.mean([one.raw["test"][1] for one in some], axis=0) for some in tuned]
        honest = {ways["model"][0]: model.finished(np.concatenate(raw)[None]).values}
        out.append(
            save_reliability(
                path=folder / "reliability.png", labels=truth, predicted=honest, names=names
            )
        )
    return out


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
