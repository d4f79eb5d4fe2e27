"""Molecules that a table holds more than once, and labels of theirs that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from zoo.chem.labels import Label

CONFLICT = 0.1
"""Two values of a regression contradict each other if they differ by more than this share of the
column's standard deviation."""


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """Two rows (places among the rows kept) with the same molecule whose labels differ: those with
    the lowest and the highest value, in their order."""

    group: int
    label: int
    places: tuple[int, int]
    values: tuple[float, float]


def repeated(groups: np.ndarray) -> int:
    """How many rows hold a molecule that an earlier row holds. groups int [rows]."""
    return len(groups) - len(np.unique(groups))


def conflicts(*, y: np.ndarray, groups: np.ndarray, labels: Sequence[Label]) -> Iterator[Conflict]:
    """Each molecule and label of which rows contradict each other. y float64 [rows, labels]."""
    order = np.argsort(groups, kind="stable")
    for number, label in enumerate(labels):
        known = order[~np.isnan(y[order, number])]
        if not len(known):
            continue
        values, of = y[known, number], groups[known]
        starts = np.flatnonzero(np.concatenate([[True], of[1:] != of[:-1]]))
        spread = np.maximum.reduceat(values, starts) - np.minimum.reduceat(values, starts)
        allowed = CONFLICT * values.std() if label.kind == "regression" else 0.0
        ends = np.append(starts[1:], len(known))
        for at in np.flatnonzero(spread > allowed):
            some = slice(starts[at], ends[at])
            pair = sorted((int(values[some].argmin()), int(values[some].argmax())))
            one, other = (int(known[some][place]) for place in pair)
            yield Conflict(
                group=int(of[starts[at]]),
                label=number,
                places=(one, other),
                values=(float(y[one, number]), float(y[other, number])),
            )
