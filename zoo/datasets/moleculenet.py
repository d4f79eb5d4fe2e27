"""MoleculeNet: eleven tables of molecules as SMILES with measured properties and activities.

Wu et al., Chemical Science 9, 513 (2018). A recipe names one as `moleculenet.esol`.
"""

from __future__ import annotations

import csv
import warnings
from pathlib import Path

import numpy as np

from zoo import hub
from zoo.batching.store import Store, cached_store
from zoo.datasets.facts import DatasetFacts, Source
from zoo.datasets.moleculenet_facts import COLUMNS, HEADERS, SETS
from zoo.datasets.moleculenet_raw import (
    SMILES,
    content_sha256,
    read_smiles,
    read_table,
    table_in,
)
from zoo.datasets.molecules import check_split, molecule_store, split_rows, store_digest
from zoo.datasets.molecules_synthetic import REFUSED, made_up_table
from zoo.datasets.synthetic import made_up_folder
from zoo.errors import DataError, unknown
from zoo.files import disk

_VERSION = 1
"""Goes up when a seed gives other made-up molecules."""


def load(*, name: str, folder: Path | None = None) -> Store:
    """A set as a flat store: node atom uint8 [n, 9]; edge src, dst int32, bond uint8 [e, 3]; graph
    y float32 [M, T] in the order and units of the set's properties (NaN where unknown), row int32
    [M], the row of the table from 0, and scaffold int32 [M], the same for molecules that share one.

    Rows that RDKit refuses are left out. `folder` reads the table from there, whatever it holds,
    instead of the published one, whose rows are counted. Made once into the user's cache. DataError
    for a damaged table, UnavailableError where there is none and none can be had.
    """
    facts = _facts(name)
    source = facts.sources[0]
    if folder is None:
        digest = _digest(name, source.sha256)
        return cached_store(
            folder=_place(name, digest), digest=digest, make=lambda: _published(name)
        )
    path = table_in(folder, filename=source.filename)
    digest = _digest(name, content_sha256(path))
    return cached_store(folder=_place(name, digest), digest=digest, make=lambda: _read(name, path))


def split(
    *, name: str, store: Store, protocol: str = "scaffold", seed: int = 0
) -> tuple[dict[str, np.ndarray], str]:
    """Train, valid and test (80/10/10) as sorted int64 indices of the store, and the sha256 of the
    parts as rows of the table.

    Protocols: scaffold (OGB's, one for all seeds) and random. They split all rows of the table,
    also those that RDKit refuses, so that a row's part depends on no version of RDKit. RequestError
    for another protocol; DataError if the published table's split has another hash.
    """
    facts = _facts(name)
    whole = store.digest == _digest(name, facts.sources[0].sha256)
    rows = facts.counts["rows"] if whole else int(store.graph["row"][-1]) + 1
    label = f"moleculenet.{name}"
    parts, digest = split_rows(store=store, rows=rows, protocol=protocol, seed=seed, name=label)
    if whole:
        check_split(digest=digest, published=facts.splits, protocol=protocol, seed=seed, name=label)
    return parts, digest


def smiles(*, name: str, store: Store, folder: Path | None = None) -> list[str]:
    """The SMILES of the store's molecules in its order, read again from the table."""
    source = _facts(name).sources[0]
    path = _table(source) if folder is None else table_in(folder, filename=source.filename)
    texts = read_smiles(path)
    if int(store.graph["row"][-1]) >= len(texts):
        raise DataError(f"{path} has {len(texts)} rows, fewer than the store was made from")
    return [texts[row] for row in store.graph["row"]]


def synthesize(*, name: str, path: Path, seed: int, size: int) -> None:
    """Write a made-up table of `size` molecules into the folder `path`, in the set's layout.

    Where the published table has rows that RDKit refuses, one more row is such a one; tables of
    several tasks with unknown labels have some here too. UnavailableError where the disk refuses.
    """
    facts = _facts(name)
    texts, labels = made_up_table(
        properties=facts.properties, seed=seed, size=size, holes=bool(facts.counts["unknown"])
    )
    if facts.counts["refused"]:
        texts.insert(size // 2, REFUSED)
        labels = np.insert(labels, size // 2, labels[0], axis=0)
    source = facts.sources[0]
    with disk(path):
        path.mkdir(parents=True, exist_ok=True)
        table = path / source.filename.removesuffix(".gz")
        with open(table, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(_table_rows(name, texts, labels))


def synthetic_folder(*, name: str, seed: int, size: int) -> Path:
    """The folder of a made-up set, written once into the user's cache."""
    _facts(name)
    return made_up_folder(
        name=f"moleculenet-{name}-{_VERSION}-{seed}-{size}",
        write=lambda path: synthesize(name=name, path=path, seed=seed, size=size),
    )


def _facts(name: str) -> DatasetFacts:
    if name not in SETS:
        raise unknown(kind="set of moleculenet", name=name, known=SETS)
    return SETS[name]


def _digest(name: str, sha256: str) -> str:
    return store_digest("moleculenet", name, sha256)


def _place(name: str, digest: str) -> Path:
    return hub.cache_dir() / "stores" / f"moleculenet-{name}-{digest[:16]}"


def _labels(name: str) -> list[str]:
    """The labels' columns, in the order of the properties."""
    return [COLUMNS.get(name, p.name) for p in SETS[name].properties]


def _read(name: str, path: Path) -> Store:
    texts, y = _columns(name, path)
    return molecule_store(smiles=texts, y=y, where=str(path))


def _columns(name: str, path: Path) -> tuple[list[str], np.ndarray]:
    binary = SETS[name].properties[0].kind == "binary"
    return read_table(path, labels=_labels(name), binary=binary)


def _published(name: str) -> Store:
    """The published table's store, held to the published counts."""
    counts = SETS[name].counts
    path = _table(SETS[name].sources[0])
    texts, y = _columns(name, path)
    found = {"rows": len(texts), "unknown": int(np.isnan(y).sum())}
    for what, count in found.items():
        if count != counts[what]:
            raise DataError(f"{path}: {count:,} {what}, moleculenet.{name} has {counts[what]:,}")
    store = molecule_store(smiles=texts, y=y, where=str(path))
    refused = len(texts) - len(store)
    if refused != counts["refused"]:
        import rdkit

        warnings.warn(
            f"RDKit {rdkit.__version__} refuses {refused} rows of moleculenet.{name}, where "
            f"{counts['refused']} were refused before; the others keep their part of a split",
            stacklevel=2,
        )
    return store


def _table(source: Source) -> Path:
    found = hub.find_raw(filename=source.filename, sha256=source.sha256)
    return found or hub.fetch(
        filename=source.filename,
        sha256=source.sha256,
        mirrors=source.mirrors,
        folder=hub.cache_dir() / "raw" / "moleculenet",
        what="MoleculeNet's table",
    )


def _table_rows(name: str, texts: list[str], labels: np.ndarray) -> list[list[str]]:
    """Header and rows of a made-up table; of the columns that nobody reads, the row's number."""
    columns = _labels(name)
    header = [c for column in HEADERS[name] for c in (columns if column == "*" else [column])]
    rows = [header]
    for number, (text, values) in enumerate(zip(texts, labels, strict=True)):
        known = ["" if np.isnan(value) else f"{value:g}" for value in values]
        cells = {SMILES: text, **dict(zip(columns, known, strict=True))}
        rows.append([cells.get(column, str(number)) for column in header])
    return rows
