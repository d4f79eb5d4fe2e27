"""Bemis-Murcko scaffolds: what of a molecule is rings and the chains between them."""

from __future__ import annotations

from typing import Any


def scaffold(mol: Any) -> str:
    """The scaffold's SMILES with its chirality; "" of a molecule without rings."""
    from rdkit.Chem.Scaffolds import MurckoScaffold

    made: Any = MurckoScaffold  # has no types
    return str(made.MurckoScaffoldSmiles(mol=mol, includeChirality=True))
