"""Made-up molecules as SMILES, with labels that their structure decides.

Ends, links and rings strung together: real valences, no real substances. Labels are made-up
functions of what the SMILES holds (carbons, rings, halogens ...) and noise, so that a model can
learn them; they are no chemistry.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from zoo.datasets.facts import Property
from zoo.errors import RequestError

# A ring begins with the atom that what stands before binds to; {} is what follows. R and S are the
# numbers of its ring bonds.
_RINGS = (
    "c%Rccc({})cc%R",
    "c%Rcccc({})c%R",
    "c%Rcc({})ccn%R",
    "c%Rsc({})cc%R",
    "C%RCCC({})CC%R",
    "C%RCCN({})CC%R",
    "C%RCC({})CO%R",
    "c%Rccc%Scc({})ccc%Sc%R",
    "[C@@H]%RCC[C@H]({})C%R",
)
_LINKS = ("", "C", "CC", "O", "CO", "NC", "C(=O)N", "C=C", "C(C)", "S", "/C=C/")
_STARTS = ("C", "CC", "O", "N", "Cl", "F", "CC(C)", "NC(=O)", "OC(=O)", "N#C", "C[C@H](O)", "Br")
_ENDS = (
    *("C", "CC", "CO", "C#N", "CCl", "C(F)(F)F", "C(=O)O", "C(=O)N", "CN(C)C", "CBr"),
    *("C[N+](=O)[O-]", "C(=O)[O-].[Na+]", "CS(=O)(=O)N"),
)
_DEEPEST = 3
_COUNTED = ("C", "c", "N", "O", "S", "F", "Cl", "Br", "=", "%")
_TYPICAL = np.array([5, 6, 1, 1.5, 0.3, 0.4, 0.2, 0.2, 0.7, 3])
_SPREAD = np.array([3, 6, 1, 1.2, 0.5, 1, 0.4, 0.4, 0.8, 2.5])

REFUSED = "C1CC(C)(C)(C)(C)C1"
"""Five bonds at a carbon: raw sets hold rows that RDKit refuses, and so do these."""


def molecule_smiles(*, seed: int, number: int) -> str:
    """One molecule's SMILES, which depends on the seed and its number alone."""
    rng = np.random.default_rng((seed, number))
    depth = int(rng.choice(_DEEPEST + 1, p=(0.15, 0.35, 0.35, 0.15)))
    text = str(rng.choice(_ENDS))
    for level in range(depth):
        ring = str(rng.choice(_RINGS)).format(str(rng.choice(_LINKS)) + text)
        text = ring.replace("%R", f"%{11 + level}").replace("%S", f"%{21 + level}")
    if depth == 0:
        text = "".join(rng.choice(_LINKS[1:5], 3)) + text
    return str(rng.choice(_STARTS)) + str(rng.choice(_LINKS[:3])) + text


def molecule_labels(*, smiles: list[str], task: str, seed: int, binary: bool) -> np.ndarray:
    """Labels [molecules] of a task: about standard normal, or 0 and 1 with three in ten a 1."""
    counts = np.array([[_count(text, what) for what in _COUNTED] for text in smiles], float)
    weights = np.random.default_rng(zlib.crc32(task.encode())).normal(size=len(_COUNTED))
    value: np.ndarray = (counts - _TYPICAL) / _SPREAD @ weights / np.linalg.norm(weights)
    noise = np.random.default_rng((seed, zlib.crc32(task.encode()))).normal(size=len(smiles))
    value = value + 0.2 * noise
    if binary:
        value = value > np.quantile(value, 0.7)
    return np.round(value.astype(float), 3)


def _count(text: str, what: str) -> int:
    return text.count(what) - (text.count("Cl") if what == "C" else 0)


def made_up_table(
    *, properties: Sequence[Property], seed: int, size: int, holes: bool
) -> tuple[list[str], np.ndarray]:
    """SMILES and labels [size, properties] of made-up molecules; with `holes`, a fifth of the
    labels is NaN, but none of the first two molecules'. RequestError below two molecules.
    """
    if size < 2:
        raise RequestError(f"a made-up set has at least 2 molecules, not {size}")
    texts = [molecule_smiles(seed=seed, number=number) for number in range(size)]
    columns = [
        molecule_labels(smiles=texts, task=p.name, seed=seed, binary=p.kind == "binary")
        for p in properties
    ]
    labels = np.stack(columns, axis=1)
    if holes:
        empty = np.random.default_rng((seed, len(columns))).random(labels.shape) < 0.2
        empty[:2] = False
        labels = np.where(empty, np.nan, labels)
    return texts, labels
