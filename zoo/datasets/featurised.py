"""SMILES as a store of graphs, made once: the cache knows them by their text."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from zoo import hub
from zoo.batching.store import Store, cached_store, make_store
from zoo.chem.featurise import featurise
from zoo.chem.molecule import shorten
from zoo.errors import DataError

VERSION = 1
"""Of what is stored; raised whenever the same SMILES would give other arrays."""


def featurised_store(*, smiles: Sequence[str], workers: int, where: str = "the input") -> Store:
    """The graphs of those SMILES that RDKit reads, in order, from the cache if they are there.

    node: `atom` uint8 [n, 9]; edge: `bond` uint8 [e, 3], `src` and `dst`; graph, each int32
    [graphs]: `place`, which of the SMILES it is; `group`, the same number for the same molecule
    however it is written; `scaffold`, the same number for the same scaffold, 0 for none. DataError
    if RDKit reads none of them.
    """
    digest = smiles_digest(smiles)
    return cached_store(
        folder=hub.cache_dir() / "stores" / f"molecules-{digest[:16]}",
        digest=digest,
        make=lambda: _make(smiles, workers=workers, where=where),
    )


def refusals(*, smiles: Sequence[str], store: Store, workers: int) -> dict[int, str]:
    """Why each of the SMILES that is not in its `store` isn't, by its place."""
    absent = np.setdiff1d(np.arange(len(smiles)), store.graph["place"]).tolist()
    reasons = [
        reason
        for graphs in featurise((smiles[place] for place in absent), workers=workers)
        for reason in graphs.reasons
    ]
    return dict(zip(absent, reasons, strict=True))


def smiles_digest(smiles: Sequence[str]) -> str:
    """sha256 of the texts in their order, and of what else decides what becomes of them."""
    from rdkit import rdBase

    digest = hashlib.sha256(f"{VERSION} {rdBase.rdkitVersion} {len(smiles)}\n".encode())
    for text in smiles:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def _make(smiles: Sequence[str], *, workers: int, where: str) -> Store:
    pieces: dict[str, list[np.ndarray]] = {
        name: [] for name in ("atom", "bond", "src", "dst", "nodes", "edges", "place")
    }
    groups: dict[str, int] = {}
    scaffolds: dict[str, int] = {"": 0}
    group: list[int] = []
    scaffold: list[int] = []
    at, first = 0, ""
    for graphs in featurise(smiles, workers=workers):
        good = np.array([not reason for reason in graphs.reasons])
        for name in ("atom", "bond", "src", "dst"):
            pieces[name].append(getattr(graphs, name))
        pieces["nodes"].append(graphs.nodes[good])
        pieces["edges"].append(graphs.edges[good])
        pieces["place"].append((at + np.flatnonzero(good)).astype(np.int32))
        for number in np.flatnonzero(good):
            group.append(groups.setdefault(graphs.canonical[number], len(groups)))
            scaffold.append(scaffolds.setdefault(graphs.scaffolds[number], len(scaffolds)))
        if not first and not good.all():
            bad = int(np.argmin(good))
            first = f"{graphs.reasons[bad]}: {shorten(smiles[at + bad], to=80)!r}"
        at += len(good)
    if not group:
        raise DataError(f"{where} has no molecule that RDKit can read; the first: {first}")

    def joined(name: str) -> np.ndarray:
        # The pieces go as they are joined, so that memory holds one attribute twice, not all.
        return np.concatenate(pieces.pop(name))

    return make_store(
        node_ptr=np.concatenate([[0], np.cumsum(joined("nodes"))]),
        edge_ptr=np.concatenate([[0], np.cumsum(joined("edges"))]),
        node={"atom": joined("atom")},
        edge={name: joined(name) for name in ("bond", "src", "dst")},
        graph={
            "place": joined("place"),
            "group": np.array(group, np.int32),
            "scaffold": np.array(scaffold, np.int32),
        },
    )
