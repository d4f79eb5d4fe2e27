"""The peer of GIN: PyTorch Geometric's own eager layers, in the form of OGB's example.

An embedding for each category of atoms, and in each layer of bonds; `GINEConv` around torch's
linear layers and `BatchNorm1d`; torch's dropout; the mean of the atoms. Graphs come ready-made,
their bonds sorted by destination. It goes through the same training step as our side, with the
recipe's own loss, and in bf16 it runs under torch's autocast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.batching.pack import Batch
from zoo.batching.store import Store
from zoo.bench.peer import pyg_loader
from zoo.bench.sides import Side, task_of, training_state
from zoo.errors import RequestError
from zoo.models.gin import GINArguments
from zoo.recipes.property import PropertyTask, fitted_arguments


class Embeddings(nn.Module):
    """The sum of an embedding for each of several categories, one lookup after the other."""

    def __init__(self, sizes: Sequence[int], features: int):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, features) for size in sizes)
        for table in cast("Sequence[nn.Embedding]", self.tables):
            nn.init.xavier_uniform_(table.weight)

    def forward(self, categories: Tensor) -> Tensor:
        """int64 [N, C] -> [N, F]."""
        found = self.tables[0](categories[:, 0])
        for number in range(1, len(self.tables)):
            found = found + self.tables[number](categories[:, number])
        return cast(Tensor, found)


class PygGIN(nn.Module):
    """GIN of PyG's layers; `forward` takes {"pyg": a PyG Batch} and returns [G, outputs].

    RequestError for what OGB's example hasn't got.
    """

    def __init__(self, arguments: GINArguments):
        from torch_geometric.nn import GINEConv

        super().__init__()
        a = self.arguments = arguments
        if a.virtual_node or a.residual or a.readout != "mean" or not a.bond_categories:
            raise RequestError(
                "the peer is OGB's example: bonds, mean read-out, no virtual node, no residual"
            )

        def mlp() -> nn.Sequential:
            return nn.Sequential(
                nn.Linear(a.features, 2 * a.features),
                nn.BatchNorm1d(2 * a.features),
                nn.ReLU(),
                nn.Linear(2 * a.features, a.features),
            )

        each = range(a.layers)
        self.atoms = Embeddings(a.atom_categories, a.features)
        self.bonds = nn.ModuleList(Embeddings(a.bond_categories, a.features) for _ in each)
        self.convolutions = nn.ModuleList(GINEConv(mlp(), train_eps=True) for _ in each)
        self.norms = nn.ModuleList(nn.BatchNorm1d(a.features) for _ in each)
        self.output = nn.Linear(a.features, a.outputs)

    def forward(self, batch: Batch) -> Tensor:
        from torch_geometric.nn import global_mean_pool

        given = cast(Any, batch["pyg"])
        x = self.atoms(given.x)
        layers = zip(self.bonds, self.convolutions, self.norms, strict=True)
        for number, (bonds, convolution, norm) in enumerate(layers, start=1):
            x = norm(convolution(x, given.edge_index, bonds(given.edge_attr)))
            x = F.relu(x) if number < len(self.norms) else x
            x = F.dropout(x, self.arguments.dropout, training=self.training)
        pooled = global_mean_pool(x, given.batch, size=given.num_graphs)
        return cast(Tensor, self.output(pooled))


def molecules(*, store: Store, ids: np.ndarray, labels: np.ndarray) -> list[Any]:
    """PyG `Data` of some graphs of a store: x, edge_index, edge_attr and y [1, T]."""
    from torch_geometric.data import Data

    assert store.edge_ptr is not None  # adapters of labelled graphs store their bonds
    made = []
    for graph in ids:
        rows = slice(int(store.node_ptr[graph]), int(store.node_ptr[graph + 1]))
        bonds = slice(int(store.edge_ptr[graph]), int(store.edge_ptr[graph + 1]))

        def whole(values: Any) -> Tensor:
            return torch.from_numpy(np.array(values, np.int64))

        made.append(
            Data(
                x=whole(store.node["atom"][rows]),
                edge_index=torch.stack([whole(store.edge[end][bonds]) for end in ("src", "dst")]),
                edge_attr=whole(store.edge["bond"][bonds]),
                y=torch.from_numpy(np.array(labels[graph : graph + 1])),
            )
        )
    return made


def batches(data: Sequence[Any], *, batch_size: int) -> Iterator[tuple[list[Batch], int]]:
    """Shuffled batches without end, as the recipe's loss takes them, and the graphs of each."""
    loader = pyg_loader(data, batch_size=min(batch_size, len(data)), drop_last=True)
    while True:
        for batch in loader:
            real = torch.ones(batch.num_graphs, dtype=torch.bool)
            made = {"pyg": batch, "y": batch.y, "graphs_mask": real}
            yield [cast(Batch, made)], batch.num_graphs


def given_side(
    *, config: Any, data: Any, ids: np.ndarray, inference: bool
) -> tuple[list[Any], Callable[..., Side]]:
    """The molecules that PyG is given, and what makes its side for a `batch_size`."""
    task = task_of(config, data)
    assert isinstance(task, PropertyTask)
    arguments = fitted_arguments(config.model.arguments, data)
    labels = ((data.values - task.mean) / task.std).astype(np.float32)
    given = molecules(store=data.store, ids=ids, labels=labels)

    def side(*, batch_size: int) -> Side:
        torch.manual_seed(config.train.seed)
        module = PygGIN(arguments)
        settings = config.train.model_copy(update={"accumulate": 1, "backend": "eager"})
        held = SimpleNamespace(module=module, train_loader=None)
        return Side(
            state=training_state(module=module, task=held, settings=settings),
            settings=settings,
            loss=task.loss,
            groups=batches(given, batch_size=batch_size),
            forward=task.predict if inference else None,
        )

    return given, side
