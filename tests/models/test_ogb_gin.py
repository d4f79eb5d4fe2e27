"""OGB's example GIN, rebuilt here under its parameters' names: its weights give equal outputs."""

from __future__ import annotations

import pytest
import torch
from gin_subject import PACK, subject
from torch import nn
from torch_geometric.nn import global_add_pool, global_mean_pool

from zoo.errors import WeightsError
from zoo.models.gin import ATOM_CATEGORIES, BOND_CATEGORIES
from zoo.models.ogb_gin import from_ogb

WIDTH, LAYERS = 6, 3


def part(**modules) -> nn.Module:
    """A module with these parts, by name."""
    made = nn.Module()
    for name, module in modules.items():
        setattr(made, name, module)
    return made


def embeddings(sizes):
    return nn.ModuleList(nn.Embedding(size, WIDTH) for size in sizes)


def mlp(*more):
    return nn.Sequential(
        nn.Linear(WIDTH, 2 * WIDTH),
        nn.BatchNorm1d(2 * WIDTH),
        nn.ReLU(),
        nn.Linear(2 * WIDTH, WIDTH),
        *more,
    )


class Example(nn.Module):
    def __init__(self, virtual: bool):
        super().__init__()

        def convolution():
            made = part(
                mlp=mlp(), bond_encoder=part(bond_embedding_list=embeddings(BOND_CATEGORIES))
            )
            made.eps = nn.Parameter(torch.randn(1))
            return made

        self.gnn_node = part(
            atom_encoder=part(atom_embedding_list=embeddings(ATOM_CATEGORIES)),
            convs=nn.ModuleList(convolution() for _ in range(LAYERS)),
            batch_norms=nn.ModuleList(nn.BatchNorm1d(WIDTH) for _ in range(LAYERS)),
        )
        if virtual:
            self.gnn_node.virtualnode_embedding = nn.Embedding(1, WIDTH)
            self.gnn_node.mlp_virtualnode_list = nn.ModuleList(
                mlp(nn.BatchNorm1d(WIDTH), nn.ReLU()) for _ in range(LAYERS - 1)
            )
        self.graph_pred_linear = nn.Linear(WIDTH, 2)

    def forward(self, atom, edge_index, bond, batch):
        node = self.gnn_node
        x = sum(e(atom[:, c]) for c, e in enumerate(node.atom_encoder.atom_embedding_list))
        graphs = int(batch.max()) + 1
        virtual = None
        if hasattr(node, "virtualnode_embedding"):
            virtual = node.virtualnode_embedding(torch.zeros(graphs, dtype=torch.long))
        for n, (conv, norm) in enumerate(zip(node.convs, node.batch_norms, strict=True)):
            if virtual is not None:
                x = x + virtual[batch]
            edges = sum(e(bond[:, c]) for c, e in enumerate(conv.bond_encoder.bond_embedding_list))
            message = torch.relu(x[edge_index[0]] + edges)
            summed = torch.zeros_like(x).index_add(0, edge_index[1], message)
            h = norm(conv.mlp((1 + conv.eps) * x + summed))
            h = torch.relu(h) if n < LAYERS - 1 else h
            if virtual is not None and n < LAYERS - 1:
                virtual = node.mlp_virtualnode_list[n](global_add_pool(x, batch) + virtual)
            x = h
        return self.graph_pred_linear(global_mean_pool(x, batch))


@pytest.mark.parametrize("virtual", [False, True])
def test_outputs_are_equal(virtual):
    torch.manual_seed(0)
    example = Example(virtual).double().train()
    kept = subject("mean")
    batch = kept.pack(PACK)
    nodes, edges = int(batch["nodes_mask"].sum()), int(batch["edges_mask"].sum())
    ends = torch.stack([batch["src"], batch["dst"]])[:, :edges].long()
    given = (
        *(batch["atom"][:nodes].long(), ends, batch["bond"][:edges].long()),
        batch["batch"][:nodes].long(),
    )
    example(*given)  # statistics that are not those of the beginning
    example.eval()
    model = from_ogb(example.state_dict()).double().eval()
    assert model.arguments.virtual_node == virtual and model.arguments.outputs == 2
    torch.testing.assert_close(model(batch)[batch["graphs_mask"]], example(*given))


def test_what_is_no_such_model_is_refused():
    state = Example(False).state_dict()
    with pytest.raises(WeightsError, match="is no part of"):
        from_ogb({**state, "pool.gate_nn.0.weight": torch.zeros(1)})
    with pytest.raises(WeightsError, match="not the weights"):
        from_ogb({})
    less = {k: v for k, v in state.items() if "convs.1" not in k}
    with pytest.raises(WeightsError, match=r"layers\.1\..* doesn't fit"):
        from_ogb(less)
    with pytest.raises(WeightsError, match="shape doesn't fit"):
        from_ogb({**state, "gnn_node.convs.0.eps": torch.zeros(2)})
