"""Molecules as graphs: OGB's categories, order, reasons, and the same from several processes."""

from __future__ import annotations

import importlib.util
import os

import numpy as np
import pytest
from rdkit import Chem

from zoo.chem import pool
from zoo.chem.featurise import featurise, graphs_of
from zoo.chem.graphs import graph_of

SMILES = [
    "CCO",
    "C",
    "c1ccccc1C(=O)[O-]",
    "N[C@@H](C)C(=O)O",
    "F/C=C/F",
    "[Na+].[Cl-]",
    "[2H]O",
    "CC#N",
    "[U]",
    "C1CC1[N+](C)(C)C",
    "[O]",
    "S(F)(F)(F)(F)(F)F",
]


@pytest.mark.parametrize("smiles", SMILES)
def test_categories_are_ogbs(smiles: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("ogb") is None:
        pytest.skip("ogb is not installed")
    # OGB's package asks the network for its version when it is imported.
    monkeypatch.setitem(os.environ, "OUTDATED_IGNORE", "1")
    features = pytest.importorskip("ogb.utils.features", reason="ogb's table of categories")
    mol = Chem.MolFromSmiles(smiles)
    graph = graph_of(mol)
    atoms = [features.atom_to_feature_vector(atom) for atom in mol.GetAtoms()]
    assert graph.atom.tolist() == [[int(v) for v in row] for row in atoms]
    bonds = {}
    for bond in mol.GetBonds():
        ends = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        kinds = [int(v) for v in features.bond_to_feature_vector(bond)]
        bonds[ends] = bonds[ends[::-1]] = kinds
    assert len(bonds) == len(graph.src)
    for j, i, kinds in zip(graph.src, graph.dst, graph.bond, strict=True):
        assert bonds[int(j), int(i)] == kinds.tolist()
    assert np.array_equal(np.lexsort((graph.src, graph.dst)), np.arange(len(graph.src)))


def test_bad_rows_keep_their_place_and_say_why() -> None:
    found = graphs_of(["CCO", "not a molecule", "", "C1CC", "c1ccccc1"])
    assert found.nodes.tolist() == [3, 0, 0, 0, 6] and found.edges.tolist() == [4, 0, 0, 0, 12]
    assert [bool(reason) for reason in found.reasons] == [False, True, True, True, False]
    assert "RDKit refuses" in found.reasons[1] and found.reasons[2] == "an empty SMILES"
    assert found.scaffolds == ["", "", "", "", "c1ccccc1"]
    assert found.atom.shape == (9, 9) and found.bond.shape == (16, 3)
    nothing = graphs_of(["", "x"])
    assert nothing.atom.shape == (0, 9) and nothing.src.shape == (0,)


def test_processes_give_the_same_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "CHUNK", 5)
    monkeypatch.setattr(pool, "FEW", 10)
    given = [*SMILES, "broken"] * 3
    read: list[int] = []

    def counted():
        for number, text in enumerate(given):
            read.append(number)
            yield text

    alone = list(featurise(given, workers=1))
    source = featurise(counted(), workers=2)
    first = next(source)
    assert len(read) <= 20  # the rest of a long input is not read yet
    both = [first, *source]
    assert len(both) == len(alone) == 8
    for a, b in zip(alone, both, strict=True):
        assert a.reasons == b.reasons and a.scaffolds == b.scaffolds
        for name in ("atom", "bond", "src", "dst", "nodes", "edges"):
            assert np.array_equal(getattr(a, name), getattr(b, name))
