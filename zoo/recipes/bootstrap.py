"""How far a metric of a split would move with other molecules of the same kind."""

from __future__ import annotations

import numpy as np

from zoo.errors import RequestError
from zoo.recipes.metrics import mean_of_tasks, task_values

_AT_ONCE = 1 << 21
"""Weights held at a time: 16 MB of them, and as much again a few times."""


def bootstrap_interval(
    *,
    metric: str,
    truth: np.ndarray,
    predicted: np.ndarray,
    seed: int,
    repeats: int = 1000,
    level: float = 0.95,
) -> tuple[float, float]:
    """The percentile interval of a metric over resampled molecules: (low, high).

    metric, truth [M, T] and predicted as in `metrics.task_values`. Each repeat draws M molecules
    with replacement, the same ones for all tasks, and takes the mean of the tasks that are defined
    for them; repeats without any are left out, and NaNs are returned if all are. The spread over
    trainings with other seeds is no part of it.
    """
    if repeats < 1 or not 0 < level < 1 or len(truth) == 0:
        raise RequestError(
            f"a bootstrap needs molecules ({len(truth)}), repeats ({repeats}) and a level between "
            f"0 and 1 ({level})"
        )
    draw = np.random.Generator(np.random.PCG64(seed))
    count, values, left = len(truth), [], repeats
    while left:
        some = min(left, max(1, _AT_ONCE // count))
        drawn = draw.integers(0, count, (some, count)) + count * np.arange(some)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=some * count).reshape(some, count)
        columns = task_values(
            metric=metric, truth=truth, predicted=predicted, weights=weights.astype(np.float64)
        )
        values.append(mean_of_tasks(columns))
        left -= some
    found = np.concatenate(values)
    found = found[~np.isnan(found)]
    if not len(found):
        return float("nan"), float("nan")
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
