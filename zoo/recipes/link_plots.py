"""Plots of where true answers stand."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from zoo.training.plot_style import BLUE, GREY, ORANGE, STYLE, save, short

MOST = 15
"""Relations shown, the most frequent first."""


def save_link_plots(
    *, folder: Path, facts: np.ndarray, ranks: np.ndarray, relations: tuple[str, ...]
) -> list[Path]:
    """Answers by rank, and the mean reciprocal rank by relation. `ranks` [2 M, 4] are of the tails
    of the facts int64 [M, 3], then of their heads.
    """
    rank = ranks[:, :2].mean(1)
    tails, heads = rank[: len(facts)], rank[len(facts) :]
    with mpl.rc_context(STYLE):
        return [
            _by_rank(folder / "ranks.png", tails=tails, heads=heads),
            _by_relation(folder / "relations.png", facts[:, 1], tails, heads, relations),
        ]


def _by_rank(path: Path, *, tails: np.ndarray, heads: np.ndarray) -> Path:
    figure = Figure(figsize=(7.2, 5.0), layout="compressed")
    axes = figure.subplots()
    for name, ranks, colour in (("tails", tails, BLUE), ("heads", heads, ORANGE)):
        share = np.arange(1, len(ranks) + 1) / max(1, len(ranks))
        mrr = float((1 / ranks).mean()) if len(ranks) else float("nan")
        axes.step(np.sort(ranks), share, where="post", color=colour, label=f"{name}, MRR {mrr:.3f}")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylim(0, 1.02)
    for k in (1, 3, 10):
        axes.axvline(k, color=GREY, linewidth=1, linestyle=":")
    axes.set_xlabel("rank among all entities, other true answers left out")
    axes.set_ylabel("share of answers up to this rank")
    axes.legend(loc="lower right")
    return save(figure, path)


def _by_relation(
    path: Path,
    of_fact: np.ndarray,
    tails: np.ndarray,
    heads: np.ndarray,
    relations: tuple[str, ...],
) -> Path:
    number, counts = np.unique(of_fact, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST]
    figure = Figure(figsize=(9.0, 1.4 + 0.5 * len(order)), layout="compressed")
    axes = figure.subplots()
    place = np.arange(len(order))
    for shift, ranks, colour, name in (
        (-0.2, tails, BLUE, "tails"),
        (0.2, heads, ORANGE, "heads"),
    ):
        means = [float((1 / ranks[of_fact == number[at]]).mean()) for at in order]
        axes.barh(place + shift, means, height=0.38, color=colour, label=name)
    labels = [f"{short(_last(relations[number[at]]))} ({counts[at]:,})" for at in order]
    axes.set_yticks(place, labels)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_xlim(0, 1)
    axes.set_xlabel("mean reciprocal rank (number of facts behind each name)")
    title = f"the {MOST} most frequent of {len(number)} relations" if len(number) > MOST else ""
    axes.set_title(title, fontsize=11)
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.04), ncols=2)
    return save(figure, path)


def _last(name: str) -> str:
    """The telling end of a relation that is called by a path or an address."""
    ends = [part for part in name.replace("#", "/").rstrip("./").split("/") if part]
    return " / ".join(ends[-2:]).replace("_", " ") if ends else name
