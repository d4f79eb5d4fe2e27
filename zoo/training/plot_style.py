"""What the figures of this house share: colours, a style, and the parts that several draw."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike, NDArray

BLUE, ORANGE, GREY, INK = "#1f5fa8", "#d9730d", "#8a8f98", "#22262b"
# Any: matplotlib types the keys of a style one by one.
STYLE: Any = {
    "font.size": 12,
    "font.family": "DejaVu Sans",
    "axes.labelsize": 13,
    "axes.titlesize": 13,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e6ea",
    "legend.frameon": False,
    "legend.fontsize": 11,
    "lines.linewidth": 2.0,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "text.color": INK,
    # Names and units hold dollars, underscores and carets of their own.
    "text.parse_math": False,
    "text.usetex": False,
}
PANELS = 12
"""Tasks in a figure at most: with more none could be read."""
# Above this many points a scatter is a blot: density instead.
DENSE = 2000
_DPI = 150

Floats = NDArray[np.float64]


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG, into a folder that is made for it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    # A little room on every side: compressed layouts let labels touch the edge.
    figure.savefig(path, format="png", dpi=_DPI, bbox_inches="tight", pad_inches=0.12)
    return path


def flat(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64).reshape(-1)


def finite(values: ArrayLike) -> Floats:
    every = flat(values)
    return every[np.isfinite(every)]


def with_unit(name: str, unit: str) -> str:
    return f"{name} [{unit}]" if unit else name


def log_if_wide(axes: Axes) -> None:
    """A logarithmic value axis where positive values span more than a factor of ten."""
    values = np.concatenate([finite(line.get_ydata()) for line in axes.lines] or [np.zeros(0)])
    if values.size and values.min() > 0 and values.max() > 10 * values.min():
        axes.set_yscale("log")
        few = values.max() < 1e3 * values.min()
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
        # Plain numbers: powers of ten would be set as formulas, which the style turns off.
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def limits(values: Floats) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = 0.04 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def density(
    figure: Figure,
    axes: Axes,
    x: Floats,
    y: Floats,
    *,
    box: tuple[tuple[float, float], tuple[float, float]],
) -> None:
    """How many points are where, by a logarithmic colour scale."""
    counts, x_edges, y_edges = np.histogram2d(x, y, bins=160, range=box)
    shown = np.ma.masked_equal(counts.T, 0)
    drawn = axes.pcolormesh(
        x_edges, y_edges, shown, cmap="viridis", norm=LogNorm(1, max(2.0, counts.max()))
    )
    whole = FuncFormatter(lambda value, _: f"{value:,.0f}")
    figure.colorbar(
        drawn, ax=axes, label="points in a cell", format=whole, fraction=0.05, pad=0.03
    ).ax.grid(False)


def corner(axes: Axes, lines: Iterable[str]) -> None:
    """Lines of text in a box, in the upper left corner."""
    axes.text(
        0.04,
        0.96,
        "\n".join(lines),
        transform=axes.transAxes,
        va="top",
        bbox={"facecolor": "white", "edgecolor": "#c8ccd2", "boxstyle": "round,pad=0.4"},
    )


def error_bins(axes: Axes, *, centre: Floats, parts: Sequence[Floats]) -> None:
    """Median, mean and the middle 80 % of each bin's absolute errors."""
    low, median, high = (
        np.array([np.quantile(part, q) for part in parts]) for q in (0.1, 0.5, 0.9)
    )
    axes.fill_between(centre, low, high, color=BLUE, alpha=0.18, linewidth=0)
    if len(parts) == 1:
        axes.vlines(centre, low, high, color=BLUE, alpha=0.35, linewidth=1.5)
    axes.plot(centre, median, "o-", color=BLUE, markersize=4, label="median (band: 10-90 %)")
    mean = [part.mean() for part in parts]
    axes.plot(centre, mean, "s--", color=ORANGE, markersize=4, label="mean")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    log_if_wide(axes)


def panels(tasks: int) -> tuple[Figure, list[Axes]]:
    """A figure with a square panel for each of the first twelve tasks."""
    shown = max(1, min(tasks, PANELS))
    side = 5.6 if shown == 1 else 4.2  # inches
    across = {1: 1, 2: 2, 4: 2}.get(shown, 3 if shown <= 9 else 4)
    down = -(-shown // across)
    figure = Figure(figsize=(side * across + 0.6, side * down + 0.6), layout="compressed")
    grid = figure.subplots(down, across, squeeze=False).reshape(-1)
    for axes in grid[shown:]:
        axes.set_axis_off()
    return figure, list(grid[:shown])


def shown_of(tasks: int) -> str:
    """What to say of tasks that have no panel."""
    return f"the first {PANELS} of {tasks} tasks" if tasks > PANELS else ""


def table(values: ArrayLike) -> Floats:
    """[n, T]; one task may be given as [n]."""
    table = np.asarray(values, dtype=np.float64)
    return table.reshape(len(table), -1)


def short(name: str) -> str:
    """A name on two lines at most."""
    lines = textwrap.wrap(name, 28, max_lines=2, placeholder=" ...")
    return "\n".join(lines)
