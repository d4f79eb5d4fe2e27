"""What the adapters of molecules share: SMILES to a flat store, and splits of a table's rows.

A store leaves out the rows that RDKit refuses, which may be others with another RDKit. Splits are
therefore made of all rows, and their hashes are of row numbers: they stay.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from zoo.batching.store import Store, make_store
from zoo.chem.featurise import Graphs, featurise
from zoo.datasets.splits import random_split, scaffold_split, split_digest
from zoo.errors import DataError, unknown

_READER = "molecules-1"
"""Goes up when the same raw files become another store."""

SHARES = {"train": 0.8, "valid": 0.1, "test": 0.1}


def store_digest(*parts: str) -> str:
    """What a store is known by: this code, RDKit's version, and what the raw data is."""
    import rdkit

    return hashlib.sha256("\n".join([_READER, rdkit.__version__, *parts]).encode()).hexdigest()


def molecule_store(*, smiles: Sequence[str], y: np.ndarray, where: str) -> Store:
    """The molecules that RDKit takes: node atom uint8 [n, 9]; edge src, dst, bond uint8 [e, 3];
    graph y float32 [M, T], row int32 [M] (of `smiles`) and scaffold int32 [M] (rows with the same
    number share one).

    DataError naming `where` if it takes none.
    """
    parts = list(_featurised(smiles))
    good = np.array([not reason for part in parts for reason in part.reasons], bool)
    if not good.any():
        reason = next((reason for part in parts for reason in part.reasons), "there is none")
        raise DataError(f"{where}: no molecule can be read; of the first: {reason}")
    rows = np.flatnonzero(good)
    scaffolds = [text for part in parts for text in part.scaffolds]
    numbers: dict[str, int] = {}
    groups = [numbers.setdefault(scaffolds[row], len(numbers)) for row in rows]

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])

    return make_store(
        node_ptr=_pointer(joined("nodes")[rows]),
        node={"atom": joined("atom")},
        edge_ptr=_pointer(joined("edges")[rows]),
        edge={name: joined(name) for name in ("src", "dst", "bond")},
        graph={
            "y": np.asarray(y[rows], np.float32),
            "row": rows.astype(np.int32),
            "scaffold": np.array(groups, np.int32),
        },
    )


def _pointer(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _featurised(smiles: Sequence[str]) -> list[Graphs]:
    """All graphs, from as many processes as there are cores, with a bar on a terminal."""
    from tqdm import tqdm

    affinity = getattr(os, "sched_getaffinity", None)
    workers = len(affinity(0)) if affinity else os.cpu_count() or 1
    silent = not sys.stderr.isatty()
    parts = []
    with tqdm(
        desc="reading molecules", total=len(smiles), delay=2, leave=False, disable=silent
    ) as bar:
        for part in featurise(smiles, workers=workers):
            parts.append(part)
            bar.update(len(part.reasons))
    return parts


def split_rows(
    *, store: Store, rows: int, protocol: str, seed: int, name: str
) -> tuple[dict[str, np.ndarray], str]:
    """Train, valid and test (80/10/10) of `rows` rows as sorted int64 indices of the store, and the
    sha256 of the parts as row numbers.

    scaffold: OGB's, the same for any seed; a row that RDKit refused is a scaffold of its own.
    random: by the seed. RequestError for another protocol or where a part would be empty.
    """
    row = np.asarray(store.graph["row"])
    if protocol == "scaffold":
        # Negative numbers are no scaffold's.
        keys = -1 - np.arange(rows)
        keys[row] = store.graph["scaffold"]
        parts = scaffold_split(scaffolds=keys.tolist(), shares=SHARES)
    elif protocol == "random":
        sizes = {part: max(1, rows // 10) for part in ("valid", "test")}
        parts = random_split(
            count=rows, sizes={"train": rows - sum(sizes.values()), **sizes}, seed=seed
        )
    else:
        raise unknown(kind=f"split of {name}", name=protocol, known=["scaffold", "random"])
    return {part: rows_in_store(numbers, row=row) for part, numbers in parts.items()}, split_digest(
        parts
    )


def rows_in_store(rows: np.ndarray, *, row: np.ndarray) -> np.ndarray:
    """Where these rows are in a store of rows `row` (ascending), without those that aren't there:
    sorted int64.
    """
    return np.flatnonzero(np.isin(row, rows)).astype(np.int64)


def check_split(
    *, digest: str, published: Mapping[str, str], protocol: str, seed: int, name: str
) -> None:
    """DataError if this split of the published data isn't the one that its hash is known of."""
    expected = published.get(protocol if protocol == "scaffold" else f"{protocol}-{seed}")
    if expected is not None and digest != expected:
        import rdkit

        raise DataError(
            f"the {protocol} split of {name} came out as {digest[:12]}, not {expected[:12]}: this "
            f"RDKit ({rdkit.__version__}) finds other scaffolds, or this numpy other permutations"
        )
