"""Morgan fingerprints: RDKit's, in the order given, whole or in parts, dense or not."""

from __future__ import annotations

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

from zoo.chem import fingerprints as made
from zoo.chem import pool
from zoo.chem.fingerprints import (
    BITS,
    Fingerprints,
    dense,
    dense_times,
    fingerprints,
    fingerprints_of,
    joined,
    selected,
)

SMILES = ["CCO", "CCCCCCCC", "no molecule", "c1ccccc1C(=O)[O-]", "", "N[C@@H](C)C(=O)O", "C"]


def same(a: Fingerprints, b: Fingerprints) -> bool:
    return all(np.array_equal(getattr(a, n), getattr(b, n)) for n in ("bits", "times", "ptr"))


def test_they_are_rdkits() -> None:
    found = fingerprints_of(SMILES)
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    bits = np.unpackbits(dense(found), axis=1, bitorder="little")
    times = dense_times(found)
    assert bits.shape == times.shape == (len(SMILES), BITS) and times.dtype == np.float32
    assert found.bits.dtype == np.uint16 and found.times.dtype == np.uint8
    for row, text in enumerate(SMILES):
        mol = Chem.MolFromSmiles(text) if text else None
        if mol is None:
            assert found.counts[row] == 0 and not bits[row].any() and not times[row].any()
            continue
        assert np.array_equal(bits[row], generator.GetFingerprintAsNumPy(mol))
        assert np.array_equal(times[row], generator.GetCountFingerprintAsNumPy(mol))
        own = found.bits[found.ptr[row] : found.ptr[row + 1]]
        assert (np.diff(own.astype(int)) > 0).all()
    assert times.max() > 3


def test_times_stop_at_what_a_byte_holds() -> None:
    times = fingerprints_of(["C" * 400]).times
    assert times.max() == 255


def test_many_rows_are_made_dense_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = fingerprints_of(SMILES)
    whole = dense(found)
    monkeypatch.setattr(made, "_ROWS", 2)
    assert np.array_equal(dense(found), whole)


def test_parts_joined_and_rows_selected() -> None:
    found = fingerprints_of(SMILES)
    parts = [fingerprints_of(SMILES[:3]), fingerprints_of([]), fingerprints_of(SMILES[3:])]
    assert same(joined(parts), found)
    nothing = joined([])
    assert len(nothing) == 0 and len(nothing.bits) == 0 and dense(nothing).shape == (0, BITS // 8)
    rows = np.array([5, 0, 2, 5])
    assert same(selected(found, rows=rows), fingerprints_of([SMILES[row] for row in rows]))
    assert len(selected(found, rows=rows[:0])) == 0


def test_processes_give_the_same_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "CHUNK", 5)
    monkeypatch.setattr(pool, "FEW", 10)
    given = [f"{text}{'C' * n}" if text == "C" else text for n in range(3) for text in SMILES]
    assert same(joined(fingerprints(given, workers=2)), fingerprints_of(given))
