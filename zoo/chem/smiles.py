"""SMILES to RDKit's molecules, or why not."""

from __future__ import annotations

from typing import Any


def read_smiles(text: str) -> tuple[Any, str]:
    """The molecule of a SMILES and "", or None and the reason; nothing is raised."""
    from rdkit import Chem

    from zoo.chem.rdkit_log import caught

    if not text.strip():
        return None, "an empty SMILES"
    with caught() as error:
        mol: Any = Chem.MolFromSmiles(text)
    if mol is None:
        said = error()
        return None, "RDKit refuses this SMILES" + (f": {said}" if said else "")
    return (mol, "") if mol.GetNumAtoms() else (None, "a molecule without atoms")
