"""SchNet on packs: padding, order, motion, compilation and forces, for each of its forms."""

import shutil
from functools import cache

import force_properties
import numpy as np
import properties
import pytest
import torch
from molecules import molecule_store
from properties import Subject

from zoo.batching.shape import FixedSize
from zoo.models.schnet import ELEMENTS, SchNet, SchNetArguments

SIZES = [5, 1, 9, 2, 7, 3, 8, 6, 4, 2, 1, 9]
PACK = [2, 0, 1, 3, 5]
FORMS = {
    "sum": {},
    "direct": {"filters": "direct"},
    "mean": {"readout": "mean"},
    "dipole": {"readout": "dipole", "outputs": 2},
    "spatial_extent": {"readout": "spatial_extent"},
}


@cache
def subject(form: str) -> Subject:
    arguments = {"features": 12, "interactions": 2, "gaussians": 8, "cutoff": 3.0, "knots": 24}
    torch.manual_seed(0)
    module = SchNet(arguments=SchNetArguments(**arguments, **FORMS[form])).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():  # biases start at zero, which hides mistakes
            parameter.add_(0.1 * torch.randn_like(parameter))
        module.embedding.weight[0] = 0
    outputs = module.arguments.outputs
    targets = np.random.default_rng(1).standard_normal((len(SIZES), outputs))
    targets[3, 0] = np.nan
    return Subject(
        module=module,
        store=molecule_store(SIZES),
        shape=FixedSize(nodes=32, edges=200, graphs=8),
        targets=targets,
        cutoff=3.0,
        ids={"z": ELEMENTS},
    )


@pytest.fixture(params=FORMS)
def model(request) -> Subject:
    return subject(request.param)


def test_the_cutoff_cuts_some_pairs_off():
    # else the tests below would say nothing about it
    batch = subject("sum").pack(PACK)
    sizes = [SIZES[g] for g in PACK]
    assert 0 < int(batch["edges_mask"].sum()) < sum(n * (n - 1) for n in sizes)


def test_padding_adds_nothing(model):
    properties.check_padding_adds_nothing(model, PACK)


@pytest.mark.parametrize("strays", [False, True])
def test_padding_is_never_read(model, strays):
    properties.check_padding_is_never_read(model, PACK, strays=strays)


def test_padding_rows_are_zero(model):
    properties.check_padding_rows_are_zero(model, PACK)


def test_order_of_graphs(model):
    properties.check_order_of_graphs(model, PACK)


def test_order_of_atoms(model):
    properties.check_order_of_nodes(model, PACK)


def test_rigid_motion(model):
    properties.check_rigid_motion(model, PACK)


def test_all_padding(model):
    properties.check_all_padding(model)


def test_every_parameter_learns(model):
    properties.check_every_parameter_learns(model, PACK)


def test_forces(model):
    force_properties.check_forces(model, PACK)


def test_training_on_forces(model):
    force_properties.check_training_on_forces(model, PACK)


@pytest.mark.parametrize("form", ["sum", "direct", "dipole"])
def test_compiles_once(form):
    properties.check_compiles_once(subject(form), [PACK, [4], [6, 7, 8], [], PACK[::-1]])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs g++")
def test_compiles_once_with_inductor():
    packs = [PACK, [4], [], PACK[::-1]]
    properties.check_compiles_once(subject("sum"), packs, backend="inductor")


def test_the_kit_sees_what_it_is_for():
    # a model that reads padding, depends on order and on place, and never uses a weight
    class Leaky(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3, 1, dtype=torch.float64))
            self.idle = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))

        def forward(self, batch):
            place = torch.arange(len(batch["pos"])).unsqueeze(1)
            rows = (batch["pos"] ** 2 * (1 + 0.1 * place)) @ self.weight
            rows = rows + batch["z"].sum() * 1e-3
            graphs = len(batch["graphs_mask"])
            return rows.new_zeros(graphs, 1).index_add(0, batch["batch"], rows) + self.idle * 0

    good = subject("sum")
    leaky = Subject(**{**good.__dict__, "module": Leaky()})
    for check in (
        properties.check_padding_adds_nothing,
        properties.check_padding_is_never_read,
        properties.check_padding_rows_are_zero,
        properties.check_order_of_graphs,
        properties.check_order_of_nodes,
        properties.check_rigid_motion,
        properties.check_every_parameter_learns,
        force_properties.check_forces,
    ):
        with pytest.raises(AssertionError):
            check(leaky, PACK)
