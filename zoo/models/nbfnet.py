"""NBFNet: which entity completes a fact, by paths through a graph (Zhu et al., NeurIPS 2021).

A query (h, r) starts with its own vector at h and nothing elsewhere. Each layer is a step of a
generalised Bellman-Ford iteration: every node takes what its neighbours hold, transformed by the
relation of the edge between them, together with its start:

    a_v = reduce({q_v} and {message(x_u, w_t) for each edge (u -> v) of relation t})
    x_v' = relu(norm(W [x_v, a_v]))  (+ x_v)

After the last layer the score of (h, r, v) is a small network of x_v and the query. No parameter
belongs to an entity, so that entities never seen before are ranked too.

With PNA the reduction has four moments, each as it is, amplified and attenuated by the logarithm of
the node's degree. Those factors are the same for all of a node's features, so they are applied to
what a linear layer makes of the moments, three widths wide, and not to the moments, twelve wide.

A graph without relations is one whose edges are all of relation 0.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.ops.propagate_relation import Message, propagate_relation

Aggregation = Literal["sum", "mean", "max", "pna"]


class NBFNetArguments(BaseModel):
    """What an NBFNet is built from."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    relations: int = Field(2, ge=1, description="relations of edges, inverse ones included")
    features: int = Field(32, ge=2, description="width of node features")
    layers: int = Field(6, ge=1, description="steps, the longest path in edges")
    message: Message = Field("multiply", description="how a relation transforms a node's features")
    aggregation: Aggregation = Field("pna", description="how messages are reduced")
    by_query: bool = Field(True, description="relations' vectors depend on the query's relation")
    layer_norm: bool = Field(True, description="normalise each layer's output")
    shortcut: bool = Field(True, description="add each layer's input to its output")


class Layer(nn.Module):
    """One step: [N, B, D] -> [N, B, D] for B queries at once."""

    def __init__(self, *, arguments: NBFNetArguments):
        super().__init__()
        self.arguments = arguments
        width, relations = arguments.features, arguments.relations
        self.relations: nn.Module
        if arguments.by_query:
            self.relations = nn.Linear(width, relations * width)
        else:
            self.relations = nn.Embedding(relations, width)
        moments = 12 if arguments.aggregation == "pna" else 1
        self.update = nn.Linear((1 + moments) * width, width)
        self.norm = nn.LayerNorm(width) if arguments.layer_norm else nn.Identity()

    def relation_vectors(self, query: Tensor) -> Tensor:
        """[B, D] -> [R, B, D]."""
        width = self.arguments.features
        if isinstance(self.relations, nn.Embedding):
            return self.relations.weight.unsqueeze(1).expand(-1, query.shape[0], -1)
        vectors: Tensor = self.relations(query).view(query.shape[0], -1, width)
        return vectors.transpose(0, 1).contiguous()

    def forward(
        self, x: Tensor, start: Tensor, query: Tensor, graph: dict[str, Tensor], entries: Tensor
    ) -> Tensor:
        """`entries` [N]: each node's edges that are kept, and its start."""
        kind = self.arguments.aggregation
        reduced = propagate_relation(
            x,
            self.relation_vectors(query),
            start,
            **graph,
            message=self.arguments.message,
            reduce="moments" if kind == "pna" else "max" if kind == "max" else "sum",
        )
        if kind == "mean":
            reduced = reduced / entries.view(-1, 1, 1)
        out: Tensor = self.norm(self._updated(x, reduced, entries)).relu()
        return out + x if self.arguments.shortcut else out

    def _updated(self, x: Tensor, reduced: Tensor, entries: Tensor) -> Tensor:
        width = self.arguments.features
        weight = self.update.weight
        if self.arguments.aggregation != "pna":
            return F.linear(torch.cat([x, reduced], dim=-1), weight, self.update.bias)
        degree = entries.log()
        scale = (degree / degree.mean().clamp(min=1e-6)).view(-1, 1, 1)
        parts = weight[:, width:].chunk(3, dim=1)
        plain, amplified, attenuated = F.linear(reduced, torch.cat(parts)).chunk(3, dim=-1)
        out = F.linear(x, weight[:, :width], self.update.bias) + plain
        return out + scale * amplified + attenuated / scale.clamp(min=1e-2)


class NBFNet(nn.Module):
    """Scores of tails for B queries on one graph of N nodes and E edge slots.

    A batch holds the graph as `zoo.ops.propagate_relation` wants it (edge_type, src, dst int32 [E],
    dst_ptr int32 [N + 1], keep bool [E]) and queries: head, relation int64 [B], tails int64 [B, K].
    """

    def __init__(self, *, arguments: NBFNetArguments):
        super().__init__()
        self.arguments = arguments
        width = arguments.features
        self.query = nn.Embedding(arguments.relations, width)
        self.layers = nn.ModuleList(Layer(arguments=arguments) for _ in range(arguments.layers))
        self.hidden = nn.Linear(2 * width, 2 * width)
        self.score = nn.Linear(2 * width, 1)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Scores of each query's own tails: [B, K]."""
        x, query = self.node_features(batch)
        place = batch["tails"].t().unsqueeze(-1).expand(-1, -1, x.shape[2])
        return self._scores(x.gather(0, place), query)

    def all_scores(self, batch: dict[str, Tensor]) -> Tensor:
        """Scores of every node as each query's tail: [B, N]."""
        x, query = self.node_features(batch)
        return self._scores(x, query)

    def node_features(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Features of every node for each query [N, B, D], and the queries' vectors [B, D]."""
        graph = {k: batch[k] for k in ("edge_type", "src", "dst", "dst_ptr", "keep")}
        query = self.query(batch["relation"])
        nodes, queries = batch["dst_ptr"].shape[0] - 1, query.shape[0]
        head = batch["head"]
        at_head = torch.arange(nodes, device=head.device).unsqueeze(1) == head
        start = at_head.unsqueeze(-1).to(query.dtype) * query
        entries = entries_of(graph, nodes).to(query.dtype)
        x = start
        for layer in self.layers:
            x = layer(x, start, query, graph, entries)
        return x.view(nodes, queries, -1), query

    def _scores(self, x: Tensor, query: Tensor) -> Tensor:
        """Of nodes x [K, B, D] for each query: [B, K]. The first linear layer takes a node and the
        query each by itself: they are never joined.
        """
        of_node, of_query = self.hidden.weight.chunk(2, dim=1)
        hidden = F.linear(x, of_node, self.hidden.bias) + F.linear(query, of_query)
        scores: Tensor = self.score(hidden.relu()).squeeze(-1)
        return scores.t()


def entries_of(graph: dict[str, Tensor], nodes: int) -> Tensor:
    """Each node's edges that are kept, and its start: int64 [N]."""
    ptr, keep = graph["dst_ptr"], graph["keep"]
    before = F.pad(keep.to(torch.int64).cumsum(0), (1, 0))
    return 1 + before[ptr[1:].long()] - before[ptr[:-1].long()]
