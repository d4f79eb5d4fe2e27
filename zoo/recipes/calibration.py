"""How sure a prediction is, from the validation split: intervals around values, and probabilities
that hold what they say. Whatever is fitted is a few plain numbers, for the weight file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.9
BINS = 10
ENOUGH = 10
"""Labels of each class, at least, to fit probabilities to."""

_SLOPES = 0.05, 20.0  # of what is fitted to more than two classes

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A split-conformal interval of one property: prediction ± half width, which holds the truth in
    at least `level` of cases that are drawn as the validation molecules were.

    The half width is quantile * (std + floor) with an ensemble's standard deviation, in the
    property's unit as `floor` is, and the quantile itself where `floor` is None. quantile None:
    there is no interval, for the reason in `note`. rows: labels that it was fitted to.
    """

    level: float
    quantile: float | None
    floor: float | None
    rows: int
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """probability = sigmoid(slope * logit + intercept), or softmax(slope * logits) of more than two
    classes, where the slope is one over the temperature. Slope 1 and intercept 0 change nothing;
    `note` says why, where they had to do.
    """

    slope: float = 1.0
    intercept: float = 0.0
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """Bins of equal width that hold any prediction: mean probability, observed frequency, and how
    many; each [bins].
    """

    predicted: Floats
    observed: Floats
    rows: NDArray[np.int64]


def conformal_quantile(*, residuals: ArrayLike, level: float = LEVEL) -> float | None:
    """The ceil((n + 1) * level)-th smallest of n absolute residuals or scores; NaN is left out.

    None where n is too small for the level: no finite interval would keep the promise.
    """
    scores = np.abs(_flat(residuals))
    scores = np.sort(scores[~np.isnan(scores)])
    # Less a hair: (n + 1) * level is whole for many n, and rounding must not lift it over.
    place = math.ceil((len(scores) + 1) * level - 1e-9)
    return float(scores[max(place, 1) - 1]) if place <= len(scores) else None


def fit_interval(
    *, truth: ArrayLike, predicted: ArrayLike, std: ArrayLike | None = None, level: float = LEVEL
) -> Interval:
    """The interval of one property: truth [n], NaN where unknown, and predicted [n] on validation.

    With std [n], the standard deviation of an ensemble's members, intervals are wide where members
    disagree. A tenth of its median is added to it, so that members that agree by chance don't
    promise too much.
    """
    residuals = _flat(truth) - _flat(predicted)
    known = ~np.isnan(residuals)
    floor = None
    if std is not None:
        spread = _flat(std)
        middle = float(np.median(spread[known])) if known.any() else 0.0
        # Members that are all the same say nothing.
        if middle > 0:
            floor = 0.1 * middle
            residuals = residuals / (spread + floor)
    quantile = conformal_quantile(residuals=residuals, level=level)
    rows = int(known.sum())
    note = ""
    if quantile is None:
        needed = math.ceil(level / (1 - level) - 1e-9)
        note = f"no {level:.0%} interval: {rows} validation labels, and it takes {needed}"
    return Interval(level=level, quantile=quantile, floor=floor, rows=rows, note=note)


def half_widths(*, interval: Interval, rows: int, std: ArrayLike | None = None) -> Floats:
    """Half the width of each row's interval, in the property's unit: [rows]; NaN if there is none.

    An interval that was fitted with standard deviations needs those of these rows, std [rows].
    """
    if interval.quantile is None:
        return np.full(rows, np.nan)
    if interval.floor is None:
        return np.full(rows, interval.quantile)
    if std is None:
        raise ValueError(
            "the interval was fitted to an ensemble: its standard deviations are needed"
        )
    return interval.quantile * (_flat(std) + interval.floor)


def fit_calibration(*, logits: ArrayLike, labels: ArrayLike) -> Calibration:
    """Fit probabilities to the labels of one task on validation, NaN where unknown.

    logits [n] and labels 0 or 1 are fitted by Platt's scaling, with his smoothed targets; logits
    [n, C] and labels 0 to C - 1 by a temperature. Where labels are few, or logits rank no better
    than chance, nothing is changed, and the note says so.
    """
    z, y = np.asarray(logits, np.float64), _flat(labels)
    known = ~np.isnan(y) & np.isfinite(z.reshape(len(y), -1)).all(axis=1)
    z, own = z[known], y[known].astype(np.int64)
    counts = np.bincount(own, minlength=2 if z.ndim == 1 else z.shape[1])
    if z.ndim == 1 and counts.min() < ENOUGH:
        given = f"{counts[1]} of class 1 and {counts[0]} of class 0"
        return Calibration(
            note=f"not calibrated: validation has {given}, and it takes {ENOUGH} of each"
        )
    if z.ndim == 2 and (len(own) < ENOUGH * z.shape[1] or np.count_nonzero(counts) < 2):
        given = f"{len(own)} labels of {np.count_nonzero(counts)} classes"
        needed = f"{ENOUGH * z.shape[1]} of at least 2"
        return Calibration(note=f"not calibrated: validation has {given}, and it takes {needed}")
    return _platt(z, own, counts) if z.ndim == 1 else _temperature(z, own)


def _platt(z: Floats, y: NDArray[np.int64], counts: NDArray[np.int64]) -> Calibration:
    from sklearn.linear_model import LogisticRegression

    # Platt's targets stand for one more label of each class: certainty has to be earned. Each row
    # takes part as both classes, by its target's shares.
    target = np.where(y == 1, (counts[1] + 1) / (counts[1] + 2), 1 / (counts[0] + 2))
    scale = float(z.std())
    if scale == 0:
        return Calibration(note="not calibrated: all validation logits are the same")
    model = LogisticRegression(C=1e8, tol=1e-8, max_iter=1000)  # as good as without a penalty
    model.fit(
        np.concatenate([z, z])[:, None] / scale,
        np.repeat([1, 0], len(z)),
        sample_weight=np.concatenate([target, 1 - target]),
    )
    slope, intercept = float(model.coef_[0, 0]) / scale, float(model.intercept_[0])
    if slope <= 0:
        return Calibration(
            note="not calibrated: on validation the logits rank no better than chance"
        )
    return Calibration(slope=slope, intercept=intercept)


def _temperature(z: Floats, y: NDArray[np.int64]) -> Calibration:
    own = z[np.arange(len(y)), y]

    def gain(slope: float) -> float:
        """How fast the likelihood grows with the slope: falling, since it is concave."""
        return float((own - (_softmax(slope * z) * z).sum(axis=1)).mean())

    low, high = _SLOPES
    if gain(low) <= 0:
        return Calibration(
            note="not calibrated: on validation the logits rank no better than chance"
        )
    if gain(high) >= 0:
        return Calibration(
            slope=high, note="validation labels are all predicted: slope at its limit"
        )
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if gain(middle) > 0 else (low, middle)
    return Calibration(slope=math.sqrt(low * high))


def calibrated(*, logits: ArrayLike, calibration: Calibration) -> Floats:
    """Probabilities: of class 1 [n] for logits [n], of each class [n, C] for logits [n, C]."""
    z = calibration.slope * np.asarray(logits, np.float64)
    if z.ndim == 2:
        return _softmax(z)
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * (z + calibration.intercept)))


def _softmax(z: Floats) -> Floats:
    shares = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def reliability(*, probabilities: ArrayLike, labels: ArrayLike, bins: int = BINS) -> Reliability:
    """How frequent class 1 is among rows [n] of like probability; of more classes [n, C], how often
    the likeliest is right. Unknown labels (NaN) are left out.
    """
    p, y = np.asarray(probabilities, np.float64), _flat(labels)
    if p.ndim == 2:
        y = np.where(np.isnan(y), np.nan, p.argmax(axis=1) == y)
        p = p.max(axis=1)
    known = ~(np.isnan(y) | np.isnan(p))
    p, y = p[known], y[known]
    place = np.minimum((p * bins).astype(np.int64), bins - 1)
    rows = np.bincount(place, minlength=bins)
    held = rows > 0
    return Reliability(
        predicted=np.bincount(place, p, minlength=bins)[held] / rows[held],
        observed=np.bincount(place, y, minlength=bins)[held] / rows[held],
        rows=rows[held],
    )


def expected_calibration_error(
    *, probabilities: ArrayLike, labels: ArrayLike, bins: int = BINS
) -> float:
    """The mean distance of probability and frequency over the bins of `reliability`, weighed by
    their rows; NaN where no label is known.
    """
    found = reliability(probabilities=probabilities, labels=labels, bins=bins)
    if not len(found.rows):
        return math.nan
    return float(np.average(np.abs(found.predicted - found.observed), weights=found.rows))


def _flat(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64).reshape(-1)
