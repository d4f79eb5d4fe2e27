"""SMILES to graphs of atoms and bonds, many at a time, in spawned processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import numpy as np

Made = TypeVar("Made")

CHUNK = 500
"""Molecules that a process takes at a time."""
FEW = 2000
"""Below this many molecules a process of its own takes longer to start than to be of use."""


@dataclass(frozen=True, kw_only=True)
class Graphs:
    """Some molecules' graphs end to end, in the order they were given.

    atom uint8 [N, 9], bond uint8 [E, 3], src and dst int32 [E] (within a molecule), nodes and edges
    int64 [molecules]. A molecule that can't be read has none of them and a reason; others have "".
    `canonical` is RDKit's SMILES of the molecule, the same however it was written.
    """

    atom: np.ndarray
    bond: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray
    reasons: list[str]
    scaffolds: list[str]
    canonical: list[str]


def featurise(smiles: Iterable[str], *, workers: int) -> Iterator[Graphs]:
    """The graphs of SMILES, `CHUNK` at a time, in order; with several `workers` as many processes.

    What RDKit can't read is told in `reasons`; nothing is raised for it.
    """
    return spawned(graphs_of, smiles, workers=workers)


def spawned(
    work: Callable[[Sequence[str]], Made], texts: Iterable[str], *, workers: int
) -> Iterator[Made]:
    """What `work` makes of texts, `CHUNK` at a time, in order; with several `workers` as many
    processes, if there are enough texts.

    They are spawned: forked ones would inherit threads' locks. They run nothing of the program that
    asks, so that a script needs no guard against being run anew.
    """
    chunks = (list(chunk) for chunk in _batched(texts))
    first = list(islice(chunks, FEW // CHUNK))
    if workers <= 1 or len(first) < FEW // CHUNK:
        yield from map(work, first)
        yield from map(work, chunks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        with _no_program():  # all processes start with the first chunk
            waiting = deque(pool.submit(work, chunk) for chunk in first)
        while waiting:
            # No more is read than is being worked on: an input of any length is held in part.
            waiting.extend(pool.submit(work, chunk) for chunk in islice(chunks, 1))
            yield waiting.popleft().result()


@contextlib.contextmanager
def _no_program() -> Iterator[None]:
    """Hide from `multiprocessing` where the program came from, which processes else import."""
    main: dict[str, Any] = vars(sys.modules["__main__"])
    known: dict[str, Any] = {name: main[name] for name in ("__spec__", "__file__") if name in main}
    main.update(dict.fromkeys(known))
    try:
        yield
    finally:
        main.update(known)


def _batched(texts: Iterable[str]) -> Iterator[tuple[str, ...]]:
    source = iter(texts)
    while chunk := tuple(islice(source, CHUNK)):
        yield chunk


def graphs_of(smiles: Sequence[str]) -> Graphs:
    """The graphs of some SMILES, in this process."""
    from rdkit import Chem

    from zoo.chem.graphs import MolecularGraph, graph_of
    from zoo.chem.rdkit_log import caught
    from zoo.chem.scaffolds import scaffold

    found: list[MolecularGraph | None] = []
    reasons, scaffolds, canonical = [], [], []
    for text in smiles:
        reason = ""
        mol: Any = None
        if not text.strip():
            reason = "an empty SMILES"
        else:
            with caught() as error:
                mol = Chem.MolFromSmiles(text)
            if mol is None:
                said = error()
                reason = "RDKit refuses this SMILES" + (f": {said}" if said else "")
            elif mol.GetNumAtoms() == 0:
                reason = "a molecule without atoms"
        reasons.append(reason)
        found.append(None if reason else graph_of(mol))
        scaffolds.append("" if reason else scaffold(mol))
        canonical.append("" if reason else Chem.MolToSmiles(mol))
    good = [graph for graph in found if graph is not None]

    def joined(name: str, dtype: type, width: tuple[int, ...]) -> np.ndarray:
        parts = [getattr(graph, name) for graph in good]
        return np.concatenate([np.zeros((0, *width), dtype), *parts])

    return Graphs(
        atom=joined("atom", np.uint8, (9,)),
        bond=joined("bond", np.uint8, (3,)),
        src=joined("src", np.int32, ()),
        dst=joined("dst", np.int32, ()),
        nodes=np.array([0 if g is None else len(g.atom) for g in found], np.int64),
        edges=np.array([0 if g is None else len(g.src) for g in found], np.int64),
        reasons=reasons,
        scaffolds=scaffolds,
        canonical=canonical,
    )
