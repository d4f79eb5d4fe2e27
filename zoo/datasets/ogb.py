"""OGB's molecular sets for property prediction, as graphs with their official scaffold splits.

Hu et al., Open Graph Benchmark, NeurIPS 2020 (arXiv:2005.00687). A recipe names one as
`ogb.molhiv`. They are MoleculeNet's molecules; where the official files aren't at hand, the sets of
`ogb_facts.MOLECULENET` are made from its tables.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from zoo import hub
from zoo.batching.store import Store, cached_store, open_store
from zoo.datasets import moleculenet
from zoo.datasets.facts import DatasetFacts
from zoo.datasets.molecules import SHARES, check_split, molecule_store, split_rows
from zoo.datasets.molecules_synthetic import made_up_table
from zoo.datasets.ogb_facts import CONTENT, MOLECULENET, SETS, UNNAMED, zipped
from zoo.datasets.ogb_raw import (
    PARTS,
    content_sha256,
    find_root,
    read_root,
    root_in,
    smiles_of,
    task_order,
    write_root,
)
from zoo.datasets.splits import scaffold_split, split_digest
from zoo.datasets.synthetic import made_up_folder
from zoo.errors import DataError, UnavailableError, unknown
from zoo.files import disk

_READER = "ogb-1"
"""Goes up when the same raw files become another store."""
_VERSION = 1
"""Goes up when a seed gives other made-up molecules."""


def load(*, name: str, folder: Path | None = None) -> Store:
    """A set as a flat store: node atom uint8 [n, 9]; edge src, dst int32, bond uint8 [e, 3]; graph
    y float32 [M, T] in the order and units of the set's properties (NaN where unknown), row int32
    [M], the number of the graph, and part int8 [M], 0 to 2 for train, valid and test.

    Official files are looked for in ZOO_DATA, in a folder called as OGB calls it (`ogbg_molhiv`, or
    `hiv` as its zip unpacks), and held to the published counts; `folder` reads files in their
    layout, whatever they hold. A set that is made from MoleculeNet's table is that table's store:
    it has scaffold in place of part, and lacks the rows that RDKit refuses. Made once into the
    user's cache. DataError for damaged files, UnavailableError where there are none.
    """
    _facts(name)
    if folder is not None:
        root = root_in(folder)
        return _cached(name, content_sha256(root), root)
    known = CONTENT.get(name)
    if known is not None:
        with contextlib.suppress(DataError):  # not made yet
            return open_store(folder=_place(name, known), digest=_digest(name, known))
    found = _official(name)
    if found is not None:
        content = content_sha256(found)
        if known not in (None, content):
            raise DataError(
                f"{found} doesn't hold the official files of ogb.{name}: their sha256 differ"
            )
        return _held(name, _cached(name, content, found), where=str(found))
    if name in MOLECULENET:
        return moleculenet.load(name=MOLECULENET[name])
    raise UnavailableError(
        f"ogb.{name} is not on this machine: unzip {zipped(name)}.zip from "
        "http://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/\n"
        "into a folder, and name that folder in ZOO_DATA"
    )


def split(
    *, name: str, store: Store, protocol: str = "scaffold", seed: int = 0
) -> tuple[dict[str, np.ndarray], str]:
    """Train, valid and test as sorted int64 indices of the store, and the sha256 of the parts as
    numbers of graphs, the same whichever files the store was made from.

    Protocols: scaffold (the official split, one for all seeds) and random (80/10/10). RequestError
    for another protocol.
    """
    facts = _facts(name)
    if "part" not in store.graph:
        return moleculenet.split(name=MOLECULENET[name], store=store, protocol=protocol, seed=seed)
    if protocol == "scaffold":
        parts = {
            part: np.flatnonzero(store.graph["part"] == number).astype(np.int64)
            for number, part in enumerate(PARTS)
        }
        digest = split_digest(parts)
    else:
        parts, digest = split_rows(
            store=store, rows=len(store), protocol=protocol, seed=seed, name=f"ogb.{name}"
        )
    if store.digest == _digest(name, CONTENT.get(name, "")):
        check_split(
            digest=digest, published=facts.splits, protocol=protocol, seed=seed, name=f"ogb.{name}"
        )
    return parts, digest


def smiles(*, name: str, store: Store, folder: Path | None = None) -> list[str]:
    """The SMILES of the store's molecules in its order, read again from the files."""
    _facts(name)
    if "part" not in store.graph:
        return moleculenet.smiles(name=MOLECULENET[name], store=store)
    if folder is None:
        found = _official(name)
        if found is None:
            raise UnavailableError(f"the official files of ogb.{name} are not in ZOO_DATA")
        root = found
    else:
        root = root_in(folder)
    texts = smiles_of(root)
    if len(texts) != len(store):
        raise DataError(f"{root} has {len(texts):,} SMILES, the store {len(store):,} molecules")
    return texts


def synthesize(*, name: str, path: Path, seed: int, size: int) -> None:
    """Write `size` made-up molecules into the folder `path` in OGB's layout, with a scaffold split.

    Sets of several tasks with unknown labels have some here too. RequestError for a size that can't
    be split, UnavailableError where the disk refuses.
    """
    facts = _facts(name)
    texts, labels = made_up_table(
        properties=facts.properties,
        seed=seed,
        size=size,
        holes=name in ("moltox21", "moltoxcast", "molmuv", "molpcba"),
    )
    store = molecule_store(smiles=texts, y=labels, where=str(path))
    parts = scaffold_split(scaffolds=store.graph["scaffold"].tolist(), shares=SHARES)
    with disk(path):
        names = [p.name for p in facts.properties]
        write_root(path, store=store, smiles=texts, names=names, parts=parts)


def synthetic_folder(*, name: str, seed: int, size: int) -> Path:
    """The folder of a made-up set, written once into the user's cache."""
    _facts(name)
    return made_up_folder(
        name=f"ogb-{name}-{_VERSION}-{seed}-{size}",
        write=lambda path: synthesize(name=name, path=path, seed=seed, size=size),
    )


def _facts(name: str) -> DatasetFacts:
    if name not in SETS:
        raise unknown(kind="set of ogb", name=name, known=SETS)
    return SETS[name]


def _official(name: str) -> Path | None:
    return find_root({f"ogbg_{name}", f"ogbg-{name}", zipped(name)})


def _digest(name: str, content: str) -> str:
    return hashlib.sha256(f"{_READER}\n{name}\n{content}".encode()).hexdigest()


def _place(name: str, content: str) -> Path:
    return hub.cache_dir() / "stores" / f"ogb-{name}-{_digest(name, content)[:16]}"


def _cached(name: str, content: str, root: Path) -> Store:
    return cached_store(
        folder=_place(name, content),
        digest=_digest(name, content),
        make=lambda: _read(name, root),
    )


def _read(name: str, root: Path) -> Store:
    names = [p.name for p in SETS[name].properties]
    store = read_root(root, tasks=len(names))
    if len(names) == 1 or name in UNNAMED:
        return store
    y = store.graph["y"][:, task_order(root, names=names)]
    return replace(store, graph={**store.graph, "y": np.ascontiguousarray(y)})


def _held(name: str, store: Store, *, where: str) -> Store:
    """The store, if it has the published counts and split."""
    facts = SETS[name]
    parts, digest = split(name=name, store=store)
    found = {"graphs": len(store), **{part: len(rows) for part, rows in parts.items()}}
    for what, count in facts.counts.items():
        if found[what] != count:
            raise DataError(f"{where}: {found[what]:,} {what}, where {count:,} are published")
    check_split(
        digest=digest, published=facts.splits, protocol="scaffold", seed=0, name=f"ogb.{name}"
    )
    return store
