"""Figures of a model of molecules' properties, as PNG files; see `zoo.training.plots`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
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
    flat,
    limits,
    panels,
    save,
    short,
    shown_of,
    table,
    with_unit,
)
from zoo.training.plots import parity_lines

_ENOUGH = 5  # molecules whose median error is worth a line


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A model in a comparison: its metric, and the bootstrap interval around it."""

    name: str
    value: float
    low: float
    high: float


def save_parity_intervals(
    *,
    path: Path,
    truth: ArrayLike,
    predicted: ArrayLike,
    half_widths: ArrayLike,
    names: Sequence[str],
    units: Sequence[str],
    level: float,
) -> Path:
    """Prediction against truth of each task, with the interval of each prediction as a bar.

    truth, predicted and half_widths [n, T] in their tasks' units. Orange: the interval misses the
    truth. Unknown truths (NaN) are left out, and counted; a half width of NaN has no bar. Above
    2,000 points their density is drawn, without bars. The first 12 tasks are shown.
    """
    every, guess, half = table(truth), table(predicted), table(half_widths)
    with rc_context(STYLE):
        figure, places = panels(len(names))
        for task, axes in enumerate(places):
            known = np.isfinite(every[:, task]) & np.isfinite(guess[:, task])
            x, y, bar = every[known, task], guess[known, task], half[known, task]
            lines = parity_lines(x, y, unit=units[task], left_out=int(np.sum(~known)))
            sure = np.isfinite(bar)
            if sure.any():
                share = np.mean(np.abs(x - y)[sure] <= bar[sure])
                lines.append(f"{100 * share:.0f} % within the {100 * level:.0f} % interval")
            if x.size:
                _parity(figure, axes, x, y, bar)
            axes.set_aspect("equal", adjustable="box")
            if len(names) == 1:
                axes.set_xlabel(f"reference {with_unit(names[0], units[0])}")
                axes.set_ylabel(f"predicted {with_unit(names[0], units[0])}")
            else:
                axes.set_title(short(with_unit(names[task], units[task])))
            corner(axes, lines)
        if len(names) > 1:
            figure.suptitle(shown_of(len(names)), x=0.02, ha="left", fontsize=13)
            figure.supxlabel("reference")
            figure.supylabel("predicted")
        return save(figure, path)


def _parity(figure: Figure, axes: Axes, x: Floats, y: Floats, bar: Floats) -> None:
    low, high = limits(np.concatenate([x, y]))
    if x.size > DENSE:
        density(figure, axes, x, y, box=((low, high), (low, high)))
    else:
        missed = np.abs(x - y) > bar  # False where there is no interval
        for rows, colour in ((~missed, BLUE), (missed, ORANGE)):
            axes.vlines(
                x[rows], (y - bar)[rows], (y + bar)[rows], color=colour, alpha=0.25, linewidth=1.0
            )
            axes.scatter(x[rows], y[rows], s=18, color=colour, alpha=0.7, linewidths=0)
    axes.plot([low, high], [low, high], color=GREY, linewidth=1.2, zorder=0.9)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)


def save_comparison(
    *,
    path: Path,
    bars: Sequence[Bar],
    metric: str,
    unit: str = "",
    higher_is_better: bool = False,
    start: float = 0.0,
) -> Path:
    """A bar for each model, in the order given, with its bootstrap interval and value; the first is
    the one the others are compared with.

    Bars begin at `start`: zero for errors, what chance reaches for a score. Values that are not
    finite are said to be missing.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(8.0, 1.7 + 0.62 * len(bars)), layout="constrained")
        axes = figure.subplots()
        places = np.arange(len(bars))
        value, low, high = (
            np.array([getattr(bar, what) for bar in bars], np.float64)
            for what in ("value", "low", "high")
        )
        drawn = np.isfinite(value)
        colours = [BLUE if number == 0 else GREY for number in places]
        axes.barh(places, np.where(drawn, value - start, 0), left=start, height=0.6, color=colours)
        axes.hlines(places, low, high, color=INK, linewidth=1.6)
        axes.plot(np.concatenate([low, high]), np.tile(places, 2), "|", color=INK, markersize=9)
        edge = np.array([*value[drawn], *low[np.isfinite(low)], *high[np.isfinite(high)], start])
        left, right = edge.min(), edge.max()
        span = (right - left) or 1.0
        for place in range(len(bars)):
            # Beside the longest of bar and interval, where nothing else is drawn.
            at = np.nanmax([value[place], high[place], start]) if drawn[place] else start
            text = f"{value[place]:.4g}" if drawn[place] else "none"
            axes.text(at + 0.02 * span, place, text, va="center")
        axes.axvline(start, color=INK, linewidth=1.0)
        axes.set_xlim(left - (0.04 * span if left < start else 0), right + 0.16 * span)
        axes.set_yticks(places, [short(bar.name) for bar in bars])
        axes.invert_yaxis()
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0)
        better = "more is better" if higher_is_better else "less is better"
        begins = f"; bars begin at chance, {start:g}" if start else ""
        axes.set_xlabel(f"{with_unit(metric, unit)} ({better}{begins})")
        return save(figure, path)


def save_error_by_similarity(
    *, path: Path, similarity: ArrayLike, errors: ArrayLike, unit: str, what: str = "absolute error"
) -> Path:
    """Absolute error against the Tanimoto similarity to the nearest training molecule: each
    molecule, up to 2,000, and median, mean and the middle 80 % of steps of 0.1 that hold five.

    similarity [n] in 0..1; `errors` [n] may be signed; NaN of either is left out.
    """
    near, error = flat(similarity), np.abs(flat(errors))
    known = np.isfinite(near) & np.isfinite(error)
    near, error = near[known], error[known]
    with rc_context(STYLE):
        figure = Figure(figsize=(7.5, 6.0), layout="constrained")
        top, bottom = figure.subplots(2, sharex=True, height_ratios=(3, 1))
        if near.size:
            # A hair more: 0.7 in float32 is less than that.
            step = np.minimum((near * 10 + 1e-6).astype(np.int64), 9)
            held, counts = np.unique(step, return_counts=True)
            if near.size <= DENSE:
                top.scatter(near, error, s=12, color=GREY, alpha=0.6, linewidths=0)
            # Of a few molecules the median is their chance; their points are there to see.
            many = held[counts >= _ENOUGH] if counts.max() >= _ENOUGH else held
            parts = [error[step == one] for one in many]
            error_bins(top, centre=many / 10 + 0.05, parts=parts)
            bottom.bar(held / 10 + 0.05, counts, width=0.09, color=GREY)
        else:
            corner(top, ["no errors to show"])
        top.set_ylabel(with_unit(what, unit))
        bottom.set_ylabel("molecules")
        bottom.set_xlabel("similarity to the nearest training molecule (Tanimoto)")
        bottom.set_xlim(-0.02, 1.02)
        bottom.xaxis.set_major_locator(MultipleLocator(0.1))
        return save(figure, path)
