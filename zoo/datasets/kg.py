"""Knowledge graphs: facts as (head, relation, tail), to be completed.

A recipe names a published set as `kg.fb15k237_v1`; any folder with train, valid and test files is
one too. In an inductive set the model is trained on one graph and tested on another, whose entities
it has never seen and whose relations it knows.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from zoo import hub
from zoo.datasets.facts import DatasetFacts, Source
from zoo.datasets.kg_facts import INDUCTIVE, SETS
from zoo.datasets.kg_raw import PARTS, Triple, read_archive, read_folder, read_triples
from zoo.datasets.synthetic import made_up_folder
from zoo.errors import DataError, unknown
from zoo.files import disk

_VERSION = 1
"""Goes up when a seed gives another made-up graph."""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Facts among entities: int64 [F, 3] of head, relation and tail, numbers of the names."""

    entities: tuple[str, ...]
    facts: np.ndarray
    known: np.ndarray
    """All facts known to be true here, those that are asked for too: what a rank leaves out."""

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Of each entity's name."""
        return {name: number for number, name in enumerate(self.entities)}


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """A graph to train on, one to test on (the same, unless inductive), and the facts to be found.

    `asked` holds the facts of valid, on the graph of training, and of test, on that of testing.
    """

    relations: tuple[str, ...]
    graph: Graph
    test_graph: Graph
    asked: dict[str, np.ndarray]
    digest: str
    notes: tuple[str, ...] = field(default=())
    """What was found in the files and left out."""

    @property
    def inductive(self) -> bool:
        return self.test_graph is not self.graph


def load(*, name: str, folder: Path | None = None) -> Knowledge:
    """A published set, or what lies in `folder` (then `name` only says what to call it). Files are
    found in ZOO_DATA. DataError for damaged ones, UnavailableError where there are none.
    """
    if folder is not None:
        test = folder / "test_graph"
        found = _knowledge(read_folder(folder), read_folder(test) if test.is_dir() else None)
    else:
        found = _published(name)
    for note in found.notes:
        warnings.warn(f"{folder or name}: {note}", stacklevel=2)
    return found


def facts(name: str) -> DatasetFacts:
    if name not in SETS:
        raise unknown(kind="set of kg", name=name, known=SETS)
    return SETS[name]


def edges(graph: Graph, *, relations: int) -> dict[str, np.ndarray]:
    """The graph's facts as edges in both directions, sorted by destination: src, dst, edge_type
    int32 [2 F], dst_ptr int32 [N + 1], and fact int64 [2 F], the fact that an edge stands for. The
    inverse of relation r is r + relations; nowhere else are inverses made.
    """
    head, relation, tail = graph.facts.T
    src, dst = np.concatenate([head, tail]), np.concatenate([tail, head])
    kind = np.concatenate([relation, relation + relations])
    order = np.argsort(dst, kind="stable")
    ptr = np.searchsorted(dst[order], np.arange(len(graph.entities) + 1))
    ids = {"src": src[order], "dst": dst[order], "edge_type": kind[order], "dst_ptr": ptr}
    return {
        **{name: values.astype(np.int32) for name, values in ids.items()},
        "fact": np.tile(np.arange(len(head)), 2)[order],
    }


def both_ways(facts: np.ndarray, *, relations: int) -> np.ndarray:
    """Facts as queries for their tails, then for their heads by the inverse relation: [2 F, 3]."""
    head, relation, tail = facts.T
    return np.concatenate([facts, np.stack([tail, relation + relations, head], axis=1)])


def synthesize(*, name: str, path: Path, seed: int, size: int) -> None:
    """Write a made-up set of about `size` facts into the folder `path`; of an inductive set's name
    also another graph of half the size into `path/test_graph`.

    People have parents; `grandparent` follows from two steps, and `knows` from nothing.
    """
    facts(name)
    graphs = [(path, size)] + ([(path / "test_graph", size // 2)] if name in INDUCTIVE else [])
    for number, (place, count) in enumerate(graphs):
        random = np.random.default_rng((seed, number))
        triples = _made_up(random, count=count, letter="ab"[number])
        order = random.permutation(len(triples))
        ends = {"valid": len(triples) // 10, "test": len(triples) // 5, "train": len(triples)}
        with disk(place):
            place.mkdir(parents=True, exist_ok=True)
            begin = 0
            for part, end in ends.items():
                lines = ["\t".join(triples[i]) + "\n" for i in order[begin:end]]
                (place / f"{part}.txt").write_text("".join(lines), encoding="utf-8")
                begin = end


def synthetic_folder(*, name: str, seed: int, size: int) -> Path:
    """The folder of a made-up set, written once into the user's cache."""
    facts(name)
    return made_up_folder(
        name=f"kg-{name}-{_VERSION}-{seed}-{size}",
        write=lambda path: synthesize(name=name, path=path, seed=seed, size=size),
    )


def _made_up(random: np.random.Generator, *, count: int, letter: str) -> list[Triple]:
    people = max(6, count // 4)
    parent = [0, *(int(random.integers(0, n)) for n in range(1, people))]
    name = [f"{letter}{n}" for n in range(people)]
    found = {(name[n], "parent", name[parent[n]]) for n in range(1, people)}
    found |= {(name[n], "grandparent", name[parent[parent[n]]]) for n in range(1, people)}
    while len(found) < count:
        a, b = random.integers(0, people, 2)
        if a != b:
            found.add((name[a], "knows", name[b]))
    return sorted(found)


def _published(name: str) -> Knowledge:
    known = facts(name)
    if name in INDUCTIVE:
        tables = [read_triples(_found(source)) for source in known.sources]
        first, second = (dict(zip(PARTS, part, strict=True)) for part in (tables[:3], tables[3:]))
        found = _knowledge(first, second)
    else:
        found = _knowledge(read_archive(_found(known.sources[0])), None)
    counts = {
        "relations": len(found.relations),
        "entities": len(found.graph.entities),
        "facts": len(found.graph.facts),
        "valid": len(found.asked["valid"]),
        "test": len(found.asked["test"]),
    }
    if found.inductive:
        counts["test_entities"] = len(found.test_graph.entities)
        counts["test_facts"] = len(found.test_graph.facts)
    for what, count in counts.items():
        if count != known.counts[what]:
            raise DataError(f"kg.{name} has {known.counts[what]:,} {what}, and here are {count:,}")
    return found


def _found(source: Source) -> Path:
    return hub.find_raw(filename=source.filename, sha256=source.sha256) or hub.fetch(
        filename=source.filename.rpartition("/")[2],
        sha256=source.sha256,
        mirrors=source.mirrors,
        folder=hub.cache_dir() / "raw" / "kg" / source.filename.rpartition("/")[0],
        what="the facts",
    )


def _knowledge(
    first: Mapping[str, Sequence[Triple]], second: Mapping[str, Sequence[Triple]] | None
) -> Knowledge:
    """The knowledge in the files of one graph, or of two."""
    relations: dict[str, int] = {}
    for _, relation, _ in first["train"]:
        relations.setdefault(relation, len(relations))
    notes: list[str] = []
    graph, asked = _graph(first, relations, notes, where="")
    test_graph, test = graph, asked["test"]
    if second is not None:
        test_graph, of_test = _graph(second, relations, notes, where=" of the test graph")
        test = of_test["test"]
        shared = set(graph.entities) & set(test_graph.entities)
        if shared:
            notes.append(f"{len(shared)} entities of the test graph are in the first one too")
    digest = hashlib.sha256()
    for group in (first, second or {}):
        for part in PARTS:
            digest.update("\n".join("\t".join(t) for t in group.get(part, ())).encode() + b"\0")
    return Knowledge(
        relations=tuple(relations),
        graph=graph,
        test_graph=test_graph,
        asked={"valid": asked["valid"], "test": test},
        digest=digest.hexdigest(),
        notes=tuple(notes),
    )


def _graph(
    parts: Mapping[str, Sequence[Triple]],
    relations: dict[str, int],
    notes: list[str],
    *,
    where: str,
) -> tuple[Graph, dict[str, np.ndarray]]:
    entities: dict[str, int] = {}
    numbered: dict[str, np.ndarray] = {}
    for part in PARTS:
        rows, strange = [], set()
        for head, relation, tail in parts[part]:
            h = entities.setdefault(head, len(entities))
            t = entities.setdefault(tail, len(entities))
            if relation in relations:
                rows.append((h, relations[relation], t))
            else:
                strange.add(relation)
        if strange:
            few = ", ".join(sorted(strange)[:3]) + (", ..." if len(strange) > 3 else "")
            notes.append(
                f"{len(parts[part]) - len(rows)} facts of {part}{where} left out: their relations "
                f"aren't in training ({few})"
            )
        table = np.array(rows, np.int64).reshape(-1, 3)
        unique, at = np.unique(table, axis=0, return_index=True)
        if len(unique) < len(table):
            notes.append(f"{len(table) - len(unique)} facts of {part}{where} twice: kept once")
        numbered[part] = table[np.sort(at)]
        loops = int((numbered[part][:, 0] == numbered[part][:, 2]).sum())
        if loops:
            notes.append(f"{loops} facts of {part}{where} have the same head and tail: kept")
    for one, other in (("valid", "train"), ("test", "train"), ("test", "valid")):
        both = _in_common(numbered[one], numbered[other])
        if both:
            notes.append(f"{both} facts of {one}{where} are in {other} too: its scores flatter")
    if not len(numbered["train"]):
        raise DataError(f"no facts to train on{where}")
    known = np.unique(np.concatenate([numbered[part] for part in PARTS]), axis=0)
    graph = Graph(entities=tuple(entities), facts=numbered["train"], known=known)
    return graph, {part: numbered[part] for part in ("valid", "test")}


def _in_common(one: np.ndarray, other: np.ndarray) -> int:
    rows: Iterable[tuple[int, ...]] = map(tuple, other.tolist())
    seen = set(rows)
    return sum(tuple(row) in seen for row in one.tolist())
