"""TUDataset's NCI1: 4,110 molecules as graphs of atoms, active in an anti-cancer screen or not.

Morris et al., arXiv:2007.08663. A recipe names it as `tudataset.nci1`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from zoo import hub
from zoo.batching.store import Store, cached_store
from zoo.datasets.facts import DatasetFacts, Property
from zoo.datasets.splits import random_split, split_digest
from zoo.datasets.synthetic import made_up_folder
from zoo.datasets.tudataset_raw import content_sha256, find_root, read_root, root_in
from zoo.errors import DataError, RequestError, UnavailableError, unknown
from zoo.files import disk

_READER = "tudataset-1"
"""Goes up when the same raw files become another store."""
_VERSION = 1
"""Goes up when a seed gives other made-up graphs."""
_FOLDS = 10
_FILES = {"nci1": "NCI1"}

SETS = {
    "nci1": DatasetFacts(
        name="tudataset.nci1",
        title="NCI1",
        licence="none stated by TUDataset",
        citation="N. Wale, I. A. Watson, G. Karypis, Knowledge and Information Systems 14, 347 "
        "(2008); C. Morris et al., arXiv:2007.08663",
        properties=(
            Property(
                name="active",
                unit="probability",
                description="slows the growth of a non-small cell lung cancer line",
                kind="binary",
            ),
        ),
        sources=(),
        counts={"graphs": 4110, "kinds of nodes": 37, "classes": 2},
        notes=(
            "kinds of atoms are numbers without a name, and bonds have no kind",
            "there is no official split; published accuracies are of ten-fold cross-validation",
            "the real files were not at hand: the reader was tested on files made up in their "
            "layout, and the counts are as published",
            "files: https://www.chrsmrrs.com/graphkerneldatasets/NCI1.zip, to be unzipped into a "
            "folder that ZOO_DATA names; it isn't fetched, since its sha256 isn't known here",
        ),
        metric="accuracy",
    )
}


def load(*, name: str, folder: Path | None = None) -> Store:
    """A set as a flat store: node atom uint8 [n, 1], the kind of each node from 0; edge src, dst
    int32; graph y float32 [M, 1], the class from 0, and row int32 [M], the number of the graph.

    The files are looked for in ZOO_DATA and held to the published counts; `folder` reads them from
    there, whatever they hold. Made once into the user's cache. DataError for damaged files,
    UnavailableError where there are none.
    """
    facts = _facts(name)
    root = find_root(_FILES[name]) if folder is None else root_in(folder, name=_FILES[name])
    if root is None:
        raise UnavailableError(
            f"{facts.title} is not on this machine: unzip "
            f"https://www.chrsmrrs.com/graphkerneldatasets/{_FILES[name]}.zip\n"
            "into a folder, and name that folder in ZOO_DATA"
        )
    content = content_sha256(root, name=_FILES[name])
    digest = hashlib.sha256(f"{_READER}\n{name}\n{content}".encode()).hexdigest()
    counts = facts.counts
    store = cached_store(
        folder=hub.cache_dir() / "stores" / f"tudataset-{name}-{digest[:16]}",
        digest=digest,
        make=lambda: read_root(
            root, name=_FILES[name], kinds=counts["kinds of nodes"], classes=counts["classes"]
        ),
    )
    if folder is None:
        _check_counts(store, counts=counts, where=str(root))
    return store


def split(
    *, name: str, store: Store, protocol: str = "random", seed: int = 0
) -> tuple[dict[str, np.ndarray], str]:
    """Train, valid and test as sorted int64 indices of the store, and their sha256.

    Protocols: random (80/10/10) and kfold-0 to kfold-9: of ten folds with the same share of each
    class, drawn by the seed, that one is tested on and the next validates. RequestError for another
    protocol.
    """
    _facts(name)
    count = len(store)
    if protocol == "random":
        sizes = {part: max(1, count // 10) for part in ("valid", "test")}
        parts = random_split(
            count=count, sizes={"train": count - sum(sizes.values()), **sizes}, seed=seed
        )
    elif re.fullmatch(r"kfold-\d", protocol):
        if count < _FOLDS:
            raise RequestError(f"{count} graphs can't be split into {_FOLDS} folds")
        fold = _folds(store.graph["y"][:, 0], seed=seed)
        test = int(protocol.removeprefix("kfold-"))
        valid = (test + 1) % _FOLDS
        parts = {
            "train": np.flatnonzero((fold != test) & (fold != valid)),
            "valid": np.flatnonzero(fold == valid),
            "test": np.flatnonzero(fold == test),
        }
    else:
        known = ["random", *(f"kfold-{number}" for number in range(_FOLDS))]
        raise unknown(kind=f"split of tudataset.{name}", name=protocol, known=known)
    return parts, split_digest(parts)


def synthesize(*, name: str, path: Path, seed: int, size: int) -> None:
    """Write `size` made-up graphs into the folder `path`, in TUDataset's layout.

    Trees with a few rings and skewed kinds of nodes; the class is a function of both and of noise.
    UnavailableError where the disk refuses.
    """
    _facts(name)
    if size < 2:
        raise RequestError(f"a made-up set has at least 2 graphs, not {size}")
    graphs = [_graph(np.random.default_rng((seed, number))) for number in range(size)]
    scores = np.array([score for _, _, score in graphs])
    first, lines = 1, []
    for kinds, edges, _ in graphs:
        lines += [f"{first + i}, {first + j}" for a, b in edges for i, j in ((a, b), (b, a))]
        first += len(kinds)
    texts = {
        "A": lines,
        "graph_indicator": [str(n) for n, g in enumerate(graphs, start=1) for _ in g[0]],
        "graph_labels": [str(int(score > np.median(scores))) for score in scores],
        "node_labels": [str(kind) for kinds, _, _ in graphs for kind in kinds],
    }
    with disk(path):
        path.mkdir(parents=True, exist_ok=True)
        for kind, rows in texts.items():
            (path / f"{_FILES[name]}_{kind}.txt").write_text("".join(f"{row}\n" for row in rows))


def synthetic_folder(*, name: str, seed: int, size: int) -> Path:
    """The folder of a made-up set, written once into the user's cache."""
    _facts(name)
    return made_up_folder(
        name=f"tudataset-{name}-{_VERSION}-{seed}-{size}",
        write=lambda path: synthesize(name=name, path=path, seed=seed, size=size),
    )


def _facts(name: str) -> DatasetFacts:
    if name not in SETS:
        raise unknown(kind="set of tudataset", name=name, known=SETS)
    return SETS[name]


def _check_counts(store: Store, *, counts: Mapping[str, int], where: str) -> None:
    found = {
        "graphs": len(store),
        "kinds of nodes": len(np.unique(store.node["atom"])),
        "classes": len(np.unique(store.graph["y"])),
    }
    for what, count in counts.items():
        if found[what] != count:
            raise DataError(f"{where}: {found[what]:,} {what}, where {count:,} are published")


def _folds(classes: np.ndarray, *, seed: int) -> np.ndarray:
    """The fold of each graph: classes are dealt out one after the other."""
    draw = np.random.Generator(np.random.PCG64(seed))
    by_class = [np.flatnonzero(classes == which) for which in np.unique(classes)]
    order = np.concatenate([draw.permutation(rows) for rows in by_class])
    fold = np.empty(len(classes), np.int64)
    fold[order] = np.arange(len(classes)) % _FOLDS
    return fold


def _graph(rng: np.random.Generator) -> tuple[list[int], list[tuple[int, int]], float]:
    """Kinds of nodes, edges (once each), and what decides the class."""
    size = int(rng.integers(6, 41))
    kinds = np.minimum(rng.geometric(0.55, size) - 1, 36)
    edges = [(int(rng.integers(max(0, i - 4), i)), i) for i in range(1, size)]
    for _ in range(int(rng.integers(0, 4))):
        i = int(rng.integers(0, size - 5))
        edges += [(i, i + 5)] if (i, i + 5) not in edges else []
    mixed = sum(kinds[i] != kinds[j] for i, j in edges)
    score = mixed / size + (kinds == 1).mean() + 0.3 * (len(edges) - size) + 0.1 * rng.normal()
    return kinds.tolist(), edges, float(score)
