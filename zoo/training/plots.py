"""Figures of a run as PNG files. Pure functions of arrays; pyplot and its state are not used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import ArrayLike, NDArray

_BLUE, _ORANGE, _GREY, _INK = "#1f5fa8", "#d9730d", "#8a8f98", "#22262b"
# Any: matplotlib types the keys of a style one by one.
_STYLE: Any = {
    "font.size": 12,
    "font.family": "DejaVu Sans",
    "axes.labelsize": 13,
    "axes.titlesize": 13,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e6ea",
    "legend.frameon": False,
    "legend.fontsize": 11,
    "lines.linewidth": 2.0,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "text.color": _INK,
    # Names and units hold dollars, underscores and carets of their own.
    "text.parse_math": False,
    "text.usetex": False,
}
# Above this many points a scatter is a blot: density instead.
_DENSE = 2000
_DPI = 150

Floats = NDArray[np.float64]


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
    with rc_context(_STYLE):
        figure = Figure(figsize=(7.5, 6.5 if losses else 4.2), layout="constrained")
        panels = figure.subplots(2 if losses else 1, sharex=True, squeeze=False)[:, 0]
        values = _column(history, metric)
        _curve(panels[0], epochs, values, color=_BLUE, label=metric)
        panels[0].set_ylabel(_with_unit(metric, unit))
        _mark_best(panels[0], epochs, values, unit=unit, sign=-1 if higher_is_better else 1)
        for name, color in zip(losses, (_GREY, _ORANGE), strict=False):
            _curve(panels[-1], epochs, _column(history, name), color=color, label=name)
        if losses:
            panels[-1].set_ylabel("loss")
            panels[-1].legend()
        for panel in panels:
            _log_if_wide(panel)
        panels[-1].set_xlabel("epoch")
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if len(epochs) == 1:
            panels[-1].set_xlim(epochs[0] - 1, epochs[0] + 1)
        return _save(figure, path)


def save_parity(
    *, path: Path, truth: ArrayLike, predicted: ArrayLike, name: str, unit: str
) -> Path:
    """Prediction against truth, with MAE, R² and the count in a corner.

    Both axes share one scale. Above 2,000 points their density is drawn, by a logarithmic colour
    scale. Pairs with NaN (unknown labels) are left out, and counted.
    """
    x, y = _flat(truth), _flat(predicted)
    known = np.isfinite(x) & np.isfinite(y)
    left_out = int(np.sum(~known))
    x, y = x[known], y[known]
    with rc_context(_STYLE):
        dense = x.size > _DENSE
        figure = Figure(figsize=(7.6 if dense else 6.2, 6.0), layout="compressed")
        axes = figure.subplots()
        if x.size:
            low, high = _limits(np.concatenate([x, y]))
            if dense:
                _density(figure, axes, x, y, box=((low, high), (low, high)))
            else:
                axes.scatter(x, y, s=18, color=_BLUE, alpha=0.6, linewidths=0)
            # Under the points, which lie on it when the model is good.
            axes.plot([low, high], [low, high], color=_GREY, linewidth=1.2, zorder=0.9)
            axes.set_xlim(low, high)
            axes.set_ylim(low, high)
        axes.set_aspect("equal", adjustable="box")
        axes.set_xlabel(f"reference {_with_unit(name, unit)}")
        axes.set_ylabel(f"predicted {_with_unit(name, unit)}")
        _corner(axes, _parity_lines(x, y, unit=unit, left_out=left_out))
        return _save(figure, path)


def save_error_by_size(*, path: Path, sizes: ArrayLike, errors: ArrayLike, unit: str) -> Path:
    """Absolute error against the size of a graph (its atoms): median, mean and the middle 80 %.

    Below, how many graphs each size has. `errors` may be signed; NaN is left out.
    """
    size, error = _flat(sizes), np.abs(_flat(errors))
    known = np.isfinite(size) & np.isfinite(error)
    size, error = size[known], error[known]
    with rc_context(_STYLE):
        figure = Figure(figsize=(7.5, 6.0), layout="constrained")
        top, bottom = figure.subplots(2, sharex=True, height_ratios=(3, 1))
        if size.size:
            centre, width, parts = _binned(size, error)
            low, median, high = (
                np.array([np.quantile(part, q) for part in parts]) for q in (0.1, 0.5, 0.9)
            )
            top.fill_between(centre, low, high, color=_BLUE, alpha=0.18, linewidth=0)
            if len(parts) == 1:
                top.vlines(centre, low, high, color=_BLUE, alpha=0.35, linewidth=1.5)
            top.plot(
                centre, median, "o-", color=_BLUE, markersize=4, label="median (band: 10-90 %)"
            )
            mean = [part.mean() for part in parts]
            top.plot(centre, mean, "s--", color=_ORANGE, markersize=4, label="mean")
            bottom.bar(centre, [part.size for part in parts], width=width * 0.9, color=_GREY)
            top.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
            _log_if_wide(top)
            bottom.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        else:
            _corner(top, ["no errors to show"])
        top.set_ylabel(_with_unit("absolute error", unit))
        bottom.set_ylabel("graphs")
        bottom.set_xlabel("atoms in the graph")
        return _save(figure, path)


def save_batch_filling(
    *, path: Path, nodes_filling: ArrayLike, edges_filling: ArrayLike, graphs: ArrayLike
) -> Path:
    """How full the packs are: shares of node and edge slots in use, and real graphs a pack.

    `nodes_filling` and `edges_filling` hold a share in [0, 1] for each pack, `graphs` a count.
    """
    with rc_context(_STYLE):
        figure = Figure(figsize=(11.0, 4.0), layout="constrained")
        panels = figure.subplots(1, 3)
        for panel, share, what, color in (
            (panels[0], nodes_filling, "node", _BLUE),
            (panels[1], edges_filling, "edge", _ORANGE),
        ):
            percent = 100 * _finite(share)
            _histogram(panel, percent, color=color, high=100.0)
            panel.set_xlabel(f"{what} slots in use [%]")
            if percent.size:
                panel.set_title(f"{what}s: mean {percent.mean():.2f} %")
        count = _finite(graphs)
        _histogram(panels[2], count, color=_GREY, whole=True)
        panels[2].set_xlabel("graphs in a pack")
        if count.size:
            panels[2].set_title(f"graphs: mean {count.mean():.1f}")
        panels[0].set_ylabel("packs")
        return _save(figure, path)


def _save(figure: Figure, path: Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png", dpi=_DPI)
    return path


def _flat(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64).reshape(-1)


def _finite(values: ArrayLike) -> Floats:
    flat = _flat(values)
    return flat[np.isfinite(flat)]


def _column(history: Sequence[Mapping[str, float]], name: str) -> Floats:
    values = np.array([float(row.get(name, np.nan)) for row in history], dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def _with_unit(name: str, unit: str) -> str:
    return f"{name} [{unit}]" if unit else name


def _curve(axes: Axes, x: Floats, y: Floats, *, color: str, label: str) -> None:
    # Markers while they can be told apart: a single epoch, or one between gaps, has no line.
    axes.plot(x, y, color=color, label=label, marker="o" if len(x) <= 40 else None, markersize=4)


def _mark_best(axes: Axes, x: Floats, y: Floats, *, unit: str, sign: int) -> None:
    if not np.isfinite(y).any():
        _corner(axes, ["no finite value"])
        return
    best = int(np.nanargmin(sign * y))
    axes.plot(x[best], y[best], "o", color=_ORANGE, markersize=7, zorder=3)
    text = f"best {y[best]:.4g}{' ' + unit if unit else ''} at epoch {x[best]:g}"
    axes.set_title(text)


def _log_if_wide(axes: Axes) -> None:
    """A logarithmic value axis where positive values span more than a factor of ten."""
    values = np.concatenate([_finite(line.get_ydata()) for line in axes.lines] or [np.zeros(0)])
    if values.size and values.min() > 0 and values.max() > 10 * values.min():
        axes.set_yscale("log")
        few = values.max() < 1e3 * values.min()
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
        # Plain numbers: powers of ten would be set as formulas, which the style turns off.
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def _limits(values: Floats) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = 0.04 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def _density(
    figure: Figure,
    axes: Axes,
    x: Floats,
    y: Floats,
    *,
    box: tuple[tuple[float, float], tuple[float, float]],
) -> None:
    counts, x_edges, y_edges = np.histogram2d(x, y, bins=160, range=box)
    shown = np.ma.masked_equal(counts.T, 0)
    drawn = axes.pcolormesh(
        x_edges, y_edges, shown, cmap="viridis", norm=LogNorm(1, max(2.0, counts.max()))
    )
    whole = FuncFormatter(lambda value, _: f"{value:,.0f}")
    figure.colorbar(
        drawn, ax=axes, label="points in a cell", format=whole, fraction=0.05, pad=0.03
    ).ax.grid(False)


def _parity_lines(x: Floats, y: Floats, *, unit: str, left_out: int) -> list[str]:
    if not x.size:
        return ["no pair to show"]
    spread = float(np.sum((x - x.mean()) ** 2))
    lines = [f"MAE {np.mean(np.abs(x - y)):.4g} {unit}".rstrip()]
    if x.size > 1 and spread > 0:
        lines.append(f"R² {1 - float(np.sum((x - y) ** 2)) / spread:.5f}")
    lines.append(f"n = {x.size:,}")
    return [*lines, f"{left_out:,} without a label"] if left_out else lines


def _corner(axes: Axes, lines: Iterable[str]) -> None:
    axes.text(
        0.04,
        0.96,
        "\n".join(lines),
        transform=axes.transAxes,
        va="top",
        bbox={"facecolor": "white", "edgecolor": "#c8ccd2", "boxstyle": "round,pad=0.4"},
    )


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
        _corner(axes, ["no pack to show"])
        return
    low, top = float(values.min()), float(values.max()) if high is None else high
    if whole:
        step = max(1.0, np.ceil((top - low + 1) / 40))
        edges = np.arange(low - 0.5, top + step, step)
    else:
        edges = np.linspace(min(low, top - 1.0), top, 41)
    axes.hist(values, bins=edges.tolist(), color=color)
    axes.axvline(float(values.mean()), color=_INK, linewidth=1.2, linestyle="--")
    axes.grid(False, axis="x")
