"""Morgan fingerprints: which environments of up to two bonds around an atom a molecule has."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zoo.chem.pool import map_chunks
from zoo.chem.smiles import read_smiles

BITS = 2048
RADIUS = 2

_ROWS = 4096  # made dense at a time, a byte a bit


@dataclass(frozen=True, kw_only=True)
class Fingerprints:
    """Some molecules' fingerprints, in the order they were given, by the bits that are on.

    bits: uint16 [total], ascending within a molecule, which owns bits[ptr[m] : ptr[m + 1]]
    times: uint8 [total], how often the molecule has what each stands for, counted up to 255
    ptr: int64 [molecules + 1]
    What can't be read has no bits; a molecule has one at least.
    """

    bits: np.ndarray
    times: np.ndarray
    ptr: np.ndarray

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @property
    def counts(self) -> np.ndarray:
        """How many bits of each molecule are on: int64 [molecules]."""
        counts: np.ndarray = np.diff(self.ptr)
        return counts


def fingerprints(smiles: Iterable[str], *, workers: int) -> Iterator[Fingerprints]:
    """The fingerprints of SMILES, `pool.CHUNK` at a time, in order; with several `workers` as many
    processes. Nothing is raised for what RDKit can't read: `read_smiles` gives its reason.
    """
    return map_chunks(fingerprints_of, smiles, workers=workers)


def fingerprints_of(smiles: Sequence[str]) -> Fingerprints:
    """The fingerprints of some SMILES, in this process."""
    return of_molecules([read_smiles(text)[0] for text in smiles])


def of_molecules(mols: Iterable[Any]) -> Fingerprints:
    """The fingerprints of RDKit molecules, or of None for what couldn't be read."""
    bits: list[int] = []
    times: list[int] = []
    ptr = [0]
    for mol in mols:
        if mol is not None:
            found = _generator().GetCountFingerprint(mol).GetNonzeroElements()
            bits += found.keys()
            times += found.values()
        ptr.append(len(bits))
    return Fingerprints(
        bits=np.array(bits, np.uint16),
        times=np.minimum(np.array(times, np.int64), 255).astype(np.uint8),
        ptr=np.array(ptr, np.int64),
    )


@functools.cache
def _generator() -> Any:
    from rdkit.Chem import rdFingerprintGenerator

    return rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS, fpSize=BITS)


def joined(parts: Iterable[Fingerprints]) -> Fingerprints:
    """The parts end to end."""
    held = list(parts)
    counts = [np.zeros(1, np.int64), *(part.counts for part in held)]
    return Fingerprints(
        bits=np.concatenate([np.zeros(0, np.uint16), *(part.bits for part in held)]),
        times=np.concatenate([np.zeros(0, np.uint8), *(part.times for part in held)]),
        ptr=np.cumsum(np.concatenate(counts)),
    )


def selected(fingerprints: Fingerprints, *, rows: np.ndarray) -> Fingerprints:
    """The molecules numbered `rows` (int [m]), in that order."""
    counts = fingerprints.counts[rows]
    ptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(counts, out=ptr[1:])
    # The place of each bit: where its molecule begins, and how far it is from there.
    at = np.arange(ptr[-1]) + np.repeat(fingerprints.ptr[:-1][rows] - ptr[:-1], counts)
    return Fingerprints(bits=fingerprints.bits[at], times=fingerprints.times[at], ptr=ptr)


def dense(fingerprints: Fingerprints) -> np.ndarray:
    """Eight bits a byte, the lowest first: uint8 [molecules, BITS / 8]."""
    packed = np.zeros((len(fingerprints), BITS // 8), np.uint8)
    for start in range(0, len(fingerprints), _ROWS):
        ptr = fingerprints.ptr[start : start + _ROWS + 1]
        on = np.zeros((len(ptr) - 1, BITS), np.bool_)
        on[_places(ptr), fingerprints.bits[ptr[0] : ptr[-1]]] = True
        packed[start : start + len(on)] = np.packbits(on, axis=1, bitorder="little")
    return packed


def dense_times(fingerprints: Fingerprints) -> np.ndarray:
    """How often each bit's environment occurs: float32 [molecules, BITS], a bit's numbers side by
    side (Fortran's order), in which trees read them.
    """
    times = np.zeros((BITS, len(fingerprints)), np.float32)
    times[fingerprints.bits, _places(fingerprints.ptr)] = fingerprints.times
    return times.T


def _places(ptr: np.ndarray) -> np.ndarray:
    """The molecule, from 0, of each bit."""
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
