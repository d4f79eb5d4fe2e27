"""OGB's csv layout of molecules: one gzipped table per attribute, all graphs end to end.

    mapping/mol.csv.gz              labels, SMILES
    raw/num-node-list, num-edge-list, node-feat, edge, edge-feat, graph-label (.csv.gz)
    split/scaffold/train, valid, test (.csv.gz)

An edge stands there once and means both directions.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo import hub
from zoo.batching.store import Store, make_store
from zoo.datasets.moleculenet_raw import read_smiles
from zoo.datasets.number_tables import read_floats, read_integers
from zoo.errors import DataError, RequestError
from zoo.files import sha256_file

PARTS = ("train", "valid", "test")
MAPPING = "mapping/mol.csv.gz"
_NODES, _EDGES = "raw/num-node-list.csv.gz", "raw/num-edge-list.csv.gz"
_ATOM, _BOND = "raw/node-feat.csv.gz", "raw/edge-feat.csv.gz"
_ENDS, _LABELS = "raw/edge.csv.gz", "raw/graph-label.csv.gz"
_SPLITS = tuple(f"split/scaffold/{part}.csv.gz" for part in PARTS)
FILES = (MAPPING, _NODES, _EDGES, _ATOM, _ENDS, _BOND, _LABELS, *_SPLITS)

_ATOM_CATEGORIES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
_BOND_CATEGORIES = (5, 6, 2)


def root_in(folder: Path) -> Path:
    """`folder` itself if it is in OGB's layout. RequestError naming a file that isn't there."""
    missing = [name for name in FILES if not (folder / name).exists()]
    if missing:
        raise RequestError(f"{folder} isn't a data set in OGB's layout: {missing[0]} is missing")
    return folder


def find_root(names: set[str]) -> Path | None:
    """A folder of one of these names in ZOO_DATA that is in OGB's layout; None if there is none."""
    for path in hub.raw_files({Path(MAPPING).name}):
        root = path.parents[1]
        if path.parent.name == "mapping" and root.name in names:
            return root_in(root)
    return None


def content_sha256(root: Path) -> str:
    """One sha256 of all files' own."""
    lines = [f"{name} {sha256_file(root / name)}" for name in FILES]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def read_root(root: Path, *, tasks: int) -> Store:
    """The store of a data set in the layout: node atom, edge src, dst, bond; graph y float32 [M,
    tasks], row int32 [M] (the graph's number) and part int8 [M], 0 to 2 for train, valid, test.

    DataError names the file that is wrong.
    """
    nodes = read_integers(root / _NODES, columns=1)[:, 0].astype(np.int64)
    edges = read_integers(root / _EDGES, columns=1)[:, 0].astype(np.int64)
    atom = read_integers(root / _ATOM, columns=9, below=_ATOM_CATEGORIES)
    bond = read_integers(root / _BOND, columns=3, below=_BOND_CATEGORIES)
    ends = read_integers(root / _ENDS, columns=2)
    y = read_floats(root / _LABELS, columns=tasks)
    count = len(nodes)
    for name, found, expected in (
        (_EDGES, len(edges), count),
        (_LABELS, len(y), count),
        (_ATOM, len(atom), int(nodes.sum())),
        (_ENDS, len(ends), int(edges.sum())),
        (_BOND, len(bond), int(edges.sum())),
    ):
        if found != expected:
            raise DataError(f"{root / name} has {found:,} rows where {expected:,} should be")
    graph = np.concatenate([np.repeat(np.arange(count), edges)] * 2)
    src, dst = np.concatenate([ends, ends[:, ::-1]]).T
    order = np.lexsort((src, dst, graph))
    try:
        return make_store(
            node_ptr=_pointer(nodes),
            node={"atom": atom.astype(np.uint8)},
            edge_ptr=_pointer(2 * edges),
            edge={
                "src": src[order].astype(np.int32),
                "dst": dst[order].astype(np.int32),
                "bond": np.concatenate([bond, bond]).astype(np.uint8)[order],
            },
            graph={
                "y": y,
                "row": np.arange(count, dtype=np.int32),
                "part": _part(root, count=count),
            },
        )
    except DataError as error:
        raise DataError(f"{root / _ENDS}: {error}") from error


def write_root(
    root: Path, *, store: Store, smiles: Sequence[str], names: Sequence[str], parts: dict[str, Any]
) -> None:
    """Write a store of molecules, their SMILES and split into the layout."""
    molecule = np.repeat(np.arange(len(store)), store.edges_per_graph(cutoff=None))
    once = store.edge["src"] < store.edge["dst"]
    labels = [["" if np.isnan(v) else f"{v:g}" for v in row] for row in store.graph["y"]]
    mapping = [[*names, "smiles", "mol_id"]]
    mapping += [[*y, text, str(n)] for n, (y, text) in enumerate(zip(labels, smiles, strict=True))]
    tables: dict[str, Any] = {
        MAPPING: mapping,
        _NODES: store.nodes_per_graph()[:, None],
        _EDGES: np.bincount(molecule[once], minlength=len(store))[:, None],
        _ATOM: store.node["atom"],
        _ENDS: np.stack([store.edge["src"], store.edge["dst"]], axis=1)[once],
        _BOND: store.edge["bond"][once],
        _LABELS: labels,
        **{file: parts[part][:, None] for file, part in zip(_SPLITS, PARTS, strict=True)},
    }
    for name, rows in tables.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def task_order(root: Path, *, names: Sequence[str]) -> list[int]:
    """Where the labels called `names` are among the columns of graph-label, which come in the order
    of the mapping's. As they stand, with a warning, if the mapping calls them otherwise.
    """
    try:
        with gzip.open(root / MAPPING, "rt", encoding="utf-8") as file:
            header = next(csv.reader(file), [])
    except (csv.Error, OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{root / MAPPING} is damaged: {error}") from error
    columns = [column for column in header if column not in ("smiles", "mol_id")]
    if sorted(columns) != sorted(names):
        strange = sorted(set(columns) ^ set(names))
        warnings.warn(
            f"{root / MAPPING} calls the labels otherwise ({', '.join(strange[:3])}): their names "
            "are given in the order of the columns",
            stacklevel=2,
        )
        return list(range(len(names)))
    return [columns.index(name) for name in names]


def smiles_of(root: Path) -> list[str]:
    """The SMILES of all graphs, in order."""
    return read_smiles(root / MAPPING)


def _pointer(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _part(root: Path, *, count: int) -> np.ndarray:
    """The part of each graph: int8 [count]. DataError if one is in none, or in two."""
    part = np.full(count, -1, np.int8)
    for number, name in enumerate(_SPLITS):
        rows = read_integers(root / name, columns=1)[:, 0]
        bad = (rows >= count) | (part[np.minimum(rows, count - 1)] >= 0)
        if bad.any() or len(np.unique(rows)) != len(rows):
            raise DataError(f"{root / name} holds a graph twice, or one that isn't there")
        part[rows] = number
    if (part < 0).any():
        at = int((part < 0).argmax())
        raise DataError(f"{root / 'split/scaffold'}: graph {at} is in none of {', '.join(PARTS)}")
    return part
