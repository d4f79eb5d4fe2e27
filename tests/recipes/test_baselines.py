"""What a model must beat: each task on its own labelled rows, of any kind, whatever is missing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from zoo.chem.fingerprints import Fingerprints, fingerprints_of
from zoo.errors import RequestError
from zoo.recipes.baselines import Kind, _sample, forest, mean_predictor

NAN = float("nan")
# Chains of 1 to 12 carbons that end in a hydroxyl, an amine, a chlorine or nothing.
SMILES = [f"{'C' * n}{end}" for n in range(1, 13) for end in ("O", "N", "Cl", "")] * 2
LENGTH = np.array([float(n) for n in range(1, 13) for _ in range(4)] * 2)
ENDS = np.array([0.0, 1.0, 2.0, 3.0] * 24)
TRAIN, ROWS = np.arange(0, 96, 2), np.arange(1, 96, 2)


@pytest.fixture(scope="module")
def found() -> Fingerprints:
    return fingerprints_of(SMILES)


def labels(*columns: np.ndarray) -> np.ndarray:
    return np.stack(columns, axis=1)


def test_each_kind_of_task_is_learnt(found: Fingerprints) -> None:
    # TRAIN has the ends O and Cl, ROWS the ends N and none: learn from rows of both.
    train, rows = np.arange(0, 72), np.arange(72, 96)
    holes = np.where(np.arange(96) % 5 == 0, NAN, (ENDS == 1).astype(float))
    y = labels(LENGTH, holes, ENDS)
    kinds: list[Kind] = ["regression", "binary", "multiclass"]
    made = forest(
        fingerprints=found, y=y, train=train, rows=rows, kinds=kinds, seed=0, threads=2, trees=30
    )
    p = made.predictions
    assert p.shape == (24, 1 + 1 + 4) and np.isfinite(p).all()
    # Counts tell long chains apart, which the same bits all have.
    assert np.abs(p[:, 0] - LENGTH[rows]).mean() < 1.0
    assert ((p[:, 1] > 0.5) == (ENDS[rows] == 1)).all()
    assert (p[:, 2:].argmax(1) == ENDS[rows]).all() and np.allclose(p[:, 2:].sum(1), 1)
    assert "30 trees on counts" in made.notes[0] and len(made.notes) == 1
    mean = mean_predictor(y=y, train=train, rows=rows, kinds=kinds).predictions
    expected = [LENGTH[:72].mean(), np.nanmean(holes[:72]), 0.25, 0.25, 0.25, 0.25]
    assert mean.shape == p.shape and np.allclose(mean, expected)


def test_the_seed_decides_and_the_threads_do_not(found: Fingerprints) -> None:
    y = labels(LENGTH + np.random.default_rng(0).normal(size=96))

    def made(seed: int, threads: int) -> np.ndarray:
        return forest(
            fingerprints=found,
            y=y,
            train=TRAIN,
            rows=ROWS,
            kinds=["regression"],
            seed=seed,
            threads=threads,
            trees=8,
        ).predictions

    # The same trees; their mean is rounded in the order in which threads are done.
    np.testing.assert_allclose(made(1, 1), made(1, 2), rtol=1e-12)
    assert not np.allclose(made(1, 1), made(2, 1))


def test_only_training_labels_are_seen(found: Fingerprints) -> None:
    y = labels(LENGTH)
    hidden = y.copy()
    hidden[ROWS] = 1e6
    one, other = (
        forest(
            fingerprints=found,
            y=values,
            train=TRAIN,
            rows=ROWS,
            kinds=["regression"],
            seed=0,
            threads=1,
            trees=5,
        ).predictions
        for values in (y, hidden)
    )
    assert np.array_equal(one, other)
    assert mean_predictor(y=hidden, train=TRAIN, rows=ROWS, kinds=["regression"]).predictions[
        0, 0
    ] == pytest.approx(LENGTH[TRAIN].mean())


def test_what_is_missing_is_said_or_left_open() -> None:
    found = fingerprints_of(["CCO", "broken", "CCN", "CCCl", "broken"])
    y = labels(np.array([NAN] * 5), np.array([1.0, 0.0, 1.0, 1.0, 1.0]), np.arange(5.0) % 2)
    kinds: list[Kind] = ["regression", "binary", "multiclass"]
    train, rows = np.array([0, 1, 2]), np.array([3, 4])
    made = forest(
        fingerprints=found, y=y, train=train, rows=rows, kinds=kinds, seed=0, threads=1, trees=3
    )
    # Of readable training molecules, one class each: it is certain; row 4 can't be read.
    assert np.isnan(made.predictions[:, 0]).all() and np.isnan(made.predictions[1]).all()
    assert made.predictions[0, 1:].tolist() == [1.0, 1.0, 0.0]
    assert made.notes[1:] == ["task 0: no training molecule has a known label"]
    mean = mean_predictor(y=y, train=train, rows=rows, kinds=kinds)
    assert np.isnan(mean.predictions[:, 0]).all() and mean.notes[1:] == made.notes[1:]
    assert np.allclose(mean.predictions[0, 1:], [2 / 3, 2 / 3, 1 / 3])


def test_a_sample_stands_for_very_many(found: Fingerprints) -> None:
    y = labels(LENGTH, (ENDS == 1).astype(float))
    made = forest(
        fingerprints=found,
        y=y,
        train=np.arange(96),
        rows=ROWS,
        kinds=["regression", "binary"],
        seed=0,
        threads=1,
        trees=3,
        most=30,
    )
    assert made.notes[1:] == [
        "task 0: a sample of 30 of 96 molecules",
        "task 1: a sample of 30 of 96 molecules",
    ]
    rng = np.random.default_rng(0)
    classes = np.repeat([0.0, 1.0, 2.0], [900, 8, 92])
    kept = _sample(classes, most=100, classes=True, rng=rng)
    assert np.bincount(classes[kept].astype(int)).tolist() == [46, 8, 46]
    assert len(set(kept)) == 100 and (np.diff(kept) > 0).all()
    values = _sample(classes, most=100, classes=False, rng=rng)
    assert len(set(values)) == 100 and np.bincount(classes[values].astype(int))[0] > 75


@pytest.mark.parametrize(
    ("kinds", "why"),
    [
        (["binary"], "has a label 2: classes are 0 and 1"),
        (["multiclass", "binary"], "1 columns of labels, and kinds of 2"),
    ],
)
def test_kinds_that_do_not_fit_are_refused(
    found: Fingerprints, kinds: list[Kind], why: str
) -> None:
    with pytest.raises(RequestError, match=why):
        mean_predictor(y=labels(ENDS), train=TRAIN, rows=ROWS, kinds=kinds)
    with pytest.raises(RequestError, match="has a label 0.5: classes are 0, 1, 2"):
        mean_predictor(y=labels(ENDS + 0.5), train=TRAIN, rows=ROWS, kinds=["multiclass"])


def test_no_process_is_started_and_scikit_learn_waits_to_be_needed() -> None:
    code = (
        "import sys, numpy as np\n"
        "from zoo.chem.fingerprints import fingerprints_of\n"
        "from zoo.recipes.baselines import forest\n"
        "assert 'sklearn' not in sys.modules\n"
        "import multiprocessing.process as p, psutil\n"
        "f = fingerprints_of(['CCO', 'CCN'] * 50)\n"
        "forest(fingerprints=f, y=np.arange(100.)[:, None], train=np.arange(100),\n"
        "       rows=np.arange(9), kinds=['regression'], seed=0, threads=2, trees=20)\n"
        "assert not psutil.Process().children(recursive=True)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
