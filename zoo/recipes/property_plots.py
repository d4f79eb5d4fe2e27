"""The plots of a recipe's test predictions, by the kind of its labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zoo.datasets.facts import Property


def save_property_plots(
    *,
    folder: Path,
    truth: np.ndarray,
    predicted: np.ndarray,
    properties: Sequence[Property],
) -> list[Path]:
    """Parity of quantities; ROC, precision and recall, and reliability of yes or no. Labels [M, T],
    NaN where unknown, and predictions [M, T].
    """
    from zoo.recipes.classification_plots import save_precision_recall, save_reliability, save_roc
    from zoo.recipes.molecule_plots import save_parity_intervals

    names = [p.name for p in properties]
    kind = properties[0].kind
    if kind == "regression":
        return [
            save_parity_intervals(
                path=folder / "parity.png",
                truth=truth,
                predicted=predicted,
                half_widths=np.full(truth.shape, np.nan),
                names=names,
                units=[p.unit for p in properties],
                level=0.9,
            )
        ]
    if kind == "multiclass":
        return []
    return [
        save(path=folder / file, labels=truth, predicted={"GIN": predicted}, names=names)
        for save, file in (
            (save_roc, "roc.png"),
            (save_precision_recall, "precision-recall.png"),
            (save_reliability, "reliability.png"),
        )
    ]
