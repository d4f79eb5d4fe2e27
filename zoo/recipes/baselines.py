"""What a model must beat on the same split: a random forest on fingerprints, and the mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from zoo.chem.fingerprints import BITS, RADIUS, Fingerprints, dense_times, selected
from zoo.errors import RequestError

Kind = Literal["regression", "binary", "multiclass"]

TREES = 100
"""Trees of a forest; fewer where there are more than 30 tasks."""
MOST = 20_000
"""Molecules that a forest is grown on at most: more cost minutes and gain little."""

_ALL_TREES, _FEWEST_TREES = 3000, 25  # of all tasks, of each
_FEWEST = 2500  # molecules, before a forest of values is grown on fewer for the other tasks' sake

_ROWS = 8192  # predicted at a time: 64 MB of counts


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """Predictions float64 [rows, columns], and what a reader of them should know.

    A task of values has one column, in its unit; a binary one has one, the probability of 1; one of
    C classes has C, their probabilities. NaN where nothing could be predicted.
    """

    predictions: np.ndarray
    notes: list[str]


def forest(
    *,
    fingerprints: Fingerprints,
    y: np.ndarray,
    train: np.ndarray,
    rows: np.ndarray,
    kinds: Sequence[Kind],
    seed: int,
    threads: int,
    trees: int | None = None,
    most: int = MOST,
) -> Baseline:
    """A random forest for each task, grown on the training molecules whose label is known, from how
    often each environment of a Morgan fingerprint occurs (counts, which predict better than bits).

    fingerprints and y float64 [M, T] (NaN: unknown; classes 0, 1, ...) are those of all molecules;
    train and rows number the ones to learn from and to predict. Classes weigh the same however rare
    they are, so probabilities rank but are not calibrated. Of more than `most` molecules (fewer for
    each of several tasks of values, whose trees take longer) a sample is used, in which rare
    classes are whole; a note says so. The same seed gives the same trees on any number of threads.
    RequestError where `kinds` and labels don't agree.
    """
    widths = _widths(y, kinds)
    if trees is None:
        trees = min(TREES, max(_FEWEST_TREES, _ALL_TREES // len(kinds)))
    most_values = min(most, max(_FEWEST, most // len(kinds)))
    notes = [
        f"random forest: {trees} trees on counts of Morgan fingerprints (radius {RADIUS}, "
        f"{BITS:,} bits)"
    ]
    rng = np.random.default_rng(seed)
    readable = fingerprints.counts > 0
    grown: list[Any] = []
    for task, kind in enumerate(kinds):
        known = train[readable[train] & ~np.isnan(y[train, task])]
        classes = kind != "regression"
        limit = most if classes else most_values
        used = known[_sample(y[known, task], most=limit, classes=classes, rng=rng)]
        if len(used) < len(known):
            notes.append(f"task {task}: a sample of {len(used):,} of {len(known):,} molecules")
        if not len(used):
            notes.append(f"task {task}: no training molecule has a known label")
            grown.append(None)
            continue
        model = _new(kind, trees=trees, seed=seed, threads=threads)
        x = dense_times(selected(fingerprints, rows=used))
        with _threads(threads):
            grown.append(model.fit(x, y[used, task].astype(np.int64 if classes else np.float64)))
    found = np.full((len(rows), sum(widths)), np.nan)
    for start in range(0, len(rows), _ROWS):
        some = np.arange(start, min(start + _ROWS, len(rows)))
        some = some[readable[rows[some]]]
        x = dense_times(selected(fingerprints, rows=rows[some]))
        at = 0
        for model, kind, width in zip(grown, kinds, widths, strict=True):
            if model is not None and len(some):
                with _threads(threads):
                    found[some, at : at + width] = _predict(model, x, kind=kind, width=width)
            at += width
    return Baseline(predictions=found, notes=notes)


def mean_predictor(
    *, y: np.ndarray, train: np.ndarray, rows: np.ndarray, kinds: Sequence[Kind]
) -> Baseline:
    """The mean of the known training labels for every row, or how frequent each class is in them;
    arguments as of `forest`.
    """
    notes, columns = ["mean predictor: the training labels' mean or frequency"], []
    for task, (kind, width) in enumerate(zip(kinds, _widths(y, kinds), strict=True)):
        known = y[train, task][~np.isnan(y[train, task])]
        if not len(known):
            notes.append(f"task {task}: no training molecule has a known label")
            columns += [np.nan] * width
        elif kind == "multiclass":
            columns += list(np.bincount(known.astype(np.int64), minlength=width) / len(known))
        else:
            columns.append(float(known.mean()))
    return Baseline(predictions=np.tile(np.array(columns), (len(rows), 1)), notes=notes)


def _widths(y: np.ndarray, kinds: Sequence[Kind]) -> list[int]:
    """Columns of predictions for each task."""
    if len(kinds) != y.shape[1]:
        raise RequestError(f"{y.shape[1]} columns of labels, and kinds of {len(kinds)}")
    widths = []
    for task, kind in enumerate(kinds):
        if kind == "regression":
            widths.append(1)
            continue
        known = y[:, task][~np.isnan(y[:, task])]
        strange = known[(known < 0) | (known != np.floor(known)) | (kind == "binary") & (known > 1)]
        if len(strange):
            classes = "0 and 1" if kind == "binary" else "0, 1, 2, ..."
            raise RequestError(
                f"task {task} is {kind}, and has a label {strange[0]:g}: classes are {classes}"
            )
        widths.append(1 if kind == "binary" else int(known.max(initial=0)) + 1)
    return widths


def _sample(
    labels: np.ndarray, *, most: int, classes: bool, rng: np.random.Generator
) -> np.ndarray:
    """The places of `most` of the labels, in order; of classes as equal numbers as there are."""
    if len(labels) <= most:
        return np.arange(len(labels))
    drawn = rng.permutation(len(labels))
    if classes:
        # By turns: the first drawn of each class, then the second of each ...
        turn = np.empty(len(labels), np.int64)
        for one in np.unique(labels):
            members = labels[drawn] == one
            turn[members] = np.arange(members.sum())
        drawn = drawn[np.argsort(turn, kind="stable")]
    kept: np.ndarray = np.sort(drawn[:most])
    return kept


def _new(kind: Kind, *, trees: int, seed: int, threads: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    shared = {"n_estimators": trees, "random_state": seed, "n_jobs": threads}
    if kind == "regression":
        # All features at each split, scikit-learn's default, take longer and predict no better.
        return RandomForestRegressor(max_features=1 / 3, **shared)
    return RandomForestClassifier(class_weight="balanced_subsample", **shared)


def _threads(threads: int) -> Any:
    """Trees release the GIL: threads, and never processes, which could fork."""
    import joblib

    return joblib.parallel_config(backend="threading", n_jobs=threads)


def _predict(model: Any, x: np.ndarray, *, kind: Kind, width: int) -> np.ndarray:
    """The columns [rows, width] of one task."""
    if kind == "regression":
        values: np.ndarray = model.predict(x)[:, None]
        return values
    # A class that the training labels lack has no column in the forest's answer.
    every = np.zeros((len(x), max(width, 2)))
    every[:, model.classes_] = model.predict_proba(x)
    return every[:, 1:] if kind == "binary" else every
