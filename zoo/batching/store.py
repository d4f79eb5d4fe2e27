"""The flat store: a dataset as one memory-mapped array per attribute.

All graphs lie end to end; `node_ptr` (and `edge_ptr`, where edges are stored) say where each one
begins. A store is a directory of .npy files and a `store.json` with a format number and a digest of
what it was made from. It is written once, beside its place, and renamed; opening it maps the files
and reads little, so ten million molecules open as fast as ten.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from zoo.batching.kernels import count_within
from zoo.batching.valid import check_edges, check_integers, check_lengths, check_names
from zoo.errors import DataError, UnavailableError
from zoo.files import disk, sha256_file, sweep, sync_folder, write_file

FORMAT = 2
VERIFIED_BYTES = 64 << 20
"""Stores up to this size are held to their files' sha256 when opened (about 0.1 s); larger ones to
the files' sizes, since reading them whole is what a store is there to avoid."""
_KINDS = ("node", "edge", "graph")


@dataclass(frozen=True, kw_only=True)
class Store:
    """Graphs end to end. `node[name]` is [total nodes, ...], `graph[name]` [graphs, ...]; where
    edges are stored, `edge[name]` is [total edges, ...], of which `src` and `dst` are ids within
    their graph, sorted by destination, then source.
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

        The count for a cutoff is one pass over the positions, kept beside the store. DataError
        where there are neither edges nor positions.
        """
        if cutoff is None:
            if self.edge_ptr is None:
                raise DataError("this store holds no edges, and no cutoff was given to find them")
            return np.diff(self.edge_ptr).astype(np.int32)
        if "pos" not in self.node:
            raise DataError("this store holds no positions to find edges within a cutoff from")
        path = self.folder and self.folder / f"edges-within-{float(cutoff)!r}.npy"
        if path:
            with contextlib.suppress(OSError, ValueError, EOFError):  # none yet, or damaged
                counts: np.ndarray = np.load(path, mmap_mode="r")
                if counts.shape == (len(self),) and counts.dtype == np.int32:
                    return counts
        counts = np.empty(len(self), np.int32)
        count_within(self.node["pos"], self.node_ptr, float(cutoff), counts)
        if path:
            with contextlib.suppress(OSError):  # a read-only store only counts anew
                _save_beside(path, counts)
        return counts


def make_store(
    *,
    node_ptr: np.ndarray,
    node: Mapping[str, np.ndarray],
    graph: Mapping[str, np.ndarray],
    edge: Mapping[str, np.ndarray] | None = None,
    edge_ptr: np.ndarray | None = None,
    digest: str = "",
) -> Store:
    """A store in memory. Lengths, pointers, edges and names are checked: DataError says which graph
    or attribute is wrong.
    """
    edge = dict(edge or {})
    check_lengths(node_ptr=node_ptr, edge_ptr=edge_ptr, node=node, edge=edge, graph=graph)
    check_names(node=node, edge=edge, graph=graph)
    check_integers({**node, **edge})
    if edge_ptr is not None:
        check_edges(node_ptr=node_ptr, edge_ptr=edge_ptr, src=edge["src"], dst=edge["dst"])
        edge = {**edge, "src": edge["src"].astype(np.int32), "dst": edge["dst"].astype(np.int32)}
    return Store(
        node_ptr=np.asarray(node_ptr, np.int64),
        node=_contiguous(node),
        graph=_contiguous(graph),
        edge=_contiguous(edge),
        edge_ptr=None if edge_ptr is None else np.asarray(edge_ptr, np.int64),
        digest=digest,
        folder=None,
    )


def _contiguous(attributes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.ascontiguousarray(values) for name, values in attributes.items()}


def cached_store(*, folder: Path, digest: str, make: Callable[[], Store]) -> Store:
    """The store at `folder`; where there is none, a damaged one or one of another `digest`, what
    `make` returns, written there.

    Of several processes at once one makes it and the others wait. Where the disk refuses, the store
    stays in memory, with a warning that names the path.
    """
    with contextlib.suppress(DataError):
        return open_store(folder=folder, digest=digest)
    with contextlib.ExitStack() as stack:
        refused = None
        try:
            stack.enter_context(_locked(folder))
        except UnavailableError as error:
            refused = error
        with contextlib.suppress(DataError):
            return open_store(folder=folder, digest=digest)
        store = replace(make(), digest=digest)
        try:
            if refused is None:
                return _write(folder, store)
        except UnavailableError as error:
            refused = error
    warnings.warn(f"{refused}; it will be made anew each time", stacklevel=2)
    return store


def write_store(*, folder: Path, store: Store) -> Store:
    """Write a store to `folder` (replacing what is there) and open it memory-mapped.

    Raises UnavailableError naming the path when the disk is full or read-only; nothing half-written
    stays.
    """
    with _locked(folder):
        return _write(folder, store)


def open_store(*, folder: Path, digest: str | None = None) -> Store:
    """Map a store; DataError when it is missing, damaged, of another format or another `digest`."""
    try:
        facts: dict[str, Any] = json.loads((folder / "store.json").read_text())
        if facts["format"] != FORMAT:
            raise DataError(f"{folder} is a store of format {facts['format']}, not {FORMAT}")
        if digest is not None and facts["digest"] != digest:
            raise DataError(f"{folder} was made from other inputs")
        _verify(folder, facts["files"])
        parts: dict[str, dict[str, np.ndarray]] = {
            kind: {name: _map(folder / f"{kind}-{name}.npy") for name in facts["attributes"][kind]}
            for kind in _KINDS
        }
        edges = "edge_ptr.npy" in facts["files"]
        node_ptr = _map(folder / "node_ptr.npy")
        edge_ptr = _map(folder / "edge_ptr.npy") if edges else None
        check_lengths(node_ptr=node_ptr, edge_ptr=edge_ptr, **parts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError) as error:
        raise DataError(f"{folder} is not a whole store: {error}") from error
    return Store(
        node_ptr=node_ptr, edge_ptr=edge_ptr, digest=facts["digest"], folder=folder, **parts
    )


def _map(path: Path) -> np.ndarray:
    # A plain view: each slice of a memmap is a memmap, which is slow to make.
    values: np.ndarray = np.asarray(np.load(path, mmap_mode="r"))
    return values


def _verify(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Hold the files to their recorded sizes and, where they have one, to their hashes."""
    for name, file in files.items():
        path = folder / name
        if path.stat().st_size != file["size"]:
            raise DataError(f"{path} is damaged: {path.stat().st_size} bytes, not {file['size']}")
        if file["sha256"] is not None and sha256_file(path) != file["sha256"]:
            raise DataError(f"{path} is damaged: its sha256 is not the one it was written with")


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


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    from filelock import FileLock

    with disk(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.parent / f".{folder.name}.lock")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _write(folder: Path, store: Store) -> Store:
    """Write beside the place, then move in. Called under the lock of the place."""
    partial = folder.parent / f".{folder.name}.partial-{os.getpid()}"
    old = folder.parent / f".{folder.name}.old-{os.getpid()}"
    arrays = {f"{k}-{name}.npy": v for k in _KINDS for name, v in getattr(store, k).items()}
    arrays["node_ptr.npy"] = store.node_ptr
    if store.edge_ptr is not None:
        arrays["edge_ptr.npy"] = store.edge_ptr
    hashed = sum(values.nbytes for values in arrays.values()) <= VERIFIED_BYTES
    with disk(folder):
        for leftover in (partial, old):
            sweep(folder.parent, prefix=leftover.name.removesuffix(str(os.getpid())))
        try:
            partial.mkdir()
            facts = {
                "format": FORMAT,
                "digest": store.digest,
                "attributes": {kind: sorted(getattr(store, kind)) for kind in _KINDS},
                "files": {n: _save(partial / n, v, hashed=hashed) for n, v in arrays.items()},
            }
            write_file(partial / "store.json", json.dumps(facts, indent=1).encode())
            if folder.exists():  # mapped files stay readable for those who have them open
                os.rename(folder, old)
            os.rename(partial, folder)
            sync_folder(folder.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            if old.exists() and not folder.exists():
                os.rename(old, folder)
            shutil.rmtree(old, ignore_errors=True)
    return open_store(folder=folder)


def _save(path: Path, values: np.ndarray, *, hashed: bool) -> dict[str, Any]:
    """Write an array through to the disk; returns what it is recognised by when opened."""
    with open(path, "wb") as file:
        np.save(file, values, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    return {"size": path.stat().st_size, "sha256": sha256_file(path) if hashed else None}
