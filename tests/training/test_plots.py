"""Figures: written, not blank, nothing cut at the edges, whatever the data."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread

from zoo.training import plots

RNG = np.random.default_rng(0)
TRUTH = RNG.normal(-76, 10, 100_000)
PREDICTED = TRUTH + RNG.laplace(0, 0.05, 100_000)
SIZES = RNG.integers(3, 30, 100_000)
NAN = float("nan")


def history(epochs: int) -> list[dict[str, float]]:
    return [
        {"epoch": epoch, "train/loss": 1 / epoch, "valid/mae": 30 / epoch**2}
        for epoch in range(1, epochs + 1)
    ]


FIGURES: dict[str, Callable[[Path], Path]] = {
    "curve": lambda path: plots.save_learning_curve(
        path=path, history=history(60), metric="valid/mae", unit="eV"
    ),
    "curve of one epoch": lambda path: plots.save_learning_curve(
        path=path, history=history(1), metric="valid/mae", unit="eV"
    ),
    "curve with gaps and no loss": lambda path: plots.save_learning_curve(
        path=path,
        history=[{"auc": 0.5}, {"auc": NAN}, {}, {"auc": 0.7}],
        metric="auc",
        unit="",
        higher_is_better=True,
    ),
    "curve of nothing finite": lambda path: plots.save_learning_curve(
        path=path, history=[{"mae": NAN}, {"mae": float("inf")}], metric="mae", unit="eV"
    ),
    "curve of nothing": lambda path: plots.save_learning_curve(
        path=path, history=[], metric="mae", unit="eV"
    ),
    "dense parity": lambda path: plots.save_parity(
        path=path, truth=TRUTH, predicted=PREDICTED, name="U0 (atomisation)", unit="eV"
    ),
    "sparse parity with unknowns": lambda path: plots.save_parity(
        path=path,
        truth=np.where(np.arange(50) % 5, TRUTH[:50], NAN).astype(np.float32)[:, None],
        predicted=PREDICTED[:50, None],
        name="cost [$] and 10^6_a",
        unit="$",
    ),
    "parity of one": lambda path: plots.save_parity(
        path=path, truth=[0.0], predicted=[0.0], name="mu", unit="Debye"
    ),
    "parity of none": lambda path: plots.save_parity(
        path=path, truth=[NAN], predicted=[1.0], name="mu", unit="Debye"
    ),
    "error by size": lambda path: plots.save_error_by_size(
        path=path, sizes=SIZES, errors=PREDICTED - TRUTH, unit="eV"
    ),
    "error of one size": lambda path: plots.save_error_by_size(
        path=path, sizes=[5, 5, 5], errors=[0.1, NAN, -0.3], unit="eV"
    ),
    "error of wide sizes": lambda path: plots.save_error_by_size(
        path=path, sizes=SIZES**3, errors=PREDICTED - TRUTH, unit=""
    ),
    "error of none": lambda path: plots.save_error_by_size(
        path=path, sizes=[], errors=[], unit="eV"
    ),
    "filling": lambda path: plots.save_batch_filling(
        path=path,
        nodes_filling=1 - RNG.exponential(0.005, 1000),
        edges_filling=RNG.uniform(0.9, 1, 1000),
        graphs=RNG.integers(90, 110, 1000),
    ),
    "filling of one pack": lambda path: plots.save_batch_filling(
        path=path, nodes_filling=[1.0], edges_filling=[0.0], graphs=[1]
    ),
    "filling of none": lambda path: plots.save_batch_filling(
        path=path, nodes_filling=[], edges_filling=[], graphs=[]
    ),
}


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.filterwarnings("error")
def test_a_figure_is_drawn(name: str, tmp_path: Path) -> None:
    path = tmp_path / "plots" / "figure.png"
    assert FIGURES[name](path) == path
    image = imread(path)[..., :3]
    assert min(image.shape[:2]) >= 500 and path.stat().st_size < 300_000
    ink = (image < 0.9).any(axis=2)
    assert 0.005 < ink.mean() < 0.6
    # A label that the layout has no room for runs over the edge.
    edges = np.concatenate(
        [ink[:2].ravel(), ink[-2:].ravel(), ink[:, :2].ravel(), ink[:, -2:].ravel()]
    )
    assert not edges.any()


def test_the_data_is_in_the_figure(tmp_path: Path) -> None:
    """A full figure has ink that the same figure of no data has not."""

    def ink(name: str) -> float:
        image = imread(FIGURES[name](tmp_path / "figure.png"))[..., :3]
        return float((image.max(axis=2) - image.min(axis=2) > 0.2).mean())

    for full, empty in (
        ("curve", "curve of nothing"),
        ("dense parity", "parity of none"),
        ("error by size", "error of none"),
        ("filling", "filling of none"),
    ):
        assert ink(full) > ink(empty) + 0.001, full


def test_the_corner_of_a_parity_plot_says_the_errors() -> None:
    x, y = np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.5, 2.0])
    lines = plots.parity_lines(x, y, unit="eV", left_out=1200)
    assert lines == ["MAE 0.1667 eV", "R² 0.87500", "n = 3", "1,200 without a label"]
    assert plots.parity_lines(x[:1], y[:1], unit="", left_out=0) == ["MAE 0", "n = 1"]


def test_bins_hold_each_error_once() -> None:
    size, error = np.array([3.0, 90.0, 3.0, 200.0, 4.0]), np.arange(5.0)
    centre, width, parts = plots._binned(size, error)
    assert width == 5 and centre.tolist() == [5.0, 90.0, 200.0]
    assert [part.tolist() for part in parts] == [[0.0, 2.0, 4.0], [1.0], [3.0]]


def test_the_users_matplotlib_is_left_alone(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    FIGURES["curve"](tmp_path / "figure.png")
    assert dict(matplotlib.rcParams) == before
    code = "import sys, zoo.training.plots; assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
