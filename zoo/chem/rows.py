"""One cell, structure or Mol made into a row."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from zoo.chem.conformers import Conformer
from zoo.chem.molecule import GIVEN, Molecule, formula, refused, shorten, with_geometry
from zoo.chem.rdkit_log import caught
from zoo.chem.worker import electron_warnings
from zoo.errors import DataError

Conform = Callable[[Any], Conformer] | None
"""What makes a geometry of a SMILES or Mol; None where rows are read for their bonds alone."""


def is_item(value: Any) -> bool:
    """Whether this is a molecule by itself."""
    return isinstance(value, str) or is_a(value, "ase", "Atoms") or is_a(value, "rdkit.Chem", "Mol")


def is_a(value: Any, module: str, name: str) -> bool:
    """isinstance without importing: whoever has such an object has imported its module."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def from_smiles(molecule: Molecule, cell: Any, *, column: str, conform: Conform) -> Molecule:
    if is_missing(cell) or not str(cell).strip():
        return refused(molecule, column=column, value="", reason="an empty cell")
    text = str(cell).strip()
    if conform is None:
        return replace(molecule, smiles=text, column=column, value=shorten(text))
    return _made(molecule, text, column=column, value=text, conform=conform)


def _made(
    molecule: Molecule,
    smiles_or_mol: Any,
    *,
    column: str,
    value: str,
    conform: Callable[[Any], Conformer],
    warnings: tuple[str, ...] = (),
) -> Molecule:
    try:
        made = conform(smiles_or_mol)
    except DataError as error:
        return refused(molecule, column=column, value=value, reason=str(error))
    return with_geometry(
        molecule,
        numbers=made.numbers,
        positions=made.positions,
        how=made.how,
        column=column,
        value=value,
        warnings=warnings + made.warnings,
    )


def from_atoms(
    molecule: Molecule, numbers: Any, positions: Any, periodic: bool, *, conform: Conform
) -> Molecule:
    if conform is None:
        reason = "a geometry says nothing of bonds: give a SMILES or an SDF file"
        return refused(molecule, column="geometry", value=formula(numbers), reason=reason)
    if periodic:
        reason = "a periodic structure (pbc): only molecules by themselves can be taken"
        value = formula(numbers)
        return refused(molecule, column="geometry", value=value, reason=reason)
    return with_geometry(
        molecule, numbers=numbers, positions=positions, how=GIVEN, column="geometry"
    )


def from_mol(molecule: Molecule, mol: Any, *, column: str, conform: Conform) -> Molecule:
    from rdkit import Chem

    if conform is None:
        with caught():
            smiles = str(Chem.MolToSmiles(Chem.RemoveHs(mol, sanitize=False)))
        return replace(molecule, smiles=smiles, column=column, value=shorten(smiles))
    with caught():
        full = Chem.AddHs(mol, addCoords=True)
    numbers = [atom.GetAtomicNum() for atom in full.GetAtoms()]
    name = str(mol.GetProp("_Name")) if mol.HasProp("_Name") else ""
    value = name or formula(numbers)
    drawing = _drawing(mol, full=full)
    if drawing:
        return _made(
            molecule, mol, column=column, value=value, conform=conform, warnings=(drawing,)
        )
    warnings = tuple(electron_warnings(full))
    added = full.GetNumAtoms() - mol.GetNumAtoms()
    if added:
        warnings += (f"{added} hydrogens were missing, and were added where RDKit puts them",)
    return with_geometry(
        molecule,
        numbers=numbers,
        positions=full.GetConformer().GetPositions().reshape(-1, 3),
        how=GIVEN,
        column=column,
        value=value,
        warnings=warnings,
    )


def _drawing(mol: Any, *, full: Any) -> str:
    """Why a Mol (`full`: with all its hydrogens) holds no geometry, or "" if it does."""
    if mol.GetNumConformers() == 0:
        return "the molecule holds no coordinates"
    conformer = mol.GetConformer()
    positions = conformer.GetPositions()
    if not conformer.Is3D():
        return "the coordinates are a drawing (2D), not a geometry"
    if len(positions) > 1 and not positions.any():
        return "all coordinates are zero"
    # Four neighbours never lie in one plane with their atom, whatever the block's flag says.
    if not positions[:, 2].any() and any(a.GetDegree() >= 4 for a in full.GetAtoms()):
        return "all atoms lie in one plane, a drawing (2D) rather than a geometry"
    return ""


def is_missing(cell: Any) -> bool:
    """None, NaN and pandas' NA and NaT: the cells that hold nothing."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float) and cell != cell
