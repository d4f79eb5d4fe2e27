"""TUDataset's text files: all graphs' nodes and edges end to end, counted from 1.

<name>_A.txt                a line `i, j` for each edge, both ways
<name>_graph_indicator.txt  the graph of each node
<name>_graph_labels.txt     the class of each graph
<name>_node_labels.txt      the kind of each node
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from zoo import hub
from zoo.batching.store import Store, make_store
from zoo.datasets.number_tables import read_integers
from zoo.errors import DataError, RequestError
from zoo.files import sha256_file

KINDS = ("A", "graph_indicator", "graph_labels", "node_labels")


def root_in(folder: Path, *, name: str) -> Path:
    """Where the files are: in `folder` or, as the zip unpacks, in one called `name` inside it.

    RequestError naming a file that isn't there.
    """
    root = folder / name if (folder / name).is_dir() else folder
    missing = [kind for kind in KINDS if not (root / f"{name}_{kind}.txt").exists()]
    if missing:
        raise RequestError(f"{root} holds no {name}_{missing[0]}.txt")
    return root


def find_root(name: str) -> Path | None:
    """The folder in ZOO_DATA that holds the files, at any depth; None if there is none."""
    for path in hub.raw_files({f"{name}_A.txt"}):
        return root_in(path.parent, name=name)
    return None


def content_sha256(root: Path, *, name: str) -> str:
    """One sha256 of all files' own."""
    lines = [f"{kind} {sha256_file(root / f'{name}_{kind}.txt')}" for kind in KINDS]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def read_root(root: Path, *, name: str, kinds: int, classes: int) -> Store:
    """The store: node atom uint8 [n, 1], edge src and dst; graph y float32 [M, 1], row int32 [M].

    Kinds of nodes and classes are numbered from 0 in the order of their labels, of which there are
    at most `kinds` and `classes`. DataError names the file and line that is wrong.
    """
    paths = {kind: root / f"{name}_{kind}.txt" for kind in KINDS}
    indicator = read_integers(paths["graph_indicator"], columns=1, low=1)[:, 0]
    edges = read_integers(paths["A"], columns=2, low=1, below=[len(indicator) + 1] * 2) - 1
    y = _numbered(paths["graph_labels"], most=classes)
    atom = _numbered(paths["node_labels"], most=kinds)
    graph = _graphs(paths["graph_indicator"], indicator, count=len(y))
    if len(atom) != len(indicator):
        raise DataError(
            f"{paths['node_labels']} has {len(atom):,} lines, {paths['graph_indicator'].name} "
            f"{len(indicator):,}"
        )
    _check_edges(paths["A"], edges, graph=graph)
    sizes = np.bincount(graph, minlength=len(y))
    begin = np.cumsum(sizes) - sizes
    src, dst = edges[np.lexsort((edges[:, 0], edges[:, 1]))].T
    return make_store(
        node_ptr=np.concatenate([[0], np.cumsum(sizes)]),
        node={"atom": atom.astype(np.uint8)[:, None]},
        edge_ptr=np.searchsorted(graph[dst], np.arange(len(y) + 1)),
        edge={
            "src": (src - begin[graph[src]]).astype(np.int32),
            "dst": (dst - begin[graph[dst]]).astype(np.int32),
        },
        graph={"y": y.astype(np.float32)[:, None], "row": np.arange(len(y), dtype=np.int32)},
    )


def _numbered(path: Path, *, most: int) -> np.ndarray:
    """Labels as numbers from 0, in the order of the labels."""
    labels = read_integers(path, columns=1, low=-(1 << 31))[:, 0]
    known, numbers = np.unique(labels, return_inverse=True)
    if len(known) > most:
        line = int((labels == known[most]).argmax()) + 1
        raise DataError(f"{path}, line {line}: more than {most} different labels")
    return numbers


def _graphs(path: Path, indicator: np.ndarray, *, count: int) -> np.ndarray:
    """The graph of each node from 0; they rise by one, none is left out."""
    steps = np.diff(indicator, prepend=0)
    wrong = (steps < 0) | (steps > 1) | (indicator > count)
    if wrong.any():
        at = int(wrong.argmax())
        raise DataError(
            f"{path}, line {at + 1}: graph {indicator[at]} after "
            f"{indicator[at - 1] if at else 'nothing'}, of {count} graphs"
        )
    last = int(indicator[-1]) if len(indicator) else 0
    if last != count:
        raise DataError(f"{path} ends with graph {last}, and there are labels of {count}")
    return indicator - 1


def _check_edges(path: Path, edges: np.ndarray, *, graph: np.ndarray) -> None:
    between = graph[edges[:, 0]] != graph[edges[:, 1]]
    if between.any():
        at = int(between.argmax())
        i, j = (edges[at] + 1).tolist()
        raise DataError(f"{path}, line {at + 1}: nodes {i} and {j} are of different graphs")
    keys = edges.astype(np.int64) @ [len(graph), 1]
    alone = ~np.isin(keys, edges[:, ::-1].astype(np.int64) @ [len(graph), 1])
    if alone.any():
        at = int(alone.argmax())
        i, j = (edges[at] + 1).tolist()
        raise DataError(f"{path}, line {at + 1}: {i}, {j} is there, and {j}, {i} isn't")
