"""Label scaling: what is subtracted from a property and divided out before a model learns it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from zoo.errors import DataError


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

        shares = np.zeros(256)
        for symbol, share in atom_refs.items():
            shares[atomic_numbers[symbol]] = share
        offset = np.add.reduceat(shares[z], node_ptr[:-1].astype(np.int64))
        return replace(
            self,
            offset=offset,
            scaled=((self.values - offset - mean) / std).astype(np.float32)[:, None],
            atom_refs=dict(atom_refs),
            mean=mean,
            std=std,
        )


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
    numbers = np.unique(z)
    of_graph = np.repeat(np.arange(len(values)), np.diff(node_ptr))
    seen = np.unique(z[np.isin(of_graph, known)])
    offset = np.zeros(len(values))
    refs: dict[str, float] = {}
    mean = 0.0
    if readout == "sum":
        counts = np.stack(
            [np.add.reduceat(z == number, node_ptr[:-1].astype(np.int64)) for number in numbers], 1
        ).astype(np.float64)
        shares, *_ = np.linalg.lstsq(counts[known], values[known], rcond=None)
        offset = counts @ shares
        refs = {chemical_symbols[n]: float(s) for n, s in zip(numbers, shares, strict=True)}
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
