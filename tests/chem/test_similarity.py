"""The nearest reference by Tanimoto's measure: RDKit's, whatever is skipped and shared out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator

from zoo.chem import similarity as searching
from zoo.chem.fingerprints import Fingerprints, dense, fingerprints_of
from zoo.chem.similarity import nearest_similarity, references


def random_fingerprints(molecules: int, *, seed: int, alphabet: int = 2048) -> Fingerprints:
    """From two bits to hundreds, some molecules unreadable."""
    rng = np.random.default_rng(seed)
    sizes = np.minimum(2 + rng.geometric(0.02, molecules), alphabet // 2)
    sizes[rng.random(molecules) < 0.03] = 0
    bits = [np.sort(rng.choice(alphabet, size, replace=False)) for size in sizes]
    return Fingerprints(
        bits=np.concatenate(bits).astype(np.uint16),
        times=np.ones(sizes.sum(), np.uint8),
        ptr=np.concatenate([[0], np.cumsum(sizes)]),
    )


def looked_through(query: Fingerprints, reference: Fingerprints) -> tuple[np.ndarray, np.ndarray]:
    """The same by comparing all with all."""
    a, b = (np.unpackbits(dense(f), axis=1).astype(np.int64) for f in (query, reference))
    common = a @ b.T
    union = a.sum(1)[:, None] + b.sum(1)[None] - common
    similarity = np.where(b.sum(1) > 0, common / np.maximum(union, 1), -1.0)
    unread = a.sum(1) == 0
    best = np.where(unread, np.nan, similarity.max(1)).astype(np.float32)
    return best, np.where(unread, -1, similarity.argmax(1))


@pytest.mark.parametrize("alphabet", [2048, 40])  # 40: most are alike, and many equally so
def test_the_nearest_is_found(alphabet: int, monkeypatch: pytest.MonkeyPatch) -> None:
    query = random_fingerprints(700, seed=0, alphabet=alphabet)
    reference = random_fingerprints(1500, seed=1, alphabet=alphabet)
    similarity, index = nearest_similarity(query=query, reference=references(reference))
    expected, at = looked_through(query, reference)
    assert similarity.dtype == np.float32 and np.isnan(expected).any()
    assert np.array_equal(similarity, expected, equal_nan=True) and np.array_equal(index, at)
    threads = torch.get_num_threads()
    monkeypatch.setattr(searching, "_SLAB", 100)
    try:
        torch.set_num_threads(3)
        again, places = nearest_similarity(query=query, reference=references(reference))
    finally:
        torch.set_num_threads(threads)
    assert np.array_equal(again, similarity, equal_nan=True) and np.array_equal(places, index)


def test_it_is_rdkits_measure() -> None:
    smiles = ["CCO", "CCCO", "c1ccccc1", "c1ccccc1C", "CC(=O)O", "N"]
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    made = [generator.GetFingerprint(Chem.MolFromSmiles(text)) for text in smiles]
    similarity, index = nearest_similarity(
        query=fingerprints_of(smiles[:2]), reference=references(fingerprints_of(smiles[2:]))
    )
    for row in range(2):
        expected = [DataStructs.TanimotoSimilarity(made[row], other) for other in made[2:]]
        assert similarity[row] == np.float32(max(expected))
        assert index[row] == int(np.argmax(expected))


def test_a_molecule_is_nearest_to_itself_and_unreadable_ones_to_none() -> None:
    smiles = ["CCO", "broken", "c1ccccc1O", "CCO"]
    found = fingerprints_of(smiles)
    similarity, index = nearest_similarity(query=found, reference=references(found))
    assert np.array_equal(similarity, [1, np.nan, 1, 1], equal_nan=True)
    assert index.tolist() == [0, -1, 2, 0]
    for nothing in ([], ["broken"]):
        similarity, index = nearest_similarity(
            query=found, reference=references(fingerprints_of(nothing))
        )
        assert np.isnan(similarity).all() and index.tolist() == [-1] * 4
    similarity, index = nearest_similarity(query=fingerprints_of([]), reference=references(found))
    assert similarity.shape == index.shape == (0,)
