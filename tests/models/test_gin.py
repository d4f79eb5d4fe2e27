"""GIN: padding, order, compilation, batch norm of real atoms, and the same as PyG's layers."""

from __future__ import annotations

import properties
import pytest
import torch
from gin_subject import FORMS, PACK, subject
from properties import Subject
from torch import nn
from torch_geometric.nn import GINEConv, global_mean_pool

import zoo
from zoo.models.gin import ATOM_CATEGORIES, BOND_CATEGORIES, GIN, BatchNorm, GINArguments


@pytest.fixture(params=FORMS)
def model(request) -> Subject:
    return subject(request.param)


def test_padding_adds_nothing(model):
    properties.check_padding_adds_nothing(model, PACK)


def test_padding_is_never_read(model):
    properties.check_padding_is_never_read(model, PACK)


def test_order_of_graphs(model):
    properties.check_order_of_graphs(model, PACK)


def test_all_padding(model):
    properties.check_all_padding(model)


def test_every_parameter_learns():
    properties.check_every_parameter_learns(subject("mean"), PACK)


@pytest.mark.parametrize("form", ["mean", "virtual"])
def test_compiles_once(form):
    properties.check_compiles_once(subject(form), [PACK, [4], [6, 7, 8], [], PACK[::-1]])


def test_a_training_step_sees_the_real_atoms_alone():
    kept = subject("virtual")
    module = (
        zoo.create("gin", features=6, layers=3, virtual_node=True, dropout=0.3).double().train()
    )
    batch = kept.pack(PACK)
    batch["seed"] = torch.tensor([5], dtype=torch.int32)
    spoilt = {**properties.fill_padding(kept, batch, fill="nan", seed=0, strays=False)}
    spoilt["seed"] = batch["seed"]
    state = {k: v.clone() for k, v in module.state_dict().items()}
    first = module(batch)[batch["graphs_mask"]]
    after = {k: v.clone() for k, v in module.state_dict().items()}
    module.load_state_dict(state)
    second = module(spoilt)[batch["graphs_mask"]]
    assert torch.equal(first, second)
    assert all(torch.equal(after[k], v) for k, v in module.state_dict().items())
    assert not torch.equal(after["layers.0.norm.running_mean"], state["layers.0.norm.running_mean"])
    batch["seed"] = torch.tensor([6], dtype=torch.int32)
    assert not torch.equal(module(batch)[batch["graphs_mask"]], first)


def test_batch_norm_learns_nothing_from_padding_and_is_torchs_otherwise():
    ours, theirs = BatchNorm(features=4).double(), nn.BatchNorm1d(4).double()
    x = torch.randn(9, 4, dtype=torch.float64)
    for rows in (6, 9):
        ours(x, torch.tensor([rows]))
        theirs(x[:rows])
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)
    before = {k: v.clone() for k, v in ours.state_dict().items()}
    for rows in (0, 1):  # no variance to learn from
        ours(x, torch.tensor([rows]))
    assert all(torch.equal(before[k], v) for k, v in ours.state_dict().items())
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(x, torch.tensor([9])), theirs(x))


class Peer(nn.Module):
    """The same network of PyG's own layers."""

    def __init__(self, features: int, layers: int):
        super().__init__()

        def embed(sizes):
            return nn.ModuleList(nn.Embedding(size, features) for size in sizes)

        def mlp():
            return nn.Sequential(
                nn.Linear(features, 2 * features),
                nn.BatchNorm1d(2 * features),
                nn.ReLU(),
                nn.Linear(2 * features, features),
            )

        self.atoms = embed(ATOM_CATEGORIES)
        self.bonds = nn.ModuleList(embed(BOND_CATEGORIES) for _ in range(layers))
        self.convolutions = nn.ModuleList(GINEConv(mlp(), train_eps=True) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(features) for _ in range(layers))
        self.output = nn.Linear(features, 1)

    def load(self, model: GIN) -> None:
        state = model.state_dict()

        def take(part: nn.Module, prefix: str) -> None:
            part.load_state_dict(
                {k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)}
            )

        take(self.atoms, "atoms.embeddings.")
        take(self.output, "output.")
        for n, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            take(self.bonds[n], f"layers.{n}.bonds.embeddings.")
            convolution.eps.data.copy_(state[f"layers.{n}.eps"])
            for place, name in ((0, "first"), (1, "first_norm"), (3, "second")):
                take(convolution.nn[place], f"layers.{n}.{name}.")
            take(norm, f"layers.{n}.norm.")

    def forward(self, atom, edge_index, bond, batch):
        x = sum(e(atom[:, c]) for c, e in enumerate(self.atoms))
        for n, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            edges = sum(e(bond[:, c]) for c, e in enumerate(self.bonds[n]))
            x = norm(convolution(x, edge_index, edges))
            x = torch.relu(x) if n < len(self.norms) - 1 else x
        return self.output(global_mean_pool(x, batch))


@pytest.mark.parametrize("training", [False, True])
def test_it_is_pygs_gine(training):
    kept = subject("mean")
    torch.manual_seed(1)
    module = GIN(arguments=GINArguments(features=6, layers=3, dropout=0.0)).double()
    module.load_state_dict(kept.module.state_dict())
    peer = Peer(6, 3).double()
    peer.load(module)
    module.train(training), peer.train(training)
    batch = kept.pack(PACK)
    nodes, edges = int(batch["nodes_mask"].sum()), int(batch["edges_mask"].sum())
    ends = torch.stack([batch["src"], batch["dst"]])[:, :edges].long()
    atom, bond = batch["atom"][:nodes].long(), batch["bond"][:edges].long()
    wanted = peer(atom, ends, bond, batch["batch"][:nodes].long())
    found = module(batch)[batch["graphs_mask"]]
    torch.testing.assert_close(found, wanted)
    found.square().sum().backward()
    wanted.square().sum().backward()
    for ours, theirs in (
        (module.layers[0].first.weight, peer.convolutions[0].nn[0].weight),
        (module.layers[2].eps, peer.convolutions[2].eps),
        (module.atoms.embeddings[0].weight, peer.atoms[0].weight),
        (module.layers[1].bonds.embeddings[0].weight, peer.bonds[1][0].weight),
    ):
        torch.testing.assert_close(ours.grad.view_as(theirs), theirs.grad)
