"""The flat store: a dataset as one memory-mapped array per attribute.

All graphs lie end to end; `node_ptr` (and `edge_ptr`, where edges are stored) say where each one
begins. A store is a directory of .npy files and a `store.json` with a format number and a digest of
what it was made from. It is written once, beside its place, and renamed; opening it maps the files
and reads nothing, so ten million molecules open as fast as ten.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo.batching.kernels import count_within
from zoo.errors import DataError, UnavailableError

FORMAT = 1
_KINDS = ("node", "edge", "graph")


@dataclass(frozen=True, kw_only=True)
class Store:
    """Graphs end to end. `node[name]` is [total nodes, ...], `graph[name]` [graphs, ...]; where
    edges are stored, `edge["src"]` and `edge["dst"]` are ids within their graph, sorted by
    destination, then source.
    """

    node_ptr: np.ndarray
    node: Mapping[str, np.ndarray]
    graph: Mapping[str, np.ndarray]
    edge: Mapping[str, np.ndarray]
    edge_ptr: np.ndarray | None
    digest: str
    folder: Path | None

    def __len__(self) -> int:
        return len(self.node_ptr) - 1

    def nodes_per_graph(self) -> np.ndarray:
        """Nodes of each graph: int32 [graphs]."""
        return np.diff(self.node_ptr).astype(np.int32)

    def edges_per_graph(self, *, cutoff: float | None) -> np.ndarray:
        """Edges of each graph: int32 [graphs]; stored ones, or pairs of `pos` within `cutoff`.

        The count for a cutoff is one pass over the positions, kept beside the store.
        """
        if cutoff is None:
            if self.edge_ptr is None:
                raise DataError("this store holds no edges, and no cutoff was given to find them")
            return np.diff(self.edge_ptr).astype(np.int32)
        path = self.folder and self.folder / f"edges-within-{cutoff:g}.npy"
        if path and path.exists():
            counts: np.ndarray = np.load(path, mmap_mode="r")
            if counts.shape == (len(self),):
                return counts
        counts = np.empty(len(self), np.int32)
        count_within(self.node["pos"], self.node_ptr, cutoff, counts)
        if path:
            try:
                _save_beside(path, counts)
            except OSError:
                pass  # a read-only store works as well, it only counts anew
        return counts


def _save_beside(path: Path, values: np.ndarray) -> None:
    """Write an array atomically."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, values)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def make_store(
    *,
    node_ptr: np.ndarray,
    node: Mapping[str, np.ndarray],
    graph: Mapping[str, np.ndarray],
    edge: Mapping[str, np.ndarray] | None = None,
    edge_ptr: np.ndarray | None = None,
    digest: str = "",
) -> Store:
    """A store in memory, its lengths checked (DataError names the attribute that doesn't fit)."""
    edge = edge or {}
    expected = {"node": int(node_ptr[-1]), "graph": len(node_ptr) - 1}
    if edge_ptr is not None:
        expected["edge"] = int(edge_ptr[-1])
    for kind, attributes in (("node", node), ("graph", graph), ("edge", edge)):
        for name, values in attributes.items():
            if len(values) != expected.get(kind):
                raise DataError(
                    f"{kind} attribute {name!r} has {len(values)} rows, "
                    f"its graphs have {expected.get(kind)}"
                )
    return Store(
        node_ptr=np.asarray(node_ptr, np.int64),
        node=dict(node),
        graph=dict(graph),
        edge=dict(edge),
        edge_ptr=None if edge_ptr is None else np.asarray(edge_ptr, np.int64),
        digest=digest,
        folder=None,
    )


def write_store(*, folder: Path, store: Store) -> Store:
    """Write a store to `folder` (replacing what is there) and open it memory-mapped.

    Raises UnavailableError naming the path when the disk is full or read-only; nothing half-written
    stays.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        raise UnavailableError(f"can't write a store under {folder.parent}: {error}") from error
    try:
        attributes: dict[str, list[str]] = {}
        for kind in _KINDS:
            attributes[kind] = sorted(getattr(store, kind))
            for name in attributes[kind]:
                np.save(partial / f"{kind}-{name}.npy", getattr(store, kind)[name])
        np.save(partial / "node_ptr.npy", store.node_ptr)
        if store.edge_ptr is not None:
            np.save(partial / "edge_ptr.npy", store.edge_ptr)
        facts = {"format": FORMAT, "digest": store.digest, "attributes": attributes}
        (partial / "store.json").write_text(json.dumps(facts, indent=1))
        _replace(partial, folder)
    except OSError as error:
        raise UnavailableError(f"can't write the store {folder}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return open_store(folder=folder)


def _replace(partial: Path, folder: Path) -> None:
    """Move a finished directory into place; another process may have done so meanwhile."""
    if folder.exists():
        old = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.old."))
        os.replace(folder, old / "store")
        shutil.rmtree(old, ignore_errors=True)
    os.chmod(partial, 0o755)  # mkdtemp makes it private
    os.rename(partial, folder)


def open_store(*, folder: Path, digest: str | None = None) -> Store:
    """Map a store; DataError when it is missing, damaged, of another format or another `digest`."""
    try:
        facts: dict[str, Any] = json.loads((folder / "store.json").read_text())
        if facts["format"] != FORMAT:
            raise DataError(f"{folder} is a store of format {facts['format']}, not {FORMAT}")
        if digest is not None and facts["digest"] != digest:
            raise DataError(f"{folder} was made from other inputs")

        def load(name: str) -> np.ndarray:
            values: np.ndarray = np.load(folder / f"{name}.npy", mmap_mode="r")
            return values

        parts = {
            kind: {name: load(f"{kind}-{name}") for name in facts["attributes"][kind]}
            for kind in _KINDS
        }
        has_edges = (folder / "edge_ptr.npy").exists()
        store = make_store(
            node_ptr=load("node_ptr"),
            edge_ptr=load("edge_ptr") if has_edges else None,
            digest=facts["digest"],
            **parts,
        )
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise DataError(f"{folder} is not a whole store: {error}") from error
    return Store(**{**store.__dict__, "folder": folder})
