"""The peer: PyTorch Geometric's own eager SchNet and DataLoader, given every help.

Edges and distances are computed beforehand and travel with each molecule, sorted by destination;
the model's interaction graph hands them on. Its process may flush denormal numbers (see
`zoo.bench.train`) and has threads that wait as torch's do by default. It goes through the same
training step as our side: same loss, same clipping, same fused AdamW, same moving average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.batching.pack import Batch
from zoo.batching.store import Store
from zoo.bench.machine import describe, flush_denormals
from zoo.bench.sides import Side, open_any, training_state
from zoo.bench.worker import Handlers
from zoo.errors import RequestError
from zoo.recipes.energy import EnergyData
from zoo.recipes.settings import EnergyConfig


class GivenGraph(nn.Module):
    """Stands in for PyG's neighbour search: returns the edges and distances it was handed."""

    edges: tuple[Tensor, Tensor]

    def forward(self, pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        return self.edges


def molecules(*, store: Store, ids: np.ndarray, cutoff: float, labels: np.ndarray) -> list[Any]:
    """PyG `Data` of some graphs of a store: z, pos, y, edge_index and edge_weight [Å]."""
    from torch_geometric.data import Data

    made = []
    for graph in ids:
        rows = slice(int(store.node_ptr[graph]), int(store.node_ptr[graph + 1]))
        pos = torch.from_numpy(np.array(store.node["pos"][rows]))
        distance = torch.cdist(pos, pos, compute_mode="donot_use_mm_for_euclid_dist")
        near = (distance < cutoff).fill_diagonal_(False)
        target, source = near.nonzero(as_tuple=True)
        made.append(
            Data(
                z=torch.from_numpy(np.array(store.node["z"][rows], np.int64)),
                pos=pos,
                edge_index=torch.stack([source, target]),
                edge_weight=distance[near],
                y=torch.from_numpy(np.array(labels[graph : graph + 1])),
            )
        )
    return made


def pyg_loader(data: Sequence[Any], *, batch_size: int, drop_last: bool = False) -> Any:
    """PyG's DataLoader: shuffled, in this process."""
    from torch_geometric.loader import DataLoader

    return DataLoader(data, batch_size=batch_size, shuffle=True, drop_last=drop_last)


def pyg_side(*, config: EnergyConfig, data: Sequence[Any], batch_size: int) -> Side:
    """PyG's SchNet of the config's size, in float32, one batch a step."""
    from torch_geometric.nn.models.schnet import SchNet

    a = config.model.arguments
    torch.manual_seed(config.train.seed)
    graph = GivenGraph()
    module = SchNet(
        hidden_channels=a.features,
        num_filters=a.features,
        num_interactions=a.interactions,
        num_gaussians=a.gaussians,
        cutoff=a.cutoff,
    )
    module.interaction_graph = graph
    loader = pyg_loader(data, batch_size=min(batch_size, len(data)), drop_last=True)

    def groups() -> Iterator[tuple[list[Batch], int]]:
        while True:
            for batch in loader:
                yield [cast(Batch, {"z": batch.z, "pyg": batch})], batch.num_graphs

    def loss(module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        given = cast(Any, batch["pyg"])
        graph.edges = (given.edge_index, given.edge_weight)
        predicted = module(given.z, given.pos, given.batch)
        summed = F.smooth_l1_loss(predicted, given.y, reduction="sum", beta=config.loss_beta)
        return summed, torch.tensor(float(len(given.y)))

    settings = config.train.model_copy(update={"accumulate": 1, "backend": "eager"})
    task = SimpleNamespace(module=module, train_loader=loader)
    return Side(
        state=training_state(module=module, task=task, settings=settings),
        settings=settings,
        loss=loss,
        groups=groups(),
    )


def worker(
    *,
    name: str,
    preset: str,
    overrides: Sequence[str],
    molecules_: int,
    flush: bool,
    precision: str,
    inference: bool,
) -> Handlers:
    """What a process of PyG's side answers to; `molecules_` of the training split are its data."""
    flushed = flush_denormals() if flush else False  # first: threads started later inherit it
    config, data, _ = open_any(name=name, preset=preset, overrides=overrides, precision=precision)
    ids = np.random.default_rng(0).permutation(data.splits["train"])[:molecules_]
    if isinstance(config, EnergyConfig) and isinstance(data, EnergyData):
        if inference:
            raise RequestError("predictions are compared for recipes of labels only")
        cutoff, labels = config.model.arguments.cutoff, data.labels.scaled
        given = molecules(store=data.store, ids=ids, cutoff=cutoff, labels=labels)
        side: Callable[..., Side] = partial(pyg_side, config=config, data=given)
        what = "torch_geometric.nn.models.SchNet, eager, edges and distances precomputed"
    else:
        from zoo.bench import peer_gin

        given, side = peer_gin.given_side(config=config, data=data, ids=ids, inference=inference)
        what = "torch_geometric.nn.GINEConv as in OGB's example, eager, graphs precomputed"
    sides: dict[int, Side] = {}

    def warm(*, batch_size: int) -> None:
        sides[batch_size] = side(batch_size=batch_size)
        sides[batch_size].warm_up()

    def run(*, batch_size: int, seconds: float) -> float:
        return sides[batch_size].run(seconds=seconds)

    def figures(*, batch_size: int) -> dict[str, float]:
        return sides[batch_size].figures()

    def facts() -> dict[str, Any]:
        machine = describe()
        return {
            "model": what,
            "version": version("torch-geometric"),
            "precision": precision,
            "molecules": len(given),
            "denormals_flushed": flushed,
            "threads": machine["threads"],
            "omp_wait_policy": machine["omp_wait_policy"],
        }

    return {"warm": warm, "run": run, "figures": figures, "facts": facts}
