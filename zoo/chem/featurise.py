"""SMILES to graphs of atoms and bonds, many at a time, in spawned processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zoo.chem.pool import map_chunks
from zoo.chem.smiles import read_smiles


@dataclass(frozen=True, kw_only=True)
class Graphs:
    """Some molecules' graphs end to end, in the order they were given.

    atom uint8 [N, 9], bond uint8 [E, 3], src and dst int32 [E] (within a molecule), nodes and edges
    int64 [molecules]. A molecule that can't be read has none of them and a reason; others have "".
    `canonical` is RDKit's SMILES of the molecule, the same however it was written.
    """

    atom: np.ndarray
    bond: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray
    reasons: list[str]
    scaffolds: list[str]
    canonical: list[str]


def featurise(smiles: Iterable[str], *, workers: int) -> Iterator[Graphs]:
    """The graphs of SMILES, `pool.CHUNK` at a time, in order; with several `workers` as many
    processes. What RDKit can't read is told in `reasons`; nothing is raised for it.
    """
    return map_chunks(graphs_of, smiles, workers=workers)


def graphs_of(smiles: Sequence[str]) -> Graphs:
    """The graphs of some SMILES, in this process."""
    from rdkit import Chem

    from zoo.chem.scaffolds import scaffold

    mols, reasons = read_all(smiles)
    return joined_graphs(
        mols,
        reasons=reasons,
        scaffolds=["" if mol is None else scaffold(mol) for mol in mols],
        canonical=["" if mol is None else Chem.MolToSmiles(mol) for mol in mols],
    )


def read_all(smiles: Sequence[str]) -> tuple[list[Any], list[str]]:
    """RDKit's molecules of some SMILES, None where there is none, and why."""
    found = [read_smiles(text) for text in smiles]
    return [mol for mol, _ in found], [reason for _, reason in found]


def joined_graphs(
    mols: Sequence[Any], *, reasons: list[str], scaffolds: list[str], canonical: list[str]
) -> Graphs:
    """The graphs of RDKit molecules (None: could not be read) end to end."""
    from zoo.chem.graphs import graph_of

    found = [None if mol is None else graph_of(mol) for mol in mols]
    good = [graph for graph in found if graph is not None]

    def joined(name: str, dtype: type, width: tuple[int, ...]) -> np.ndarray:
        parts = [getattr(graph, name) for graph in good]
        return np.concatenate([np.zeros((0, *width), dtype), *parts])

    return Graphs(
        atom=joined("atom", np.uint8, (9,)),
        bond=joined("bond", np.uint8, (3,)),
        src=joined("src", np.int32, ()),
        dst=joined("dst", np.int32, ()),
        nodes=np.array([0 if g is None else len(g.atom) for g in found], np.int64),
        edges=np.array([0 if g is None else len(g.src) for g in found], np.int64),
        reasons=reasons,
        scaffolds=scaffolds,
        canonical=canonical,
    )
