"""Label scaling: what is subtracted from a property and divided out before a model learns it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from zoo.errors import DataError

_NUMBERS = 128
"""Atomic numbers counted: room for all there are."""
_CHUNK = 20_000
"""Graphs whose elements are counted at a time."""


@dataclass(frozen=True, kw_only=True)
class Labels:
    """A property of every graph of a store: in its unit, and scaled for learning.

    value = sum of `atom_refs` over the atoms + mean + std * scaled. `atom_refs` maps an element's
    symbol to its share, in the property's unit; empty for quantities that aren't sums over atoms.
    """

    values: np.ndarray
    offset: np.ndarray
    scaled: np.ndarray
    atom_refs: dict[str, float]
    elements: list[str]
    mean: float
    std: float

    def unscale(self, scaled: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Scaled values of some graphs -> the property's unit (float64)."""
        unscaled: np.ndarray = self.offset[rows] + self.mean + self.std * scaled
        return unscaled

    def with_scaling(
        self,
        *,
        z: np.ndarray,
        node_ptr: np.ndarray,
        atom_refs: Mapping[str, float],
        mean: float,
        std: float,
    ) -> Labels:
        """The same values under a scaling that was fitted elsewhere."""
        from ase.data import atomic_numbers

        shares = np.zeros(_NUMBERS)
        for symbol, share in atom_refs.items():
            shares[atomic_numbers[symbol]] = share
        offset = np.empty(len(self.values))
        for rows, counts in _element_counts(node_ptr=node_ptr, z=z):
            offset[rows] = counts @ shares
        return replace(
            self,
            offset=offset,
            scaled=((self.values - offset - mean) / std).astype(np.float32)[:, None],
            atom_refs=dict(atom_refs),
            mean=mean,
            std=std,
        )


def _element_counts(*, node_ptr: np.ndarray, z: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Atoms of each atomic number, for some graphs at a time: rows, and float64 [rows, 128]."""
    graphs = len(node_ptr) - 1
    for begin in range(0, graphs, _CHUNK):
        rows = slice(begin, min(begin + _CHUNK, graphs))
        first, last = int(node_ptr[rows.start]), int(node_ptr[rows.stop])
        sizes = np.diff(node_ptr[rows.start : rows.stop + 1])
        cell = np.repeat(np.arange(len(sizes)) * _NUMBERS, sizes) + z[first:last]
        counts = np.bincount(cell, minlength=len(sizes) * _NUMBERS)
        yield rows, counts.reshape(len(sizes), _NUMBERS).astype(np.float64)


def fit_labels(
    *,
    values: np.ndarray,
    node_ptr: np.ndarray,
    z: np.ndarray,
    train: np.ndarray,
    readout: str,
) -> Labels:
    """Fit the scaling on the training graphs alone.

    A sum over atoms ("sum") has per-element shares taken out by least squares: an energy's total is
    dominated by them. A mean is centred. A dipole or spatial extent is only divided by its spread,
    since its zero has a meaning. `elements` are those of the training graphs with known labels.
    DataError when no training label is known, or a label is infinite.
    """
    from ase.data import chemical_symbols

    values = np.asarray(values, np.float64)
    known = train[~np.isnan(values[train])]
    if not len(known):
        raise DataError("no training molecule has a known label")
    endless = np.flatnonzero(np.isinf(values))
    if len(endless):
        shown = ", ".join(map(str, endless[:8])) + (" ..." if len(endless) > 8 else "")
        raise DataError(f"infinite labels: molecules {shown} of the data\nuse NaN for unknown ones")
    fitted = np.zeros(len(values), bool)
    fitted[known] = True
    # By the normal equations, a part of the graphs at a time: counts of ten million molecules take
    # gigabytes, and being integers they lose nothing to the squaring.
    square, right = np.zeros((_NUMBERS, _NUMBERS)), np.zeros(_NUMBERS)
    present = np.zeros(_NUMBERS, bool)
    for rows, counts in _element_counts(node_ptr=node_ptr, z=z):
        present |= counts.any(0)
        here = np.flatnonzero(present)
        used = counts[fitted[rows]][:, here]
        square[np.ix_(here, here)] += used.T @ used
        right[here] += used.T @ values[rows][fitted[rows]]
    seen = np.flatnonzero(square.diagonal())
    offset = np.zeros(len(values))
    refs: dict[str, float] = {}
    mean = 0.0
    if readout == "sum":
        shares = np.zeros(_NUMBERS)
        shares[seen], *_ = np.linalg.lstsq(square[np.ix_(seen, seen)], right[seen], rcond=None)
        for rows, counts in _element_counts(node_ptr=node_ptr, z=z):
            offset[rows] = counts @ shares
        refs = {chemical_symbols[n]: float(shares[n]) for n in np.flatnonzero(present)}
    elif readout == "mean":
        mean = float(values[known].mean())
    left = values - offset - mean
    std = float(left[known].std())
    # Labels that the above takes out whole leave rounding errors, and those are not to be learnt.
    if std <= 1e-9 * float(np.abs(values[known]).max()):
        std = 1.0
    return Labels(
        values=values,
        offset=offset,
        scaled=(left / std).astype(np.float32)[:, None],
        atom_refs=refs,
        elements=[chemical_symbols[n] for n in seen],
        mean=mean,
        std=std,
    )
