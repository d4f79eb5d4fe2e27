"""Figures of `zoo bench ops`: heat maps over the grid, and a roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

_DPI = 150
_COLOURS = ("#1f5fa8", "#d9730d", "#3b8f5a", "#8a3fa0", "#b3322c", "#5b6470", "#c19a1b", "#2a9aa8")


def save_heat_maps(folder: Path, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Speed-up of ours, and effective bandwidth, of each op over features and outputs, at the
    largest number of inputs; one PNG each.
    """
    ours = [r for r in rows if r["speedup"] is not None]
    made = []
    if ours:
        made.append(
            _maps(
                folder / "speed-up.png",
                ours,
                value="speedup",
                title="Speed-up over torch's fastest eager form",
                norm=LogNorm(1 / 8, 8),
                colours="RdBu",
                text=lambda v: f"{v:.1f}" if v < 10 else f"{v:.0f}",
            )
        )
    top = max(r["gb_per_s"] for r in rows)
    made.append(
        _maps(
            folder / "bandwidth.png",
            rows,
            value="gb_per_s",
            title="Effective bandwidth of the faster side, GB/s",
            norm=LogNorm(max(top / 1000, 1e-3), top),
            colours="viridis",
            text=lambda v: f"{v:.0f}" if v >= 10 else f"{v:.1f}" if v >= 1 else f"{v:.2f}",
        )
    )
    return made


def _maps(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    *,
    value: str,
    title: str,
    norm: Any,
    colours: str,
    text: Any,
) -> Path:
    ops = list(dict.fromkeys(r["op"] for r in rows))
    inputs = max(r["inputs"] for r in rows)
    features = sorted({r["features"] for r in rows})
    outputs = sorted({r["outputs"] for r in rows})
    across = min(3, len(ops))
    down = -(-len(ops) // across)
    width = max(2.6, 0.55 * len(features) + 1.4)
    height = max(2.4, 0.42 * len(outputs) + 1.3)
    figure = Figure(figsize=(across * width + 1.2, down * height + 0.6), dpi=_DPI)
    FigureCanvasAgg(figure)
    grid = figure.subplots(down, across, squeeze=False)
    shown: Any = None
    for axes, op in zip(grid.flat, ops, strict=False):
        table = np.full((len(outputs), len(features)), np.nan)
        for row in rows:
            if row["op"] == op and row["inputs"] == inputs:
                at = outputs.index(row["outputs"]), features.index(row["features"])
                table[at] = row[value]
        shown = axes.imshow(
            np.ma.masked_invalid(table), norm=norm, cmap=colours, aspect="auto", origin="lower"
        )
        _cells(axes, table, shown, text)
        axes.set_title(op.replace("_", " "), fontsize=11)
        axes.set_xticks(range(len(features)), [str(v) for v in features], fontsize=8)
        axes.set_yticks(range(len(outputs)), [str(v) for v in outputs], fontsize=8)
    for axes in grid.flat[len(ops) :]:
        axes.axis("off")
    for number, axes in enumerate(grid.flat[: len(ops)]):
        if number + across >= len(ops):
            axes.set_xlabel("features", fontsize=9)
    for axes in grid[:, 0]:
        axes.set_ylabel("outputs", fontsize=9)
    figure.suptitle(f"{title} ({inputs:,} inputs)", fontsize=13, x=0.02, ha="left")
    figure.tight_layout(rect=(0, 0, 0.93, 0.97))
    bar = figure.colorbar(shown, cax=figure.add_axes((0.945, 0.15, 0.014, 0.7)))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.3g}"))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.ax.yaxis.set_major_locator(LogLocator(base=2 if value == "speedup" else 10))
    bar.ax.tick_params(labelsize=8)
    figure.savefig(path)
    return path


def _cells(axes: Axes, table: np.ndarray, shown: Any, text: Any) -> None:
    for (down, across), value in np.ndenumerate(table):
        if np.isfinite(value):
            red, green, blue, _ = shown.cmap(shown.norm(value))
            light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
            colour = "#22262b" if light else "white"
            axes.text(across, down, text(value), ha="center", va="center", fontsize=7, color=colour)


def save_roofline(folder: Path, result: Mapping[str, Any]) -> Path:
    """Speed against arithmetic intensity, under the machine's measured peaks: `roofline.png`."""
    rows = [r for r in result["rows"] if r["flops"] and r["elements"] >= result["large_elements"]]
    rows = rows or [r for r in result["rows"] if r["flops"]]
    peak, copy = result["peaks"]["float32_gflops"], result["peaks"]["copy_gb_per_s"]
    figure = Figure(figsize=(8, 5.4), dpi=_DPI)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    low = min([r["intensity"] for r in rows] + [peak / copy]) / 2
    high = max([r["intensity"] for r in rows] + [peak / copy]) * 4
    at = np.geomspace(low, high, 200)
    axes.plot(at, np.minimum(at * copy, peak), color="#22262b", linewidth=2)
    middle = (low * peak / copy) ** 0.5
    axes.annotate(
        f"memory: a copy at {copy:.0f} GB/s",
        (middle, middle * copy),
        xytext=(-10, 14),
        textcoords="offset points",
        ha="right",
        fontsize=9,
    )
    axes.annotate(
        f"matrix products: {peak:.0f} GFLOP/s",
        (high, peak),
        xytext=(0, 6),
        textcoords="offset points",
        ha="right",
        fontsize=9,
    )
    ops = list(dict.fromkeys(r["op"] for r in rows))
    for op, colour in zip(ops, _COLOURS, strict=False):
        mine = [r for r in rows if r["op"] == op]
        for key, marker in (("eager_s", "x"), ("ours_s", "o")):
            points = [(r["intensity"], r["flops"] / r[key] / 1e9) for r in mine if r[key]]
            if points:
                label = op.replace("_", " ") if key == "ours_s" else None
                x, y = zip(*points, strict=True)
                axes.scatter(x, y, marker=marker, s=26, color=colour, label=label)
    axes.scatter([], [], marker="x", color="#5b6470", label="torch's fastest eager form")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("arithmetic intensity, FLOP per byte that must move")
    axes.set_ylabel("GFLOP/s of the task (a filter table saves most of a block's)")
    axes.set_title("Large shapes under this machine's measured peaks", loc="left", fontsize=12)
    axes.grid(color="#e3e6ea")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    figure.tight_layout()
    path = folder / "roofline.png"
    figure.savefig(path)
    return path
