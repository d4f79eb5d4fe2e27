"""Molecules as graphs of atoms and bonds in the categories that OGB defined (Hu et al., NeurIPS
2020), from RDKit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from rdkit import Chem


@dataclass(frozen=True, kw_only=True)
class MolecularGraph:
    """atom uint8 [n, 9] and bond uint8 [e, 3] are categories; src and dst int32 [e] hold each bond
    both ways, sorted by destination, then source.
    """

    atom: np.ndarray
    bond: np.ndarray
    src: np.ndarray
    dst: np.ndarray


def _places(values: Any, names: list[str]) -> dict[Any, int]:
    return {values.names[name]: place for place, name in enumerate(names)}


_CHIRALITY = _places(
    Chem.ChiralType,
    ["CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER"],
)
_HYBRIDISATION = _places(Chem.HybridizationType, ["SP", "SP2", "SP3", "SP3D", "SP3D2"])
_BOND = _places(Chem.BondType, ["SINGLE", "DOUBLE", "TRIPLE", "AROMATIC"])
_STEREO = _places(
    Chem.BondStereo,
    ["STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY"],
)
# What has no category of its own is in the last one of its kind.
_OTHER_CHIRALITY, _OTHER_HYBRIDISATION, _OTHER_BOND, _OTHER_STEREO = 4, 5, 4, 5


def graph_of(mol: Chem.Mol) -> MolecularGraph:
    """The graph of an RDKit molecule as it is: hydrogens count where they are atoms of it."""
    atoms = [
        (
            number - 1 if 1 <= (number := a.GetAtomicNum()) <= 118 else 118,
            _CHIRALITY.get(a.GetChiralTag(), _OTHER_CHIRALITY),
            min(a.GetTotalDegree(), 11),
            charge + 5 if -5 <= (charge := a.GetFormalCharge()) <= 5 else 11,
            min(a.GetTotalNumHs(), 9),
            min(a.GetNumRadicalElectrons(), 5),
            _HYBRIDISATION.get(a.GetHybridization(), _OTHER_HYBRIDISATION),
            a.GetIsAromatic(),
            a.IsInRing(),
        )
        for a in mol.GetAtoms()
    ]
    bonds = [
        (
            b.GetBeginAtomIdx(),
            b.GetEndAtomIdx(),
            _BOND.get(b.GetBondType(), _OTHER_BOND),
            _STEREO.get(b.GetStereo(), _OTHER_STEREO),
            b.GetIsConjugated(),
        )
        for b in mol.GetBonds()
    ]
    table = np.array(bonds, np.int32).reshape(-1, 5)
    src, dst = (
        np.concatenate([table[:, 0], table[:, 1]]),
        np.concatenate([table[:, 1], table[:, 0]]),
    )
    order = np.lexsort((src, dst))
    return MolecularGraph(
        atom=np.array(atoms, np.uint8).reshape(-1, 9),
        bond=np.concatenate([table[:, 2:]] * 2).astype(np.uint8)[order],
        src=src[order],
        dst=dst[order],
    )
