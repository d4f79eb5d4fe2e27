"""Figures of binary tasks: how well scores rank, and whether probabilities hold what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import ArrayLike, NDArray

from zoo.recipes.calibration import BINS, expected_calibration_error, reliability
from zoo.training.plot_style import (
    BLUE,
    GREY,
    ORANGE,
    STYLE,
    Floats,
    corner,
    panels,
    save,
    short,
    shown_of,
    table,
)

_ENOUGH = 10  # molecules whose frequency is worth a point
_PALE = "#dfe3e8"
_COLOURS = (BLUE, ORANGE, "#3b8f5a", "#8a3fa0")


class _Draw(Protocol):
    """Draws one model's curve from labels [n] and scores [n]; returns what sums it up."""

    def __call__(self, axes: Axes, y: Floats, scores: Floats, *, colour: str) -> float: ...


def save_roc(
    *,
    path: Path,
    labels: ArrayLike,
    predicted: Mapping[str, ArrayLike],
    names: Sequence[str],
) -> Path:
    """Receiver operating characteristic of each binary task, and the area under it.

    labels [n, T] 0, 1 or NaN; `predicted` holds for each model (up to four) scores [n, T]. The
    first 12 tasks are shown.
    """
    from sklearn.metrics import roc_auc_score, roc_curve

    def draw(axes: Axes, y: Floats, scores: Floats, *, colour: str) -> float:
        wrong, right, _ = roc_curve(y, scores)
        axes.plot(wrong, right, color=colour)
        return float(roc_auc_score(y, scores))

    with rc_context(STYLE):
        figure, places = panels(len(names))
        for task, axes in enumerate(places):
            axes.plot([0, 1], [0, 1], color=GREY, linewidth=1.2, linestyle="--")
            _curves(axes, task, names[task], labels, predicted, draw, number="AUC")
        _finish(figure, predicted, names, across="false positive rate", up="true positive rate")
        return save(figure, path)


def save_precision_recall(
    *,
    path: Path,
    labels: ArrayLike,
    predicted: Mapping[str, ArrayLike],
    names: Sequence[str],
) -> Path:
    """Precision against recall of each binary task, and average precision; arguments as of
    `save_roc`. Dashed: what drawing lots would reach.
    """
    from sklearn.metrics import average_precision_score, precision_recall_curve

    def draw(axes: Axes, y: Floats, scores: Floats, *, colour: str) -> float:
        precision, recall, _ = precision_recall_curve(y, scores)
        # A recall counts from where it is reached on: steps, which is what the average sums.
        axes.step(recall, precision, where="post", color=colour)
        return float(average_precision_score(y, scores))

    with rc_context(STYLE):
        figure, places = panels(len(names))
        for task, axes in enumerate(places):
            truth = table(labels)[:, task]
            if np.isfinite(truth).any():
                axes.axhline(float(np.nanmean(truth)), color=GREY, linewidth=1.2, linestyle="--")
            _curves(axes, task, names[task], labels, predicted, draw, number="AP")
        _finish(figure, predicted, names, across="recall", up="precision")
        return save(figure, path)


def save_reliability(
    *,
    path: Path,
    labels: ArrayLike,
    predicted: Mapping[str, ArrayLike],
    names: Sequence[str],
) -> Path:
    """How frequent class 1 is among molecules of like probability, with the 95 % interval of that
    frequency (Wilson's); the better calibrated, the nearer to the diagonal.

    Arguments as of `save_roc`, with probabilities. Grey: the share of molecules in each bin, by the
    first of them. Bins of fewer than ten molecules have no point, and count in the error (ECE).
    """

    def draw(axes: Axes, y: Floats, scores: Floats, *, colour: str) -> float:
        found = reliability(probabilities=scores, labels=y)
        shown = found.rows >= _ENOUGH
        x, share = found.predicted[shown], found.observed[shown]
        low, high = _wilson(share, found.rows[shown])
        axes.vlines(x, low, high, color=colour, alpha=0.45, linewidth=1.5)
        axes.plot(x, share, "o-", color=colour, markersize=5)
        return expected_calibration_error(probabilities=scores, labels=y)

    with rc_context(STYLE):
        figure, places = panels(len(names))
        for task, axes in enumerate(places):
            axes.plot([0, 1], [0, 1], color=GREY, linewidth=1.2, linestyle="--")
            truth, first = table(labels)[:, task], table(next(iter(predicted.values())))[:, task]
            known = first[np.isfinite(truth) & np.isfinite(first)]
            if known.size:
                shares, edges = np.histogram(known, bins=BINS, range=(0, 1))
                height = shares / known.size
                axes.bar(edges[:-1], height, width=1 / BINS, align="edge", color=_PALE)
            _curves(axes, task, names[task], labels, predicted, draw, number="ECE")
        _finish(
            figure,
            predicted,
            names,
            across="predicted probability of class 1",
            up="observed frequency of class 1",
            more=[Patch(color=_PALE, label="share of molecules")],
        )
        return save(figure, path)


def _curves(
    axes: Axes,
    task: int,
    name: str,
    labels: ArrayLike,
    predicted: Mapping[str, ArrayLike],
    draw: _Draw,
    *,
    number: str,
) -> None:
    """One task's curve of each model; the title gives the number that sums each up, in order."""
    truth = table(labels)[:, task]
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.set_aspect("equal", adjustable="box")
    known = np.isfinite(truth)
    ones = int(np.nansum(truth))
    title = f"{short(name)}\n{ones:,} of {known.sum():,} are of class 1"
    numbers = []
    if 0 < ones < known.sum():
        for scores, colour in zip(predicted.values(), _COLOURS, strict=False):
            column = table(scores)[:, task]
            both = known & np.isfinite(column)
            if 0 < truth[both].sum() < both.sum():
                numbers.append(f"{draw(axes, truth[both], column[both], colour=colour):.3f}")
            else:
                numbers.append("none")
        title += f"\n{number} {' · '.join(numbers)}"
    else:
        corner(axes, ["one class only" if known.any() else "no label is known"])
    axes.set_title(title, fontsize=11)


def _finish(
    figure: Figure,
    predicted: Mapping[str, ArrayLike],
    names: Sequence[str],
    *,
    across: str,
    up: str,
    more: Sequence[Artist] = (),
) -> None:
    """Names of the axes and of the models, once for all panels."""
    lines = [
        Line2D([], [], color=colour, label=model)
        for model, colour in zip(predicted, _COLOURS, strict=False)
    ]
    figure.legend(
        handles=[*lines, *more],
        loc="outside upper left",
        ncols=2 if len(names) == 1 else 4,
        title=shown_of(len(names)) or None,
        alignment="left",
    )
    figure.supxlabel(across, fontsize=13)
    figure.supylabel(up, fontsize=13)


def _wilson(share: Floats, rows: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The 95 % interval of a frequency that was observed in so many cases."""
    z = 1.96
    centre = (share + z**2 / (2 * rows)) / (1 + z**2 / rows)
    half = z / (1 + z**2 / rows) * np.sqrt(share * (1 - share) / rows + z**2 / (4 * rows**2))
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)
