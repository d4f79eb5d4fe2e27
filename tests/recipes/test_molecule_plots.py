"""Figures of a model of molecules: written, not blank, nothing cut at the edges, whatever the data;
and what their words say.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from zoo.recipes import classification_plots, molecule_plots
from zoo.recipes.molecule_plots import Bar
from zoo.training import plot_style

RNG = np.random.default_rng(0)
NAN = float("nan")
TRUTH = RNG.normal(size=(300, 14))
GUESS = TRUTH + RNG.normal(0, 0.3, TRUTH.shape)
HALF = np.full_like(TRUTH, 0.5)
LABELS = np.where(RNG.random(TRUTH.shape) < 0.1, NAN, (TRUTH > 0.8).astype(float))
SCORES = 1 / (1 + np.exp(-3 * (GUESS - 0.8)))
NAMES = [
    "logS",
    "a column of a very long name that goes on and on, $ and ^ and all",
    *"abcdefghijkl",
]
BARS = [
    Bar(name="gin-esol, fine-tuned on a table", value=0.9, low=0.8, high=1.0),
    Bar(name="random forest", value=1.2, low=1.1, high=1.4),
    Bar(name="failed", value=NAN, low=NAN, high=NAN),
]


def parity(
    path: Path, tasks: int, *, rows: int = 300, half: float = 0.5, hole: bool = False
) -> Path:
    truth = np.tile(TRUTH, (10, 1))[:rows, :tasks]
    return molecule_plots.save_parity_intervals(
        path=path,
        truth=np.full_like(truth, NAN) if hole else truth,
        predicted=np.tile(GUESS, (10, 1))[:rows, :tasks],
        half_widths=np.full_like(truth, half),
        names=NAMES[:tasks],
        units=["log mol/L", *[""] * 13][:tasks],
        level=0.9,
    )


def classes(
    draw: Callable[..., Path], path: Path, tasks: int, *, labels: np.ndarray = LABELS
) -> Path:
    return draw(
        path=path,
        labels=labels[:, :tasks],
        predicted={"this model": SCORES[:, :tasks], "random forest": SCORES[::-1, :tasks]},
        names=NAMES[:tasks],
    )


CURVES = {
    "roc": classification_plots.save_roc,
    "precision and recall": classification_plots.save_precision_recall,
    "reliability": classification_plots.save_reliability,
}
FIGURES: dict[str, Callable[[Path], Path]] = {
    "parity": lambda path: parity(path, 1),
    "parity of several": lambda path: parity(path, 3),
    "parity of too many": lambda path: parity(path, 14),
    "dense parity": lambda path: parity(path, 1, rows=3000),
    "parity without intervals": lambda path: parity(path, 2, half=NAN),
    "parity of none": lambda path: parity(path, 1, hole=True),
    "comparison": lambda path: molecule_plots.save_comparison(
        path=path, bars=BARS, metric="rmse", unit="log mol/L"
    ),
    "comparison with chance": lambda path: molecule_plots.save_comparison(
        path=path,
        bars=[*BARS, Bar(name="worse", value=0.4, low=0.3, high=0.45)],
        metric="roc_auc",
        higher_is_better=True,
        start=0.5,
    ),
    "comparison of none": lambda path: molecule_plots.save_comparison(
        path=path, bars=BARS[2:], metric="rmse"
    ),
    "error by similarity": lambda path: molecule_plots.save_error_by_similarity(
        path=path, similarity=RNG.random(500), errors=GUESS[:, 0].repeat(2)[:500], unit="eV"
    ),
    "error by few similarities": lambda path: molecule_plots.save_error_by_similarity(
        path=path, similarity=[0.0, 1.0, NAN], errors=[0.1, -0.3, 1.0], unit="eV"
    ),
    "error by no similarity": lambda path: molecule_plots.save_error_by_similarity(
        path=path, similarity=[NAN], errors=[1.0], unit=""
    ),
}
for _name, _draw in CURVES.items():
    FIGURES[_name] = lambda path, draw=_draw: classes(draw, path, 1)  # type: ignore[misc]
    FIGURES[f"{_name} of 12"] = lambda path, draw=_draw: classes(draw, path, 12)  # type: ignore[misc]
    FIGURES[f"{_name} of too many"] = lambda path, draw=_draw: classes(draw, path, 14)  # type: ignore[misc]
    FIGURES[f"{_name} of one class"] = lambda path, draw=_draw: classes(  # type: ignore[misc]
        draw, path, 2, labels=LABELS * [0, NAN, *[1] * 12]
    )


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.filterwarnings("error")
def test_a_figure_is_drawn(name: str, tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    path = tmp_path / "plots" / "figure.png"
    assert FIGURES[name](path) == path
    image = imread(path)[..., :3]
    assert min(image.shape[:2]) >= 300 and path.stat().st_size < 1_000_000
    ink = (image < 0.9).any(axis=2)
    assert 0.005 < ink.mean() < 0.6
    edges = np.concatenate(
        [ink[:2].ravel(), ink[-2:].ravel(), ink[:, :2].ravel(), ink[:, -2:].ravel()]
    )
    assert not edges.any()
    assert dict(matplotlib.rcParams) == before


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved meanwhile."""
    kept: list[Figure] = []

    def keep(figure: Figure, path: Path) -> Path:
        kept.append(figure)
        return plot_style.save(figure, path)

    monkeypatch.setattr(molecule_plots, "save", keep)
    monkeypatch.setattr(classification_plots, "save", keep)
    return kept


def words(figure: Figure) -> str:
    """All text in a figure."""
    from matplotlib.text import Text

    return "\n".join(
        text.get_text() for text in figure.findobj(Text) if text.get_visible() and text.get_text()
    )


def test_parity_counts_what_its_intervals_hold(tmp_path: Path, drawn: list[Figure]) -> None:
    parity(tmp_path / "a.png", 1)
    share = 100 * np.mean(np.abs(TRUTH - GUESS)[:, 0] <= 0.5)
    assert f"{share:.0f} % within the 90 % interval" in words(drawn[0]) and "n = 300" in words(
        drawn[0]
    )
    missed = drawn[0].axes[0].collections[3].get_offsets()
    assert len(missed) == np.sum(np.abs(TRUTH - GUESS)[:, 0] > 0.5) > 0
    parity(tmp_path / "b.png", 2, half=NAN)
    assert "interval" not in words(drawn[1])


def test_panels_name_their_tasks_and_the_rest_is_counted(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    parity(tmp_path / "a.png", 14)
    for draw in CURVES.values():
        classes(draw, tmp_path / "b.png", 14)
    for figure in drawn:
        assert len([axes for axes in figure.axes if axes.axison]) == 12
        assert "the first 12 of 14 tasks" in words(figure)
        assert "a column of a very long name\nthat" in words(figure)
    parity(tmp_path / "c.png", 12)
    assert "tasks" not in words(drawn[-1])


def test_titles_give_scikit_learns_numbers_over_known_labels(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    from sklearn.metrics import average_precision_score, roc_auc_score

    from zoo.recipes.calibration import expected_calibration_error

    known = ~np.isnan(LABELS[:, 0])
    y, p, q = LABELS[known, 0], SCORES[known, 0], SCORES[::-1][known, 0]
    expected = {
        "roc": f"AUC {roc_auc_score(y, p):.3f} · {roc_auc_score(y, q):.3f}",
        "precision and recall": f"AP {average_precision_score(y, p):.3f}",
        "reliability": f"ECE {expected_calibration_error(probabilities=p, labels=y):.3f}",
    }
    for name, draw in CURVES.items():
        classes(draw, tmp_path / "a.png", 1)
        text = words(drawn[-1])
        assert expected[name] in text and "this model" in text and "random forest" in text
        assert f"{int(y.sum())} of {known.sum()} are of class 1" in text
    classes(CURVES["roc"], tmp_path / "a.png", 2, labels=LABELS * [0, NAN, *[1] * 12])
    assert "one class only" in words(drawn[-1]) and "no label is known" in words(drawn[-1])


def test_bars_begin_where_they_are_said_to(tmp_path: Path, drawn: list[Figure]) -> None:
    molecule_plots.save_comparison(
        path=tmp_path / "a.png", bars=BARS, metric="roc_auc", higher_is_better=True, start=0.5
    )
    axes = drawn[0].axes[0]
    spans = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]  # type: ignore[attr-defined]
    assert spans == [(0.5, pytest.approx(0.9)), (0.5, pytest.approx(1.2)), (0.5, 0.5)]
    text = words(drawn[0])
    assert "more is better; bars begin at chance, 0.5" in text and "none" in text
    assert [t.get_text() for t in axes.get_yticklabels()][1] == "random forest"
    low, high = axes.get_ylim()
    assert low > high  # the first model on top


def test_similarity_steps_hold_each_molecule_once(tmp_path: Path, drawn: list[Figure]) -> None:
    near = np.array([0.05] * 5 + [0.7] * 6 + [1.0] * 2, np.float32)
    errors = np.array([1.0] * 5 + [-3.0] * 6 + [9.0] * 2)
    molecule_plots.save_error_by_similarity(
        path=tmp_path / "a.png", similarity=near, errors=errors, unit="eV"
    )
    top, bottom = drawn[0].axes
    # Two molecules have points and no median.
    assert top.lines[0].get_xydata().tolist() == [[0.05, 1.0], [0.75, 3.0]]  # type: ignore[union-attr]
    bars = {round(b.get_x() + b.get_width() / 2, 3): b.get_height() for b in bottom.patches}  # type: ignore[attr-defined]
    assert bars == {0.05: 5, 0.75: 6, 0.95: 2}


def test_the_interval_of_a_frequency_is_wilsons() -> None:
    # 8 of 10: 0.490 to 0.943 in Brown, Cai and DasGupta's tables.
    low, high = classification_plots._wilson(np.array([0.8, 0.0]), np.array([10, 20]))
    assert np.allclose(low, [0.4902, 0.0], atol=1e-3) and np.allclose(
        high, [0.9433, 0.1611], atol=1e-3
    )
