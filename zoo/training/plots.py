"""Figures of a run as PNG files. Pure functions of arrays; pyplot and its state are not used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from zoo.training.plot_style import (
    BLUE,
    DENSE,
    GREY,
    INK,
    ORANGE,
    STYLE,
    Floats,
    corner,
    density,
    error_bins,
    finite,
    flat,
    limits,
    log_if_wide,
    save,
    with_unit,
)


def save_learning_curve(
    *,
    path: Path,
    history: Sequence[Mapping[str, float]],
    metric: str,
    unit: str,
    higher_is_better: bool = False,
) -> Path:
    """Loss and validation metric against the epoch.

    `history` has a mapping for each epoch: `epoch` (else its place, from 1), `metric` under its own
    name, in `unit`, and any of `train/loss`, `valid/loss`, drawn in a panel below. Values that are
    missing or not finite leave a gap.
    """
    epochs = np.array([row.get("epoch", place) for place, row in enumerate(history, start=1)])
    losses = [name for name in ("train/loss", "valid/loss") if any(name in row for row in history)]
    with rc_context(STYLE):
        figure = Figure(figsize=(7.5, 6.5 if losses else 4.2), layout="constrained")
        panels = figure.subplots(2 if losses else 1, sharex=True, squeeze=False)[:, 0]
        values = _column(history, metric)
        _curve(panels[0], epochs, values, color=BLUE, label=metric)
        panels[0].set_ylabel(with_unit(metric, unit))
        _mark_best(panels[0], epochs, values, unit=unit, sign=-1 if higher_is_better else 1)
        for name, color in zip(losses, (GREY, ORANGE), strict=False):
            _curve(panels[-1], epochs, _column(history, name), color=color, label=name)
        if losses:
            panels[-1].set_ylabel("loss")
            panels[-1].legend()
        for panel in panels:
            log_if_wide(panel)
        panels[-1].set_xlabel("epoch")
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if len(epochs) == 1:
            panels[-1].set_xlim(epochs[0] - 1, epochs[0] + 1)
        return save(figure, path)


def save_parity(
    *, path: Path, truth: ArrayLike, predicted: ArrayLike, name: str, unit: str
) -> Path:
    """Prediction against truth, with MAE, R² and the count in a corner.

    Both axes share one scale. Above 2,000 points their density is drawn, by a logarithmic colour
    scale. Pairs with NaN (unknown labels) are left out, and counted.
    """
    x, y = flat(truth), flat(predicted)
    known = np.isfinite(x) & np.isfinite(y)
    left_out = int(np.sum(~known))
    x, y = x[known], y[known]
    with rc_context(STYLE):
        dense = x.size > DENSE
        figure = Figure(figsize=(7.6 if dense else 6.2, 6.0), layout="compressed")
        axes = figure.subplots()
        if x.size:
            low, high = limits(np.concatenate([x, y]))
            if dense:
                density(figure, axes, x, y, box=((low, high), (low, high)))
            else:
                axes.scatter(x, y, s=18, color=BLUE, alpha=0.6, linewidths=0)
            # Under the points, which lie on it when the model is good.
            axes.plot([low, high], [low, high], color=GREY, linewidth=1.2, zorder=0.9)
            axes.set_xlim(low, high)
            axes.set_ylim(low, high)
        axes.set_aspect("equal", adjustable="box")
        axes.set_xlabel(f"reference {with_unit(name, unit)}")
        axes.set_ylabel(f"predicted {with_unit(name, unit)}")
        corner(axes, parity_lines(x, y, unit=unit, left_out=left_out))
        return save(figure, path)


def save_error_by_size(*, path: Path, sizes: ArrayLike, errors: ArrayLike, unit: str) -> Path:
    """Absolute error against the size of a graph (its atoms): median, mean and the middle 80 %.

    Below, how many graphs each size has. `errors` may be signed; NaN is left out.
    """
    size, error = flat(sizes), np.abs(flat(errors))
    known = np.isfinite(size) & np.isfinite(error)
    size, error = size[known], error[known]
    with rc_context(STYLE):
        figure = Figure(figsize=(7.5, 6.0), layout="constrained")
        top, bottom = figure.subplots(2, sharex=True, height_ratios=(3, 1))
        if size.size:
            centre, width, parts = _binned(size, error)
            error_bins(top, centre=centre, parts=parts)
            bottom.bar(centre, [part.size for part in parts], width=width * 0.9, color=GREY)
            bottom.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        else:
            corner(top, ["no errors to show"])
        top.set_ylabel(with_unit("absolute error", unit))
        bottom.set_ylabel("graphs")
        bottom.set_xlabel("atoms in the graph")
        return save(figure, path)


def save_batch_filling(
    *, path: Path, nodes_filling: ArrayLike, edges_filling: ArrayLike, graphs: ArrayLike
) -> Path:
    """How full the packs are: shares of node and edge slots in use, and real graphs a pack.

    `nodes_filling` and `edges_filling` hold a share in [0, 1] for each pack, `graphs` a count.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(11.0, 4.0), layout="constrained")
        panels = figure.subplots(1, 3)
        for panel, share, what, color in (
            (panels[0], nodes_filling, "node", BLUE),
            (panels[1], edges_filling, "edge", ORANGE),
        ):
            percent = 100 * finite(share)
            _histogram(panel, percent, color=color, high=100.0)
            panel.set_xlabel(f"{what} slots in use [%]")
            if percent.size:
                panel.set_title(f"{what}s: mean {percent.mean():.2f} %")
        count = finite(graphs)
        _histogram(panels[2], count, color=GREY, whole=True)
        panels[2].set_xlabel("graphs in a pack")
        if count.size:
            panels[2].set_title(f"graphs: mean {count.mean():.1f}")
        panels[0].set_ylabel("packs")
        return save(figure, path)


def _column(history: Sequence[Mapping[str, float]], name: str) -> Floats:
    values = np.array([float(row.get(name, np.nan)) for row in history], dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def _curve(axes: Axes, x: Floats, y: Floats, *, color: str, label: str) -> None:
    # Markers while they can be told apart: a single epoch, or one between gaps, has no line.
    axes.plot(x, y, color=color, label=label, marker="o" if len(x) <= 40 else None, markersize=4)


def _mark_best(axes: Axes, x: Floats, y: Floats, *, unit: str, sign: int) -> None:
    if not np.isfinite(y).any():
        corner(axes, ["no finite value"])
        return
    best = int(np.nanargmin(sign * y))
    axes.plot(x[best], y[best], "o", color=ORANGE, markersize=7, zorder=3)
    text = f"best {y[best]:.4g}{' ' + unit if unit else ''} at epoch {x[best]:g}"
    axes.set_title(text)


def parity_lines(x: Floats, y: Floats, *, unit: str, left_out: int) -> list[str]:
    """What stands in the corner of a parity plot."""
    if not x.size:
        return ["no pair to show"]
    spread = float(np.sum((x - x.mean()) ** 2))
    lines = [f"MAE {np.mean(np.abs(x - y)):.4g} {unit}".rstrip()]
    if x.size > 1 and spread > 0:
        lines.append(f"R² {1 - float(np.sum((x - y) ** 2)) / spread:.5f}")
    lines.append(f"n = {x.size:,}")
    return [*lines, f"{left_out:,} without a label"] if left_out else lines


def _binned(size: Floats, error: Floats) -> tuple[Floats, float, list[Floats]]:
    """Centres, width and the errors of each bin that has any: a bin a size, or 40 in all."""
    width = max(1.0, np.ceil((size.max() - size.min() + 1) / 40))
    bins = np.floor((size - size.min()) / width).astype(np.int64)
    order = np.argsort(bins, kind="stable")
    kinds, starts = np.unique(bins[order], return_index=True)
    centre = size.min() + kinds * width + (width - 1) / 2
    return centre, float(width), np.split(error[order], starts[1:])


def _histogram(
    axes: Axes, values: Floats, *, color: str, high: float | None = None, whole: bool = False
) -> None:
    if not values.size:
        corner(axes, ["no pack to show"])
        return
    low, top = float(values.min()), float(values.max()) if high is None else high
    if whole:
        step = max(1.0, np.ceil((top - low + 1) / 40))
        edges = np.arange(low - 0.5, top + step, step)
    else:
        edges = np.linspace(min(low, top - 1.0), top, 41)
    axes.hist(values, bins=edges.tolist(), color=color)
    axes.axvline(float(values.mean()), color=INK, linewidth=1.2, linestyle="--")
    axes.grid(False, axis="x")
