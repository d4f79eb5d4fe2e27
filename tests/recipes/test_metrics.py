"""Metrics of properties: OGB's evaluators, sklearn's definitions, unknown labels, bootstrap."""

from __future__ import annotations

import importlib.util
import math
import os

import numpy as np
import pytest

from zoo.errors import DataError, RequestError
from zoo.recipes.bootstrap import bootstrap_interval
from zoo.recipes.metrics import property_metrics, task_values

NAMES = ["a", "b", "c"]


def ranked() -> tuple[np.ndarray, np.ndarray]:
    """200 molecules, three binary tasks with unknown labels, predictions with ties."""
    i, t = np.arange(200)[:, None], np.arange(3)[None]
    score = ((37 * i + 11 * t * i + 5 * i * i) % 101) / 100
    y = (((13 * i + 7 * t + 3 * i * i) % 29) < 9 + 2 * t).astype(float)
    y[(i + 3 * t) % 11 == 0] = np.nan
    return y, np.round(0.6 * score + 0.3 * np.nan_to_num(y), 2)


OGBS = {
    # metric: the set whose evaluator has it, its name there, and what it gave (ogb 1.3.6)
    "roc_auc": ("ogbg-molhiv", "rocauc", 0.8922417331058644),
    "ap": ("ogbg-molpcba", "ap", 0.8430009763174432),
    "accuracy": ("ogbg-ppa", "acc", 0.7872725800902596),
    "rmse": ("ogbg-molesol", "rmse", 0.37403721142827445),
}


@pytest.mark.parametrize("metric", OGBS)
def test_they_are_what_ogbs_evaluators_gave(metric):
    y, p = ranked()
    kind = "regression" if metric == "rmse" else "binary"
    found, left_out = property_metrics(truth=y, predicted=p, kind=kind, names=NAMES)
    # Sums in another order: some roundings of float64.
    assert found[metric] == pytest.approx(OGBS[metric][2], rel=1e-13) and not left_out


@pytest.mark.parametrize("metric", OGBS)
def test_they_are_what_ogbs_evaluators_give(metric, monkeypatch):
    if importlib.util.find_spec("ogb") is None:
        pytest.skip("ogb is not installed")
    # OGB's package asks the network for its version when it is imported.
    monkeypatch.setitem(os.environ, "OUTDATED_IGNORE", "1")
    from ogb.graphproppred import Evaluator

    name, key, _ = OGBS[metric]
    evaluator = Evaluator(name)
    evaluator.num_tasks = 4
    rng = np.random.default_rng(3)
    for _ in range(5):
        y = (rng.random((150, 4)) < rng.random(4)).astype(float)
        y[:2] = [[0] * 4, [1] * 4]
        p = rng.random(y.shape).round(int(rng.integers(1, 4)))
        y[2:][rng.random(y[2:].shape) < 0.3] = np.nan
        kind = "regression" if metric == "rmse" else "binary"
        found, _ = property_metrics(truth=y, predicted=p, kind=kind, names=list("abcd"))
        given = (p > 0.5).astype(float) if metric == "accuracy" else p
        expected = evaluator.eval({"y_true": y, "y_pred": given})[key]
        assert found[metric] == pytest.approx(expected, rel=1e-13)


def test_other_metrics_are_sklearns():
    sklearn = pytest.importorskip("sklearn.metrics", reason="sklearn is not installed")
    y, p = ranked()
    found, _ = property_metrics(truth=y, predicted=p, kind="binary", names=NAMES)
    known = [~np.isnan(y[:, t]) for t in range(3)]
    f1 = [sklearn.f1_score(y[k, t], p[k, t] > 0.5) for t, k in enumerate(known)]
    assert found["f1"] == pytest.approx(np.mean(f1), rel=1e-13)
    for t, k in enumerate(known):
        one = sklearn.roc_auc_score(y[k, t], p[k, t])
        assert found[f"roc_auc/{NAMES[t]}"] == pytest.approx(one, rel=1e-13)
    z = np.where(np.isnan(y), np.nan, np.cumsum(np.nan_to_num(y), axis=0) / 10 - 5)
    found, _ = property_metrics(truth=z, predicted=p, kind="regression", names=NAMES)
    for t, k in enumerate(known):
        one = sklearn.r2_score(z[k, t], p[k, t])
        assert found[f"r2/{NAMES[t]}"] == pytest.approx(one, rel=1e-12)
        one = sklearn.mean_absolute_error(z[k, t], p[k, t])
        assert found[f"mae/{NAMES[t]}"] == pytest.approx(one, rel=1e-13)
    assert found["mae"] == pytest.approx(np.mean([found[f"mae/{n}"] for n in NAMES]))


def test_several_classes_are_sklearns():
    sklearn = pytest.importorskip("sklearn.metrics", reason="sklearn is not installed")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 300).astype(float)
    p = rng.random((300, 4)) + 0.4 * np.eye(4)[y.astype(int)]
    p /= p.sum(axis=1, keepdims=True)
    y[::7] = np.nan
    found, left_out = property_metrics(
        truth=y[:, None], predicted=p, kind="multiclass", names=["class"]
    )
    k = ~np.isnan(y)
    assert found == {
        "accuracy": pytest.approx(sklearn.accuracy_score(y[k], p[k].argmax(axis=1))),
        "f1": pytest.approx(sklearn.f1_score(y[k], p[k].argmax(axis=1), average="macro")),
        "roc_auc": pytest.approx(sklearn.roc_auc_score(y[k], p[k], multi_class="ovr")),
    }
    assert left_out == []


def test_a_class_that_is_not_there_counts_in_no_mean():
    y = np.array([[0.0], [0], [1], [1]])
    p = np.array([[0.8, 0.1, 0.1], [0.3, 0.6, 0.1], [0.1, 0.9, 0.0], [0.4, 0.5, 0.1]])
    found, _ = property_metrics(truth=y, predicted=p, kind="multiclass", names=["class"])
    assert found["accuracy"] == 0.75
    assert found["f1"] == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert found["roc_auc"] == pytest.approx((3 / 4 + 3 / 4) / 2)


def test_keys_of_one_task_and_of_several():
    y, p = ranked()
    one, _ = property_metrics(truth=y[:, :1], predicted=p[:, :1], kind="binary", names=["a"])
    assert list(one) == ["roc_auc", "ap", "accuracy", "f1"]
    many, _ = property_metrics(truth=y, predicted=p, kind="binary", names=NAMES)
    assert set(many) == {*one, "roc_auc/a", "roc_auc/b", "roc_auc/c"}
    one, _ = property_metrics(truth=y[:, :1], predicted=p[:, :1], kind="regression", names=["a"])
    assert list(one) == ["mae", "rmse", "r2"]


def test_tasks_that_cannot_be_counted_are_named_and_left_out():
    y, p = ranked()
    y[:, 1] = np.where(np.isnan(y[:, 1]), np.nan, 0)
    found, left_out = property_metrics(truth=y, predicted=p, kind="binary", names=NAMES)
    rest, none = property_metrics(
        truth=y[:, [0, 2]], predicted=p[:, [0, 2]], kind="binary", names=["a", "c"]
    )
    assert left_out == ["b"] and none == [] and found == rest
    y[:, 1] = np.nan
    found, left_out = property_metrics(truth=y, predicted=p, kind="regression", names=NAMES)
    rest, _ = property_metrics(
        truth=y[:, [0, 2]], predicted=p[:, [0, 2]], kind="regression", names=["a", "c"]
    )
    assert left_out == ["b"] and found == rest
    found, left_out = property_metrics(
        truth=y[:, 1:2], predicted=p[:, 1:2], kind="binary", names=["b"]
    )
    assert left_out == ["b"] and all(math.isnan(value) for value in found.values())


def test_labels_that_are_all_the_same_have_no_r2():
    y = np.full((20, 1), 0.1)
    p = np.linspace(0, 1, 20)[:, None]
    found, left_out = property_metrics(truth=y, predicted=p, kind="regression", names=["a"])
    assert math.isnan(found["r2"]) and found["mae"] > 0 and left_out == []


def test_large_offsets_do_not_spoil_r2():
    """Total energies: a spread of 1 on top of 1e5."""
    y = np.random.default_rng(0).normal(size=(100, 1))
    p = y + 0.1 * np.random.default_rng(1).normal(size=y.shape)
    small, _ = property_metrics(truth=y, predicted=p, kind="regression", names=["a"])
    large, _ = property_metrics(truth=y - 1e5, predicted=p - 1e5, kind="regression", names=["a"])
    assert large["r2"] == pytest.approx(small["r2"], rel=1e-9)


def test_whole_number_weights_are_repeats():
    y, p = ranked()
    weights = np.random.default_rng(0).integers(0, 4, (3, len(y)))
    several = (np.arange(200.0) % 3)[:, None]
    classes = np.random.default_rng(1).random((200, 3))
    for metric in ("mae", "rmse", "r2", "roc_auc", "ap", "accuracy", "f1"):
        both = [(y, p), (several, classes)] if metric in ("roc_auc", "accuracy", "f1") else [(y, p)]
        for truth, predicted in both:
            found = task_values(metric=metric, truth=truth, predicted=predicted, weights=weights)
            for row, w in zip(found, weights, strict=True):
                again = task_values(
                    metric=metric,
                    truth=np.repeat(truth, w, axis=0),
                    predicted=np.repeat(predicted, w, axis=0),
                    weights=np.ones((1, w.sum())),
                )
                assert row == pytest.approx(again[0], rel=1e-12)


def test_what_does_not_fit_is_refused():
    y, p = ranked()
    with pytest.raises(RequestError, match=r"labels \(200, 3\) and predictions \(200, 2\)"):
        property_metrics(truth=y, predicted=p[:, :2], kind="binary", names=NAMES)
    with pytest.raises(RequestError, match="binary metrics of 2 tasks"):
        property_metrics(truth=y, predicted=p, kind="binary", names=NAMES[:2])
    with pytest.raises(RequestError, match="multiclass metrics of 3 tasks"):
        property_metrics(truth=y, predicted=p, kind="multiclass", names=NAMES)
    with pytest.raises(RequestError, match=r"labels \(200, 3\) and predictions \(199, 3\)"):
        property_metrics(truth=y, predicted=p[:-1], kind="binary", names=NAMES)
    with pytest.raises(RequestError, match="unknown metric 'roc'; nearest: 'roc_auc'"):
        bootstrap_interval(metric="roc", truth=y, predicted=p, seed=0)
    with pytest.raises(RequestError, match="unknown metric of several classes 'ap'"):
        bootstrap_interval(metric="ap", truth=y[:, :1], predicted=p, seed=0)
    p[np.flatnonzero(~np.isnan(y[:, 1]))[0], 1] = np.inf
    with pytest.raises(DataError, match="1 predictions are not finite numbers"):
        property_metrics(truth=y, predicted=p, kind="binary", names=NAMES)


def test_a_prediction_without_a_label_may_be_anything():
    y, p = ranked()
    before = property_metrics(truth=y, predicted=p, kind="binary", names=NAMES)
    p[np.isnan(y)] = np.nan
    assert property_metrics(truth=y, predicted=p, kind="binary", names=NAMES) == before


# Bootstrap.


def test_the_interval_is_that_of_resampling_one_by_one():
    y, p = ranked()
    low, high = bootstrap_interval(metric="roc_auc", truth=y, predicted=p, seed=1)
    rng = np.random.default_rng(7)
    values = []
    for _ in range(1000):
        rows = rng.integers(0, len(y), len(y))
        values.append(
            property_metrics(truth=y[rows], predicted=p[rows], kind="binary", names=NAMES)[0]
        )
    plain = np.quantile([found["roc_auc"] for found in values], [0.025, 0.975])
    width = plain[1] - plain[0]
    # The ends of 1,000 repeats scatter by about 5 % of the width.
    assert [low, high] == pytest.approx(plain, abs=0.2 * width)
    found, _ = property_metrics(truth=y, predicted=p, kind="binary", names=NAMES)
    assert low < found["roc_auc"] < high


def test_the_mean_of_normal_errors_has_the_known_interval():
    error = np.random.default_rng(0).normal(size=(400, 1))
    low, high = bootstrap_interval(
        metric="mae", truth=np.zeros((400, 1)), predicted=error, seed=0, level=0.9
    )
    spread = np.abs(error).std() / 20
    assert high - low == pytest.approx(2 * 1.645 * spread, rel=0.1)
    assert (low + high) / 2 == pytest.approx(np.abs(error).mean(), abs=0.3 * spread)
    wider = bootstrap_interval(metric="mae", truth=np.zeros((400, 1)), predicted=error, seed=0)
    assert wider[0] < low and wider[1] > high


def test_a_seed_gives_the_same_interval_however_many_fit_at_once(monkeypatch):
    y, p = ranked()

    def interval(seed):
        return bootstrap_interval(metric="ap", truth=y, predicted=p, seed=seed, repeats=100)

    first = interval(0)
    assert interval(0) == first != interval(1)
    monkeypatch.setattr("zoo.recipes.bootstrap._AT_ONCE", 7 * len(y))
    assert interval(0) == first


def test_rare_classes_leave_repeats_out():
    y = np.zeros((30, 1))
    y[0] = 1
    p = np.linspace(0, 1, 30)[:, None]
    low, high = bootstrap_interval(metric="roc_auc", truth=y, predicted=p, seed=0)
    assert 0 <= low <= high <= 1
    nothing = bootstrap_interval(metric="roc_auc", truth=y * 0, predicted=p, seed=0, repeats=10)
    assert all(math.isnan(end) for end in nothing)
    for wrong in ({"repeats": 0}, {"level": 1.0}, {"level": 0.0}):
        with pytest.raises(RequestError, match="a bootstrap needs molecules"):
            bootstrap_interval(metric="roc_auc", truth=y, predicted=p, seed=0, **wrong)
