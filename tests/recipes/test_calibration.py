"""Intervals hold what they promise, and probabilities what they say; too little data is said."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from zoo.recipes.calibration import (
    Calibration,
    Interval,
    calibrated,
    conformal_quantile,
    expected_calibration_error,
    fit_calibration,
    fit_interval,
    half_widths,
    reliability,
)

NAN = float("nan")


def test_the_quantile_is_the_one_that_conformal_prediction_wants() -> None:
    residuals = np.random.default_rng(0).permutation(np.arange(1.0, 100.0))
    signs = np.where(np.arange(99) % 2, -1, 1)
    assert conformal_quantile(residuals=residuals * signs, level=0.9) == 90.0  # ceil(100 * 0.9)
    assert conformal_quantile(residuals=[*residuals, NAN, NAN], level=0.9) == 90.0
    assert conformal_quantile(residuals=[*residuals, 100.0], level=0.9) == 91.0  # ceil(90.9)
    # Nine labels are the fewest that reach 90 %: the largest of them.
    assert conformal_quantile(residuals=np.arange(9.0), level=0.9) == 8.0
    assert conformal_quantile(residuals=np.arange(8.0), level=0.9) is None
    assert conformal_quantile(residuals=[NAN], level=0.9) is None
    # A whole (n + 1) * level that rounding lifts over: 100 * 0.55 > 55.
    assert 100 * 0.55 > 55 and conformal_quantile(residuals=residuals, level=0.55) == 55.0


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    held = []
    for _ in range(400):
        truth = rng.standard_t(3, 60)
        fitted = fit_interval(truth=truth[:40], predicted=np.zeros(40), level=0.8)
        held.append(np.abs(truth[40:]) <= half_widths(interval=fitted, rows=20))
    # 0.8 to 0.8 + 1 / 41 is what theory gives; 8,000 draws in 400 groups have a spread of 0.004.
    assert 0.788 < np.mean(held) < 0.84


def test_intervals_follow_the_members_that_disagree() -> None:
    rng = np.random.default_rng(0)
    std = rng.uniform(0.1, 2, 4000)
    truth = rng.normal(0, std)
    fitted = fit_interval(truth=truth[:2000], predicted=np.zeros(2000), std=std[:2000], level=0.9)
    half = half_widths(interval=fitted, rows=2000, std=std[2000:])
    held = np.abs(truth[2000:]) <= half
    narrow = std[2000:] < 0.5
    assert fitted.floor == pytest.approx(0.1 * np.median(std[:2000]))
    assert half[narrow].mean() < 0.4 * half[~narrow].mean()
    # One width for all would hold 100 % of the narrow ones and some 85 % of the others.
    assert abs(held[~narrow].mean() - 0.9) < 0.03 and held[narrow].mean() < 0.99
    with pytest.raises(ValueError, match="ensemble"):
        half_widths(interval=fitted, rows=2000)


def test_what_cannot_be_fitted_is_said() -> None:
    few = fit_interval(truth=[1.0, NAN, 2.0], predicted=[1.0, 1.0, 1.0], level=0.9)
    assert few.quantile is None and few.rows == 2
    assert few.note == "no 90% interval: 2 validation labels, and it takes 9"
    assert np.isnan(half_widths(interval=few, rows=3)).all()
    same = fit_interval(truth=np.arange(30.0), predicted=np.zeros(30), std=np.zeros(30))
    assert same.floor is None and same.quantile == 27.0  # members that say nothing: ceil(27.9) = 28


def labelled(rows: int, slope: float, intercept: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    logits = rng.normal(-1, 3, rows)
    truth = rng.random(rows) < 1 / (1 + np.exp(-(slope * logits + intercept)))
    return logits, truth.astype(float)


def test_platts_scaling_finds_how_labels_were_drawn() -> None:
    logits, labels = labelled(40_000, 0.4, -0.7)
    holes = labels.copy()
    holes[::3] = NAN
    fitted = fit_calibration(logits=logits, labels=holes)
    # Standard errors of such a fit are about 0.01 and 0.02.
    assert abs(fitted.slope - 0.4) < 0.03 and abs(fitted.intercept + 0.7) < 0.05
    assert fitted.note == ""
    before = calibrated(logits=logits, calibration=Calibration())
    after = calibrated(logits=logits, calibration=fitted)
    assert np.allclose(before, 1 / (1 + np.exp(-logits)))
    error = [expected_calibration_error(probabilities=p, labels=labels) for p in (before, after)]
    assert error[1] < 0.01 < 0.1 < error[0]


def test_labels_that_are_told_apart_do_not_make_it_certain() -> None:
    logits = np.concatenate([np.linspace(-3, -1, 20), np.linspace(1, 3, 20)])
    fitted = fit_calibration(logits=logits, labels=np.repeat([0.0, 1.0], 20))
    # Platt's targets are 21/22 and 1/22.
    assert 0.9 < calibrated(logits=[2.0], calibration=fitted)[0] < 0.99


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (np.ones(100), "0 of class 0"),
        (np.full(100, NAN), "0 of class 1 and 0 of class 0"),
        (np.repeat([0.0, 1.0], [95, 5]), "5 of class 1 and 95 of class 0"),
        (np.repeat([1.0, 0.0], 50), "no better than chance"),  # low logits for class 1
    ],
)
def test_probabilities_stay_as_they_are_where_labels_do_not_suffice(
    labels: np.ndarray, why: str
) -> None:
    fitted = fit_calibration(logits=np.linspace(-3, 3, 100), labels=labels)
    assert (fitted.slope, fitted.intercept) == (1.0, 0.0) and why in fitted.note
    flat = fit_calibration(logits=np.zeros(100), labels=np.repeat([0.0, 1.0], 50))
    assert flat.slope == 1.0 and "the same" in flat.note


def test_a_temperature_for_several_classes() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (20_000, 4))
    shares = np.exp(0.5 * logits)
    shares /= shares.sum(1, keepdims=True)
    labels = (rng.random((20_000, 1)) > shares.cumsum(1)).sum(1).astype(float)
    labels[:50] = NAN
    fitted = fit_calibration(logits=logits, labels=labels)
    assert abs(fitted.slope - 0.5) < 0.02 and fitted.intercept == 0.0 and fitted.note == ""
    p = calibrated(logits=logits, calibration=fitted)
    assert np.allclose(p, shares, atol=0.02) and np.allclose(p.sum(1), 1)
    assert expected_calibration_error(probabilities=p, labels=labels) < 0.02
    backwards = fit_calibration(logits=-logits, labels=labels)
    assert backwards.slope == 1.0 and "chance" in backwards.note
    few = fit_calibration(logits=logits[:60], labels=labels[:60])
    assert few.slope == 1.0 and "10 labels" in few.note and "40 of at least 2" in few.note
    sure = fit_calibration(logits=10 * np.eye(4)[np.arange(80) % 4], labels=np.arange(80.0) % 4)
    assert sure.slope == 20.0 and "limit" in sure.note


def test_reliability_counts_each_known_row_once() -> None:
    p = [0.0, 0.05, 0.31, 0.39, 1.0, 0.5, NAN]
    y = [0.0, 1.0, 1.0, 1.0, 1.0, NAN, 1.0]
    found = reliability(probabilities=p, labels=y)
    assert found.rows.tolist() == [2, 2, 1]
    assert np.allclose(found.predicted, [0.025, 0.35, 1.0])
    assert np.allclose(found.observed, [0.5, 1.0, 1.0])
    error = expected_calibration_error(probabilities=p, labels=y)
    assert error == pytest.approx((2 * 0.475 + 2 * 0.65) / 5)
    assert np.isnan(expected_calibration_error(probabilities=[0.5], labels=[NAN]))


def test_what_is_fitted_goes_through_json() -> None:
    logits, labels = labelled(200, 1.0, 0.0)
    calibration = fit_calibration(logits=logits, labels=labels)
    interval = fit_interval(truth=logits, predicted=labels, std=np.abs(logits))
    for kind, fitted in ((Calibration, calibration), (Interval, interval)):
        assert kind(**json.loads(json.dumps(asdict(fitted), allow_nan=False))) == fitted
