"""What a model of molecular graphs asks of a SMILES, from one reading of it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from zoo.chem.featurise import Graphs, joined_graphs, read_all
from zoo.chem.fingerprints import Fingerprints, of_molecules
from zoo.chem.pool import map_chunks


@dataclass(frozen=True, kw_only=True)
class Described:
    """Some molecules, in the order they were given. `elements` are the symbols of each one's
    elements; `prints` is None where fingerprints weren't asked for.
    """

    graphs: Graphs
    elements: list[tuple[str, ...]]
    prints: Fingerprints | None


def described(smiles: Iterable[str], *, workers: int, fingerprints: bool) -> Iterator[Described]:
    """Describe SMILES, `pool.CHUNK` at a time, in order; with several `workers` as many processes.

    Nothing is raised for what RDKit can't read: `graphs.reasons` says why. Scaffolds and canonical
    SMILES, which take long, are left out.
    """
    function = functools.partial(described_of, fingerprints=fingerprints)
    return map_chunks(function, smiles, workers=workers)


def described_of(smiles: Sequence[str], *, fingerprints: bool) -> Described:
    """The same of some SMILES, in this process."""
    mols, reasons = read_all(smiles)
    none = [""] * len(mols)
    return Described(
        graphs=joined_graphs(mols, reasons=reasons, scaffolds=none, canonical=none),
        elements=[
            () if mol is None else tuple({atom.GetSymbol() for atom in mol.GetAtoms()})
            for mol in mols
        ],
        prints=of_molecules(mols) if fingerprints else None,
    )
