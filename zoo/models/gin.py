"""GIN with edge embeddings for molecules (Xu et al., ICLR 2019; Hu et al., NeurIPS 2020, as OGB has
it), for batches of one fixed shape.

    x_i' = MLP((1 + eps) x_i + sum over bonds (j, i) of relu(x_j + bond embedding))

Atoms and bonds are OGB's categories. A bond's three categories make one of 60 kinds, whose
embeddings are a small table, so no tensor is made per bond (`zoo.ops.propagate_edge`). Batch
normalisation sees the real atoms alone, and dropout counts instead of drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from zoo.ops.batch_norm import batch_norm
from zoo.ops.propagate import propagate
from zoo.ops.propagate_edge import propagate_edge
from zoo.ops.segment import segment_reduce
from zoo.ops.softmax import segment_softmax

Readout = Literal["mean", "sum", "attention"]
ATOM_CATEGORIES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
"""How many values each of OGB's atom features has: element, chirality, degree, charge, hydrogens,
radicals, hybridisation, aromatic, in a ring."""
BOND_CATEGORIES = (5, 6, 2)
"""The same of bonds: type, stereo, conjugated."""


class GINArguments(BaseModel):
    """What a GIN is built from."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    features: int = Field(300, ge=1, description="width of atom features")
    layers: int = Field(5, ge=1, description="message-passing steps")
    dropout: float = Field(0.5, ge=0, lt=1, description="of each layer's output")
    virtual_node: bool = Field(False, description="a node joined to all atoms of its molecule")
    residual: bool = Field(False, description="add each layer's input to its output")
    readout: Readout = Field("mean", description="how atoms' features make the molecule's")
    outputs: int = Field(1, ge=1, description="properties or classes predicted")
    atom_categories: tuple[int, ...] = Field(
        ATOM_CATEGORIES, min_length=1, description="values of each of a node's categories"
    )
    bond_categories: tuple[int, ...] = Field(
        BOND_CATEGORIES, description="values of each of an edge's categories; none: edges alike"
    )


class BatchNorm(nn.Module):
    """Batch normalisation over the first rows of a batch; parameters named as torch's."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, *, features: int, eps: float = 1e-5, momentum: float = 0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(
        self,
        x: Tensor,
        rows: Tensor,
        *,
        relu: bool = False,
        p: float = 0.0,
        seed: Tensor | None = None,
        stream: int = 0,
    ) -> Tensor:
        """[N, F] -> [N, F]: the first `rows` rows normalised, then relu and dropout where asked."""
        if not self.training:
            scale, shift = self.learnt()
            y = torch.addcmul(shift, x, scale)
            return torch.relu(y) if relu else y
        y, mean, variance = batch_norm(
            *(x, self.weight, self.bias),
            rows=rows,
            eps=self.eps,
            relu=relu,
            p=p,
            seed=seed,
            stream=stream,
        )
        # `detach` and not `no_grad`, which would be a graph of its own in an exported step.
        mean, variance = mean.detach(), variance.detach()
        count = rows.reshape(()).to(variance.dtype)
        # A pack of padding alone, or of one row, has no variance to learn from.
        pace = torch.where(count > 1, self.momentum, 0.0)
        unbiased = variance * (count / (count - 1).clamp(min=1))
        # Written out: lerp is no operator of PopTorch's.
        for kept, new in ((self.running_mean, mean), (self.running_var, unbiased)):
            kept.add_(pace * (new.to(kept.dtype) - kept))
        self.num_batches_tracked.add_((count > 1).to(torch.int64))
        return y

    def learnt(self) -> tuple[Tensor, Tensor]:
        """Scale and shift [F] that stand for this layer once it has learnt."""
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        return scale, self.bias - self.running_mean * scale


def linear_norm(
    linear: nn.Linear, norm: BatchNorm, x: Tensor, rows: Tensor, **after: Any
) -> Tensor:
    """`norm(linear(x), rows, **after)`; in prediction one matrix product does both."""
    if norm.training:
        made: Tensor = norm(linear(x), rows, **after)
        return made
    scale, shift = norm.learnt()
    bias = torch.addcmul(shift, linear.bias, scale)
    y = nn.functional.linear(x, linear.weight * scale.unsqueeze(1), bias)
    return y.relu_() if after.get("relu") else y


class Categories(nn.Module):
    """The sum of an embedding for each of several categories."""

    def __init__(self, *, sizes: Sequence[int], features: int):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, features) for size in sizes)
        for embedding in cast("Sequence[nn.Embedding]", self.embeddings):
            nn.init.xavier_uniform_(embedding.weight)

    def forward(self, categories: Tensor) -> Tensor:
        """int [N, C] -> [N, F]."""
        found = torch.zeros((), device=categories.device)
        for number, embedding in enumerate(self.embeddings):
            found = found + embedding(categories[:, number])
        return found

    def table(self) -> Tensor:
        """A row for every combination, the last category running fastest: [product of sizes, F]."""
        found: Tensor | None = None
        for embedding in cast("Sequence[nn.Embedding]", self.embeddings):
            weight = embedding.weight
            found = weight if found is None else (found.unsqueeze(1) + weight).flatten(0, 1)
        assert found is not None
        return found


class Layer(nn.Module):
    """One message-passing step and the normalisation after it."""

    def __init__(self, *, features: int, bond_categories: Sequence[int]):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        if bond_categories:
            self.bonds = Categories(sizes=bond_categories, features=features)
        self.first = nn.Linear(features, 2 * features)
        self.first_norm = BatchNorm(features=2 * features)
        self.second = nn.Linear(2 * features, features)
        self.norm = BatchNorm(features=features)

    def forward(self, x: Tensor, graph: dict[str, Tensor], rows: Tensor, **after: Any) -> Tensor:
        if "edge_type" in graph:
            messages = propagate_edge(x, self.bonds.table().to(x.dtype), **graph)
        else:
            messages = propagate(x, **graph)
        hidden = linear_norm(
            self.first, self.first_norm, (1 + self.eps) * x + messages, rows, relu=True
        )
        return linear_norm(self.second, self.norm, hidden, rows, **after)


class VirtualNode(nn.Module):
    """What a molecule's virtual node makes of its atoms, between two layers."""

    def __init__(self, *, features: int):
        super().__init__()
        self.first = nn.Linear(features, 2 * features)
        self.first_norm = BatchNorm(features=2 * features)
        self.second = nn.Linear(2 * features, features)
        self.second_norm = BatchNorm(features=features)

    def forward(self, summed: Tensor, graphs: Tensor, **after: Any) -> Tensor:
        hidden = linear_norm(self.first, self.first_norm, summed, graphs, relu=True)
        return linear_norm(self.second, self.second_norm, hidden, graphs, relu=True, **after)


def _kinds(categories: Tensor, sizes: Sequence[int]) -> Tensor:
    """int32 [E, C] -> int32 [E]: the row of each combination in `Categories.table`."""
    kinds = categories[:, 0]
    for number, size in enumerate(sizes[1:], start=1):
        kinds = kinds * size + categories[:, number]
    return kinds


class GIN(nn.Module):
    """Molecules in fixed-shape batches -> one value per graph and output.

    `forward(batch)` takes atom int [N, 9] and bond int [E, 3] (OGB's categories, or those of the
    arguments), batch int [N],
    the edges (src, dst, dst_ptr, src_ptr, src_perm: each bond both ways), the masks and, to train
    with dropout, seed int [1]; it returns [G, outputs]. Rows of padding graphs hold no meaning.
    """

    HEAD = ("output.",)
    """How the parameters that belong to the predicted properties begin."""

    def __init__(self, *, arguments: GINArguments):
        super().__init__()
        a = self.arguments = arguments
        self.atoms = Categories(sizes=a.atom_categories, features=a.features)
        self.layers = nn.ModuleList(
            Layer(features=a.features, bond_categories=a.bond_categories) for _ in range(a.layers)
        )
        if a.virtual_node:
            self.virtual = nn.Parameter(torch.zeros(1, a.features))
            self.virtual_layers = nn.ModuleList(
                VirtualNode(features=a.features) for _ in range(a.layers - 1)
            )
        if a.readout == "attention":
            self.gate = nn.Sequential(
                nn.Linear(a.features, 2 * a.features),
                nn.ReLU(),
                nn.Linear(2 * a.features, 1, bias=False),
            )
        self.output = nn.Linear(a.features, a.outputs)
        self._frozen = False

    def freeze(self) -> None:
        """Leave all but the output layer as it is: it has no gradients, drops nothing, and batch
        normalisation goes by what it has learnt.
        """
        self._frozen = True
        self.requires_grad_(False)
        self.output.requires_grad_(True)
        self.train(self.training)

    def train(self, mode: bool = True) -> GIN:
        super().train(mode)
        if self._frozen:
            for child in self.children():
                child.train(mode and child is self.output)
        return self

    def embed(self, batch: dict[str, Tensor]) -> Tensor:
        """Atoms' features after the last layer: [N, F]; padding rows hold no meaning."""
        a = self.arguments
        graph = {name: batch[name] for name in ("src", "dst", "dst_ptr", "src_ptr", "src_perm")}
        if a.bond_categories:
            graph["edge_type"] = _kinds(batch["bond"].to(torch.int32), a.bond_categories)
        rows = batch["nodes_mask"].sum(dtype=torch.int32)
        x: Tensor = self.atoms(batch["atom"])
        p = a.dropout if self.training and not self._frozen else 0.0
        seed = batch["seed"] if p > 0 else None
        if a.virtual_node:
            graphs = batch["graphs_mask"].sum(dtype=torch.int32)
            virtual = self.virtual.expand(batch["graphs_mask"].shape[0], -1)
        for number, layer in enumerate(self.layers):
            if a.virtual_node:
                x = x + virtual.index_select(0, batch["batch"])
            last = number == a.layers - 1
            y: Tensor = layer(x, graph, rows, relu=not last, p=p, seed=seed, stream=2 * number)
            y = y + x if a.residual else y
            if a.virtual_node and not last:
                summed = self._sum(x, batch) + virtual
                virtual = self.virtual_layers[number](
                    summed, graphs, p=p, seed=seed, stream=2 * number + 1
                )
            x = y
        return x

    def graph_features(self, batch: dict[str, Tensor]) -> Tensor:
        """What is read out of the atoms, before the output layer: [G, F]."""
        return self._read_out(self.embed(batch), batch)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        result: Tensor = self.output(self.graph_features(batch))
        return result

    def _read_out(self, x: Tensor, batch: dict[str, Tensor]) -> Tensor:
        if self.arguments.readout == "attention":
            score = torch.where(batch["nodes_mask"].unsqueeze(1), self.gate(x), 0.0)
            x = x * segment_softmax(score, batch["node_ptr"]).to(x.dtype)
        summed = self._sum(x, batch)
        if self.arguments.readout != "mean":
            return summed
        ptr = batch["node_ptr"]
        atoms = (ptr[1:] - ptr[:-1]).to(x.dtype).clamp(min=1)
        return summed / atoms.unsqueeze(1)

    def _sum(self, x: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """Sum of the real atoms of each graph: [G, F]."""
        # Replaced, not left to padding graphs: NaN there would reach the weights' gradients.
        x = torch.where(batch["nodes_mask"].unsqueeze(1), x, torch.zeros_like(x))
        return segment_reduce(x, batch["node_ptr"])
