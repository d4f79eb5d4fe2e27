"""Stores written straight to disk: what the ordinary reading code makes of them."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

from zoo.batching.store import open_store
from zoo.bench import made_up
from zoo.bench.made_up import write_molecules
from zoo.errors import RequestError, UnavailableError


def test_it_opens_as_a_store_of_molecules(tmp_path):
    folder = write_molecules(folder=tmp_path / "store", molecules=5000, chunk=700)
    store = open_store(folder=folder)
    assert len(store) == 5000
    sizes = store.nodes_per_graph()
    assert abs(sizes.mean() - 18) < 0.2 and sizes.min() >= 3 and sizes.max() <= 29
    assert set(np.unique(store.node["z"])) == {1, 6, 7, 8, 9}
    pairs = sizes.astype(int) * (sizes - 1)
    assert 0.98 < store.edges_per_graph(cutoff=10.0).sum() / pairs.sum() <= 1
    atoms = np.bincount(store.node["z"], minlength=10)
    total = sum(atoms[z] * energy for z, energy in made_up._ENERGIES.items())
    assert store.graph["y"][:, 0].sum() == pytest.approx(total, abs=5 * 5000**0.5)


def test_the_same_seed_writes_the_same_store_and_another_another(tmp_path):
    first, same, other = (
        open_store(folder=write_molecules(folder=tmp_path / name, molecules=50, seed=seed))
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert np.array_equal(first.node["pos"], same.node["pos"])
    assert not np.array_equal(first.node["pos"][:100], other.node["pos"][:100])


def test_too_little_room_is_told_before_anything_is_written(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(made_up.shutil, "disk_usage", lambda path: usage(10**9, 10**9, 10_000))
    with pytest.raises(UnavailableError, match="GB free; 1,000 molecules take"):
        write_molecules(folder=tmp_path / "store", molecules=1000)
    assert list((tmp_path / "store").iterdir()) == []
    with pytest.raises(RequestError, match="at least one molecule"):
        write_molecules(folder=tmp_path / "none", molecules=0)
