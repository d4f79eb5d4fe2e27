"""Metrics of predicted properties, from the labels and predictions of a whole split.

As OGB's evaluators have them: a task's unknown labels (NaN) are left out, ROC-AUC and average
precision are those of the tasks that have both classes, and a metric of several tasks is their
mean. All take weights, so that a resampled split (`bootstrap`) is measured by the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from zoo.errors import DataError, RequestError, unknown

Kind = Literal["regression", "binary", "multiclass"]

METRICS: dict[str, tuple[str, ...]] = {
    "regression": ("mae", "rmse", "r2"),
    "binary": ("roc_auc", "ap", "accuracy", "f1"),
    "multiclass": ("accuracy", "f1", "roc_auc"),
}
_EACH_TASK = ("mae", "rmse", "r2", "roc_auc")
"""What is also given task by task."""


def property_metrics(
    *, truth: np.ndarray, predicted: np.ndarray, kind: Kind, names: Sequence[str]
) -> tuple[dict[str, float], list[str]]:
    """The metrics of `kind`, and the names of the tasks that could not be counted.

    truth [M, T], NaN where unknown; predicted [M, T], the value of a regression, the probability
    of a binary property; of a multiclass one (T = 1, labels 0 to C - 1) the [M, C] probabilities or
    scores. `names` are the T tasks'. Where T > 1 a metric is the mean of its tasks, and
    mae, rmse, r2 and roc_auc have a key `metric/task` for each. A binary task without both classes
    counts in none of the means, nor does one without labels; NaN stands where none counts. A
    multiclass roc_auc is the mean of each class against the rest, of the classes that are there.

    DataError for a prediction that isn't finite, RequestError for arrays that don't fit.
    """
    if len(names) != truth.shape[1] or (kind == "multiclass") != _multiclass(truth, predicted):
        raise RequestError(
            f"{kind} metrics of {len(names)} tasks: labels {truth.shape} and predictions "
            f"{predicted.shape} don't fit"
        )
    weights = np.ones((1, len(truth)))
    found: dict[str, float] = {}
    for metric in METRICS[kind]:
        values = task_values(metric=metric, truth=truth, predicted=predicted, weights=weights)[0]
        found[metric] = float(mean_of_tasks(values[None])[0])
        if len(names) > 1 and metric in _EACH_TASK:
            found |= {
                f"{metric}/{name}": float(value)
                for name, value in zip(names, values, strict=True)
                if not np.isnan(value)
            }
    left_out = _uncounted(truth, kind=kind)
    return found, [name for name, out in zip(names, left_out, strict=True) if out]


def task_values(
    *, metric: str, truth: np.ndarray, predicted: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """A metric of each task, under each row of weights: [R, T] for weights [R, M], NaN where it
    isn't defined. Of a multiclass roc_auc or f1 the columns are the classes.

    Arrays as in `property_metrics`; multiclass is what has other columns than the labels.
    """
    if truth.ndim != 2 or predicted.ndim != 2 or len(truth) != len(predicted):
        raise RequestError(f"labels {truth.shape} and predictions {predicted.shape} don't fit")
    if _multiclass(truth, predicted):
        return _multiclass_values(metric, truth, predicted, weights)
    if metric not in _OF_TASK:
        raise unknown(kind="metric", name=metric, known=_OF_TASK)
    if truth.shape != predicted.shape:
        raise RequestError(f"labels {truth.shape} and predictions {predicted.shape} don't fit")
    columns = []
    for task in range(truth.shape[1]):
        known = np.flatnonzero(~np.isnan(truth[:, task]))
        y, p = truth[known, task], predicted[known, task].astype(np.float64)
        _check_finite(p)
        with np.errstate(divide="ignore", invalid="ignore"):
            columns.append(_OF_TASK[metric](y, p, weights[:, known]))
    return np.stack(columns, axis=1)


def mean_of_tasks(values: np.ndarray) -> np.ndarray:
    """The mean of each row [R, T] without its NaNs; NaN where all are."""
    counted = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        mean: np.ndarray = np.where(counted, values, 0).sum(axis=1) / counted.sum(axis=1)
    return mean


def _uncounted(truth: np.ndarray, *, kind: Kind) -> np.ndarray:
    """Which tasks have no labels or, of a binary property, not both classes: bool [T]."""
    if kind == "binary":
        out: np.ndarray = ~((truth == 1).any(axis=0) & (truth == 0).any(axis=0))
    else:
        out = np.isnan(truth).all(axis=0)
    return out


def _multiclass(truth: np.ndarray, predicted: np.ndarray) -> bool:
    return bool(truth.shape[1] == 1 < predicted.shape[1])


def _check_finite(predicted: np.ndarray) -> None:
    if not np.isfinite(predicted).all():
        raise DataError(f"{(~np.isfinite(predicted)).sum()} predictions are not finite numbers")


# Of one task: labels y [m] and predictions p [m], weights w [R, m]; each gives [R].


def _mae(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> np.ndarray:
    value: np.ndarray = w @ np.abs(y - p) / w.sum(axis=1)
    return value


def _rmse(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> np.ndarray:
    value: np.ndarray = np.sqrt(w @ (y - p) ** 2 / w.sum(axis=1))
    return value


def _r2(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> np.ndarray:
    total = w.sum(axis=1)
    centred = y - y.mean() if len(y) else y  # or the squares' difference loses its digits
    spread = w @ centred**2 - (w @ centred) ** 2 / total
    spread[spread <= 1e-20 * (w @ y**2)] = np.nan  # all the same
    value: np.ndarray = 1 - w @ (y - p) ** 2 / spread
    return value


def _accuracy(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> np.ndarray:
    return _with_both(y, w, w @ ((p > 0.5) == (y == 1)) / w.sum(axis=1))


def _f1(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Of class 1; 0 where nothing is rightly taken for it."""
    return _with_both(y, w, _f1_of(y == 1, p > 0.5, w))


def _with_both(y: np.ndarray, w: np.ndarray, value: np.ndarray) -> np.ndarray:
    """NaN where the weights leave only one class."""
    return np.where((w @ (y == 1) > 0) & (w @ (y == 0) > 0), value, np.nan)


def _f1_of(is_one: np.ndarray, said: np.ndarray, w: np.ndarray) -> np.ndarray:
    """NaN where there is none of the class and none is said to be."""
    value: np.ndarray = 2 * (w @ (is_one & said)) / (w @ is_one + w @ said)
    return value


def _roc_auc(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The share of pairs of a 1 and a 0 in which the 1 is rated higher; ties count half."""
    ones, zeros = _down_the_ranking(y, p, w)
    above = np.pad(ones, ((0, 0), (1, 0)))
    pairs = np.diff(zeros, axis=1, prepend=0) * (above[:, 1:] + above[:, :-1]) / 2
    return _with_both(
        y, w, pairs.sum(axis=1) / (ones[:, -1:].sum(axis=1) * zeros[:, -1:].sum(axis=1))
    )


def _ap(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The sum over thresholds of the rise in recall times the precision there."""
    ones, zeros = _down_the_ranking(y, p, w)
    precision = np.divide(ones, ones + zeros, out=np.zeros_like(ones), where=ones + zeros > 0)
    rises = np.diff(ones, axis=1, prepend=0) * precision
    return _with_both(y, w, rises.sum(axis=1) / ones[:, -1:].sum(axis=1))


def _down_the_ranking(y: np.ndarray, p: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many 1s and 0s are rated at least as high as each different prediction, from the highest:
    two [R, different].
    """
    order = np.argsort(-p, kind="stable")
    last = np.append(np.diff(p[order]) != 0, True)[: len(p)]
    counts = w[:, order]
    ones = np.cumsum(counts * y[order], axis=1)[:, last]
    return ones, np.cumsum(counts, axis=1)[:, last] - ones


def _multiclass_values(
    metric: str, truth: np.ndarray, predicted: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    known = np.flatnonzero(~np.isnan(truth[:, 0]))
    y, p, w = truth[known, 0], predicted[known].astype(np.float64), weights[:, known]
    _check_finite(p)
    said = p.argmax(axis=1) if len(p) else np.zeros(0, np.int64)
    classes = range(predicted.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        if metric == "accuracy":
            return np.asarray(w @ (said == y) / w.sum(axis=1))[:, None]
        if metric == "f1":
            return np.stack([_f1_of(y == c, said == c, w) for c in classes], axis=1)
        if metric == "roc_auc":
            rest = [_roc_auc((y == c).astype(float), p[:, c], w) for c in classes]
            return np.stack(rest, axis=1)
    raise unknown(kind="metric of several classes", name=metric, known=METRICS["multiclass"])


_OF_TASK: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "mae": _mae,
    "rmse": _rmse,
    "r2": _r2,
    "roc_auc": _roc_auc,
    "ap": _ap,
    "accuracy": _accuracy,
    "f1": _f1,
}
