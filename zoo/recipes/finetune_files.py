"""What a finetuning run writes besides its model: the comparison, test predictions, plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo.datasets.labelled import Labelled
from zoo.files import replace_file
from zoo.recipes.finetune_train import Trained
from zoo.recipes.property_data import columns
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


def joined_predictions(
    found: Sequence[Sequence[Trained]], split: str
) -> tuple[np.ndarray, np.ndarray | None]:
    means, spreads = zip(*(in_units(some, split) for some in found), strict=True)
    held = [one for one in spreads if one is not None]
    return np.concatenate(means), np.concatenate(held) if len(held) == len(means) else None


def write_comparison(path: Path, lines: Sequence[Line], metric: str, unit: str) -> Path:
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


def write_predictions(
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


def save_plots(
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
        half = model.half_widths(joined_predictions(tuned, "test")[1], rows=len(rows))
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
