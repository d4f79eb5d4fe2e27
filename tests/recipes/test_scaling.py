"""Label scaling: what is taken out of a property before it is learnt, and put back after."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from zoo.errors import DataError
from zoo.recipes.scaling import Labels, fit_labels

SHARES = {1: -13.6, 6: -1030.0, 8: -2041.5}


def molecules(count: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """node_ptr and z of random molecules of H, C and O."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 12, count)
    z = rng.choice([1, 6, 8], sizes.sum()).astype(np.int32)
    return np.concatenate([[0], np.cumsum(sizes)]), z


def sums(node_ptr: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.array([sum(SHARES[n] for n in z[a:b]) for a, b in itertools.pairwise(node_ptr)])


def fit(values: np.ndarray, readout: str = "sum", train: np.ndarray | None = None) -> Labels:
    node_ptr, z = molecules(len(values))
    train = np.arange(len(values)) if train is None else train
    return fit_labels(values=values, node_ptr=node_ptr, z=z, train=train, readout=readout)


def test_a_sum_has_the_elements_shares_taken_out_by_least_squares() -> None:
    node_ptr, z = molecules()
    noise = np.random.default_rng(1).normal(size=40)
    labels = fit(sums(node_ptr, z) + noise)
    assert labels.atom_refs == pytest.approx({"H": -13.6, "C": -1030.0, "O": -2041.5}, abs=1.0)
    # What is left is orthogonal to every element's counts, and of unit spread.
    counts = np.stack([np.add.reduceat(z == n, node_ptr[:-1]) for n in SHARES], 1)
    left = labels.values - labels.offset
    assert np.abs(counts.T @ left).max() < 1e-6
    assert labels.scaled.dtype == np.float32 and labels.scaled.shape == (40, 1)
    assert labels.scaled.std() == pytest.approx(1.0) and labels.mean == 0.0


def test_unscaling_gives_back_the_values_to_float32s_share() -> None:
    node_ptr, z = molecules()
    values = sums(node_ptr, z) + np.random.default_rng(1).normal(size=40)
    for readout in ("sum", "mean", "dipole", "spatial_extent"):
        labels = fit(values, readout)
        rows = np.array([3, 1, 17])
        back = labels.unscale(labels.scaled[rows, 0].astype(np.float64), rows)
        assert back == pytest.approx(values[rows], abs=2e-7 * labels.std * 40)


def test_only_the_training_graphs_decide() -> None:
    values = np.random.default_rng(1).normal(size=40)
    train = np.arange(0, 40, 2)
    disturbed = values.copy()
    disturbed[1::2] += 1e6
    for readout in ("sum", "mean", "dipole"):
        ours, other = fit(values, readout, train), fit(disturbed, readout, train)
        assert (ours.mean, ours.std, ours.atom_refs) == (other.mean, other.std, other.atom_refs)


def test_a_mean_is_centred_and_what_has_a_zero_is_not() -> None:
    values = 5 + np.random.default_rng(1).normal(size=40)
    centred, dipole = fit(values, "mean"), fit(values, "dipole")
    assert centred.mean == pytest.approx(values.mean()) and not centred.atom_refs
    assert abs(centred.scaled.mean()) < 1e-6
    assert dipole.mean == 0.0 and not dipole.atom_refs and not dipole.offset.any()
    assert dipole.scaled[:, 0] == pytest.approx(values / values.std(), rel=1e-6)


def test_unknown_labels_stay_unknown_and_change_nothing() -> None:
    values = np.random.default_rng(1).normal(size=40)
    holes = values.copy()
    holes[[2, 5, 39]] = np.nan
    others = np.setdiff1d(np.arange(40), [2, 5, 39])
    for readout in ("sum", "mean", "spatial_extent"):
        labels, reference = fit(holes, readout), fit(values, readout, others)
        assert np.isnan(labels.scaled[[2, 5, 39]]).all() and np.isnan(labels.scaled).sum() == 3
        assert (labels.mean, labels.std) == (reference.mean, reference.std)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e4])
@pytest.mark.parametrize("readout", ["mean", "dipole"])
def test_a_constant_label_has_no_spread_to_divide_by(value: float, readout: str) -> None:
    labels = fit(np.full(40, value), readout)
    assert labels.std == 1.0 and np.isfinite(labels.scaled).all()
    expected = 0.0 if readout == "mean" else value
    assert labels.scaled[:, 0] == pytest.approx(expected, abs=1e-9)


def test_labels_that_are_sums_of_shares_leave_no_rounding_errors_to_learn() -> None:
    labels = fit(sums(*molecules()))
    assert labels.std == 1.0 and np.abs(labels.scaled).max() < 1e-6
    assert np.abs(fit(np.zeros(40)).scaled).max() == 0.0


def test_one_training_molecule_is_enough_to_stay_finite() -> None:
    values = np.random.default_rng(1).normal(size=40) - 1e4
    for readout in ("sum", "mean", "dipole"):
        labels = fit(values, readout, np.array([7]))
        assert labels.std == 1.0 and np.isfinite(labels.scaled).all()


def test_elements_are_those_that_training_saw() -> None:
    node_ptr, z = np.array([0, 2, 4, 5]), np.array([1, 1, 6, 1, 8])
    labels = fit_labels(
        values=np.array([1.0, 2.0, 3.0]),
        node_ptr=node_ptr,
        z=z,
        train=np.array([0, 1]),
        readout="mean",
    )
    assert labels.elements == ["H", "C"]


def test_no_known_or_an_infinite_label_is_an_error() -> None:
    with pytest.raises(DataError, match="no training molecule has a known label"):
        fit(np.full(40, np.nan))
    values = np.zeros(40)
    values[[3, 8]] = np.inf, -np.inf
    with pytest.raises(DataError, match="infinite labels: molecules 3, 8 "):
        fit(values)


def test_a_scaling_fitted_elsewhere_replaces_this_one() -> None:
    node_ptr, z = molecules()
    values = np.random.default_rng(1).normal(size=40)
    labels = fit(values)
    moved = labels.with_scaling(
        z=z, node_ptr=node_ptr, atom_refs={"H": 1.0, "O": -2.0}, mean=0.5, std=4.0
    )
    counts = [
        (z[a:b] == 1).sum() - 2.0 * (z[a:b] == 8).sum() for a, b in itertools.pairwise(node_ptr)
    ]
    assert moved.offset == pytest.approx(counts)
    assert moved.scaled[:, 0] == pytest.approx((values - counts - 0.5) / 4, rel=1e-5)
    rows = np.arange(40)
    assert moved.unscale(moved.scaled[:, 0].astype(float), rows) == pytest.approx(values, abs=1e-5)
    same = labels.with_scaling(
        z=z, node_ptr=node_ptr, atom_refs=labels.atom_refs, mean=labels.mean, std=labels.std
    )
    assert np.allclose(same.scaled, labels.scaled, atol=1e-6)
