"""The largest part of a salt or a mixture."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from zoo.chem.rdkit_log import caught

_ATOM = re.compile(r"\[\d*([A-Za-z*][a-z]?)[^\]]*\]|(Cl|Br|[BCNOPSFIbcnops*])")
_RING = re.compile(r"%\((\d+)\)|%(\d\d)|(\d)")


def largest_fragment(smiles: str) -> str:
    """The part of a SMILES with the most heavy atoms; of equals, the first.

    The parts are taken from the text as it is, without a name after it. Where a bond leads from one
    part to another ("C1.C1" is ethane) RDKit takes it apart; what it refuses comes back unchanged.
    """
    words = smiles.split(None, 1)
    if not words or "." not in words[0]:
        return smiles
    parts = words[0].split(".")
    if all(_closed(part) for part in parts):
        return max(parts, key=_heavy)
    from rdkit import Chem

    with caught():
        mol: Any = Chem.MolFromSmiles(words[0])
        if mol is None or mol.GetNumAtoms() == 0:
            return smiles
        pieces = Chem.GetMolFrags(mol, asMols=True)
    best = max(pieces, key=lambda piece: int(piece.GetNumHeavyAtoms()))
    return str(Chem.MolToSmiles(best))


def _closed(part: str) -> bool:
    """Whether rings and branches that are opened are closed, and the other way round."""
    bare = re.sub(r"\[[^\]]*\]", "*", part)
    rings = Counter(one or two or three for one, two, three in _RING.findall(bare))
    level = 0
    for sign in bare:
        level += (sign == "(") - (sign == ")")
        if level < 0:
            return False
    return level == 0 and part != "" and all(count % 2 == 0 for count in rings.values())


def _heavy(part: str) -> int:
    found = [inside or bare for inside, bare in _ATOM.findall(part)]
    return sum(symbol not in ("H", "D", "T") for symbol in found)
