"""Splits that share no scaffold."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from zoo.chem.featurise import graphs_of
from zoo.datasets.splits import scaffold_split
from zoo.errors import RequestError


def test_a_scaffold_split_keeps_scaffolds_together_largest_first() -> None:
    keys = ["a"] * 5 + ["b"] * 2 + ["c"] + ["d"] * 2 + ["e"] + ["f"]
    parts = scaffold_split(scaffolds=keys, shares={"train": 0.6, "valid": 0.2, "test": 0.2})
    # of the equal sets b and d the later comes first; 7.2 fit in training, 9.6 with validation
    assert parts["train"].tolist() == [0, 1, 2, 3, 4, 8, 9]
    assert parts["valid"].tolist() == [5, 6] and parts["test"].tolist() == [7, 10, 11]
    assert np.sort(np.concatenate(list(parts.values()))).tolist() == list(range(12))
    with pytest.raises(RequestError, match="leaves nothing for train and valid\nuse another"):
        scaffold_split(scaffolds=["a"] * 9, shares={"train": 0.8, "valid": 0.1, "test": 0.1})


@pytest.mark.data
@pytest.mark.parametrize("name", ["bace", "bbbp", "esol", "freesolv"])
def test_scaffold_splits_are_ogbs(name: str) -> None:
    roots = [Path(p) for p in os.environ.get("ZOO_DATA", "").split(os.pathsep) if p]
    found = [f for r in roots for f in r.rglob(f"ogbg_mol{name}/mapping/mol.csv.gz")]
    if not found:
        pytest.skip(f"ogbg-mol{name} is not in ZOO_DATA")
    folder = found[0].parents[1]
    scaffolds = graphs_of(pd.read_csv(found[0])["smiles"].tolist()).scaffolds
    parts = scaffold_split(scaffolds=scaffolds, shares={"train": 0.8, "valid": 0.1, "test": 0.1})
    for part, rows in parts.items():
        official = pd.read_csv(folder / "split" / "scaffold" / f"{part}.csv.gz", header=None)
        assert official[0].tolist() == rows.tolist()
