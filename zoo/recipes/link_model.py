"""A trained model of a graph's missing facts: network, relations' names, and a graph to answer on.

The graph is the one that the run was tested on, or a person's own; of entities never seen before
too, since no parameter belongs to an entity.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from zoo.artifact import MODEL, Spec, read_weights, write_weights
from zoo.datasets import kg
from zoo.datasets.kg import Graph
from zoo.datasets.kg_raw import read_triples
from zoo.errors import DataError, RequestError, WeightsError
from zoo.files import sha256_file
from zoo.models.nbfnet import NBFNet, NBFNetArguments

if TYPE_CHECKING:
    import pandas as pd

    from zoo.recipes.link import LinkTask

_FACTS, _KNOWN = "graph.facts", "graph.known"
COLUMNS = ("head", "relation", "tail")
QUERIES = 16
"""Answered at a time."""


class LinkModel:
    """A network with the names of its relations and a graph: `predict` completes facts.

    `module` is the network, `spec` what the weight file says of itself, `graph` None where the file
    holds none (a checkpoint): then facts must be given.
    """

    def __init__(
        self, *, spec: Spec, module: NBFNet, graph: Graph | None, sha256: str = ""
    ) -> None:
        self.spec, self.module, self.graph, self.sha256 = spec, module.eval(), graph, sha256
        self.modules = [self.module]
        self.relations: list[str] = list(spec.extra["relations"])
        self.columns = ["rank", "score", "known"]

    def __repr__(self) -> str:
        count = sum(p.numel() for p in self.module.parameters())
        size = f" on {len(self.graph.facts):,} facts" if self.graph else ""
        return (
            f"<{self.spec.entry}: {len(self.relations)} relations by {self.spec.architecture}"
            f"{size}, {count:,} parameters>"
        )

    def predict(
        self,
        source: Any,
        *,
        k: int = 10,
        facts: str | Path | Sequence[tuple[str, str, str]] | None = None,
        on_error: str = "nan",
    ) -> pd.DataFrame:
        """The k likeliest completions of each query, the likeliest first.

        `source` is a table with the columns head, relation and tail, a TSV or CSV of such rows, or
        a list of them; `?` or None is what is asked for, and one of head and tail is. `facts` (a
        file or a list) are another graph to answer on, in the same relations. Each row of the
        result holds a query and one completion: rank, score (the probability that the model gives
        it, not calibrated) and whether it is known already. A query that can't be answered has one
        row, which says why ("nan"), or none ("skip"), or ends the call ("raise", DataError).
        """
        if on_error not in ("nan", "skip", "raise") or k < 1:
            raise RequestError("on_error is nan, skip or raise, and k at least 1")
        graph = self._answering(facts)
        rows = _rows(source)
        asked, reasons = [], []
        for row in rows:
            query, reason = self._query(row, graph)
            if reason and on_error == "raise":
                raise DataError(f"{' '.join(cell or '?' for cell in row)}: {reason}")
            asked.append(query)
            reasons.append(reason)
        real = [query for query in asked if query is not None]
        scores = iter(self._scores(graph, np.array(real, np.int64).reshape(-1, 2)))
        known = kg.both_ways(graph.known, relations=len(self.relations))
        true: dict[tuple[int, int], set[int]] = {}
        for head, relation, tail in known.tolist():
            true.setdefault((head, relation), set()).add(tail)
        found: list[dict[str, Any]] = []
        for row, query, reason in zip(rows, asked, reasons, strict=True):
            given = dict(zip(COLUMNS, row, strict=True))
            if query is None:
                if on_error == "nan":
                    found.append({**given, "valid": False, "reason": reason})
                continue
            chances = next(scores)
            missing = "tail" if row[2] is None else "head"
            best = np.argsort(-chances, kind="stable")[:k]
            for place, entity in enumerate(best.tolist(), start=1):
                found.append(
                    {
                        **given,
                        missing: graph.entities[entity],
                        "rank": place,
                        "score": float(chances[entity]),
                        "known": entity in true.get(query, set()),
                        "valid": True,
                        "reason": "",
                    }
                )
        return _table(found)

    def _answering(self, facts: str | Path | Sequence[tuple[str, str, str]] | None) -> Graph:
        if facts is None:
            if self.graph is None:
                raise RequestError(
                    "these weights hold no graph to answer on: give its facts, as a file of heads, "
                    "relations and tails"
                )
            return self.graph
        triples = read_triples(Path(facts)) if isinstance(facts, str | Path) else list(facts)
        number = {name: at for at, name in enumerate(self.relations)}
        entities: dict[str, int] = {}
        rows = []
        for head, relation, tail in triples:
            if relation not in number:
                raise DataError(f"a fact of the graph has the {self._unknown(relation)}")
            ends = [entities.setdefault(end, len(entities)) for end in (head, tail)]
            rows.append((ends[0], number[relation], ends[1]))
        table = np.unique(np.array(rows, np.int64).reshape(-1, 3), axis=0)
        return Graph(entities=tuple(entities), facts=table, known=table)

    def _query(
        self, row: tuple[str | None, ...], graph: Graph
    ) -> tuple[tuple[int, int] | None, str]:
        """Entity and relation that are asked about, or why they can't be."""
        head, relation, tail = row
        if relation is None or (head is None) == (tail is None):
            return None, "a query has a relation, and either a head or a tail"
        if relation not in self.relations:
            return None, self._unknown(relation)
        entity = head if head is not None else tail
        assert entity is not None
        if entity not in graph.numbers:
            near = difflib.get_close_matches(entity, graph.entities, n=1)
            return None, f"entity {entity!r} isn't in the graph" + (
                f" (the nearest is {near[0]!r})" if near else ""
            )
        shift = 0 if head is not None else len(self.relations)
        return (graph.numbers[entity], self.relations.index(relation) + shift), ""

    def _unknown(self, relation: str) -> str:
        near = difflib.get_close_matches(relation, self.relations, n=1, cutoff=0.0)
        return f"relation {relation!r}, which training never saw (the nearest is {near[0]!r})"

    def _scores(self, graph: Graph, queries: np.ndarray) -> np.ndarray:
        """Probabilities of every entity: float32 [queries, N]."""
        from zoo.recipes.link import graph_tensors

        made = kg.edges(graph, relations=len(self.relations))
        constant = graph_tensors(made, device=torch.device("cpu"))
        found = [np.zeros((0, len(graph.entities)), np.float32)]
        for begin in range(0, len(queries), QUERIES):
            some = torch.from_numpy(queries[begin : begin + QUERIES])
            with torch.no_grad():
                batch = {**constant, "head": some[:, 0], "relation": some[:, 1]}
                found.append(self.module.all_scores(batch).sigmoid().numpy())
        return np.concatenate(found)


def _rows(source: Any) -> list[tuple[str | None, ...]]:
    """Queries as (head, relation, tail), None for what is asked."""
    import pandas as pd

    if isinstance(source, str | Path):
        source = read_triples(Path(source))
    if isinstance(source, pd.DataFrame):
        table = source.reindex(columns=list(COLUMNS))
        source = table.astype(object).where(table.notna(), None).itertuples(index=False, name=None)
    rows = [tuple(row) for row in source]
    if any(len(row) != 3 for row in rows):
        raise RequestError("a query is a head, a relation and a tail, of which one is None")
    return [
        tuple(None if cell is None or str(cell).strip() in ("", "?") else str(cell) for cell in row)
        for row in rows
    ]


def _table(found: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    columns = [*COLUMNS, "rank", "score", "known", "valid", "reason"]
    table = pd.DataFrame(found, columns=columns)
    return table.astype({"rank": "Int64", "score": "float64", "known": "boolean"})


def write_link_model(*, task: LinkTask, module: torch.nn.Module, folder: Path) -> None:
    """Write the network with the graph that it was tested on into a run's folder."""
    graph = task.data.test_graph
    tensors = {name: value.detach() for name, value in module.state_dict().items()}
    tensors[_FACTS] = torch.from_numpy(graph.facts.astype(np.int32))
    tensors[_KNOWN] = torch.from_numpy(graph.known.astype(np.int32))
    spec = task.spec
    extra = {**spec.extra, "entities": list(graph.entities)}
    write_weights(
        path=folder / MODEL, tensors=tensors, spec=spec.model_copy(update={"extra": extra})
    )


def load_link_model(path: Path) -> LinkModel:
    """Build the model that a weight file describes. WeightsError where tensors don't fit it, or
    where what it says of itself makes no sense.
    """
    spec, tensors = read_weights(path)
    try:
        arguments = NBFNetArguments(**spec.arguments)
        own = {k: v.float() for k, v in tensors.items() if not k.startswith("graph.")}
        module = _module(arguments, own, where=str(path))
        if arguments.relations != 2 * len(spec.extra["relations"]):
            raise ValueError(f"{arguments.relations} directions of other relations")
        graph = _graph(spec, tensors)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise WeightsError(f"{path} has a damaged spec: {key}: {first['msg']}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{path} has a damaged spec: {error}") from error
    return LinkModel(spec=spec, module=module, graph=graph, sha256=sha256_file(path))


def _graph(spec: Spec, tensors: Mapping[str, Tensor]) -> Graph | None:
    if _FACTS not in tensors:
        return None
    entities = tuple(spec.extra["entities"])
    tables = [tensors[name].numpy().astype(np.int64) for name in (_FACTS, _KNOWN)]
    limits = (len(entities), len(spec.extra["relations"]), len(entities))
    for table in tables:
        if table.ndim != 2 or table.shape[1] != 3 or (table < 0).any() or (table >= limits).any():
            raise ValueError("the graph's facts don't fit its entities")
    return Graph(entities=entities, facts=tables[0], known=tables[1])


def _module(arguments: NBFNetArguments, tensors: Mapping[str, Tensor], *, where: str) -> NBFNet:
    with torch.random.fork_rng(devices=[]):
        module = NBFNet(arguments=arguments)
    expected = {name: value.shape for name, value in module.state_dict().items()}
    if expected != {name: value.shape for name, value in tensors.items()}:
        raise WeightsError(f"{where}: its tensors are not those of the nbfnet it names")
    module.load_state_dict(dict(tensors))
    return module
