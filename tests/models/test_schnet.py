"""SchNet's parts: read-outs by their formulas, tabulated against direct filters, stored outputs."""

import math

import numpy as np
import pytest
import torch
from ase.data import atomic_masses
from molecules import molecule_store
from pydantic import ValidationError

from zoo.batching.pack import fill_batch
from zoo.batching.shape import FixedSize
from zoo.batching.store import make_store
from zoo.models.schnet import SchNet, SchNetArguments, edge_distance, shifted_softplus
from zoo.ops import dispatch

SIZES = [5, 1, 9, 2, 7]
SMALL = {"features": 8, "interactions": 2, "gaussians": 10, "cutoff": 4.0, "knots": 32}


def pack(store=None, *, cutoff=4.0):
    store = store or molecule_store(SIZES)
    return fill_batch(
        store=store,
        graphs=np.arange(len(store)),
        shape=FixedSize(nodes=28, edges=200, graphs=len(store) + 2),
        cutoff=cutoff,
    )


def small(**arguments) -> SchNet:
    torch.manual_seed(0)
    return SchNet(arguments=SchNetArguments(**{**SMALL, **arguments})).double()


@pytest.mark.parametrize("readout", ["sum", "mean", "dipole", "spatial_extent"])
def test_readouts_follow_their_formulas(readout):
    model, batch = small(readout=readout, outputs=2), pack()
    with torch.no_grad():
        per_atom = model.output(shifted_softplus(model.hidden(model.embed(batch)))).numpy()
        found = model(batch).numpy()
    start = 0
    for graph, size in enumerate(SIZES):
        rows = slice(start, start + size)
        start += size
        q, pos = per_atom[rows], batch["pos"][rows].numpy()
        # in float32, as the masses are kept
        mass = atomic_masses[batch["z"][rows].numpy()].astype(np.float32).astype(np.float64)
        centre = (mass[:, None] * pos).sum(0) / mass.sum()
        expected = {
            "sum": q.sum(0),
            "mean": q.mean(0),
            "dipole": np.linalg.norm((q[:, :, None] * (pos - centre)[:, None]).sum(0), axis=1),
            "spatial_extent": (q * ((pos - centre) ** 2).sum(1, keepdims=True)).sum(0),
        }[readout]
        np.testing.assert_allclose(found[graph], expected, rtol=1e-10, atol=1e-12)
    assert found.shape == (len(SIZES) + 2, 2) and not found[len(SIZES) :].any()


def test_a_dipole_of_zero_has_a_gradient_of_zero():
    # one atom sits in its own centre of mass; training on gradients must survive it too
    model, batch = small(readout="dipole"), pack(molecule_store([1, 1]))
    batch["pos"].requires_grad_()
    out = model(batch)
    assert not out.any()
    (force,) = torch.autograd.grad(out.sum(), batch["pos"], create_graph=True)
    (out.sum() + (force**2).sum()).backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_embed_gives_every_atom_its_features():
    model, batch = small(), pack()
    x = model.embed(batch)
    assert x.shape == (len(batch["z"]), SMALL["features"]) and x.dtype == torch.float64
    # the first layer's input is the element alone, the last one's tells atoms apart
    carbons = x[(batch["z"] == 6) & batch["nodes_mask"]]
    assert len(carbons) > 2 and torch.pdist(carbons).min() > 1e-6


def test_edge_lengths():
    batch = pack()
    batch["pos"].requires_grad_()
    length = edge_distance(batch)
    real = batch["edges_mask"]
    vector = batch["pos"][batch["src"].long()] - batch["pos"][batch["dst"].long()]
    torch.testing.assert_close(length[real], vector.norm(dim=1)[real])
    length[~real].sum().backward()
    assert not batch["pos"].grad.any()


def test_filters_are_zero_from_the_cutoff_on():
    for module in (small().filters, SchNet(arguments=SchNetArguments(**SMALL)).filters):
        distance = torch.tensor([3.9, 4.0, 4.1, 40.0], dtype=module.first.dtype)
        values = module(distance)
        assert values[:, 0].any() and not values[:, 1:].any()
        assert not module.table()[:, -1, 0].any()
        assert module.table()[:, -1, 1].abs().max() < 1e-6  # the slope, but for sin(pi) in float32


def test_the_table_holds_values_and_slopes():
    bank = small().filters
    distance = bank.knot_distances.clone().requires_grad_()
    values = bank(distance)
    table = bank.table().detach()
    # float32 constants: the distances of the knots and the Gaussians there
    torch.testing.assert_close(table[:, :, 0], values.detach(), rtol=0, atol=1e-6)
    for layer, feature in ((0, 0), (1, 5)):
        (slope,) = torch.autograd.grad(values[layer, :, feature].sum(), distance, retain_graph=True)
        torch.testing.assert_close(table[layer, :-1, 1, feature], slope[:-1], rtol=0, atol=1e-5)


def test_gradients_of_the_filter_network_through_the_table():
    # the table's gradients approach those of direct filters as knots grow closer
    batch = pack()
    gradients = {}
    for filters, knots in (("direct", 32), ("table", 400)):
        model = small(filters=filters, knots=knots)
        model(batch).sum().backward()
        gradients[filters] = {name: p.grad for name, p in model.named_parameters()}
    for name, direct in gradients["direct"].items():
        error = (gradients["table"][name] - direct).abs().max() / direct.abs().max()
        assert error < 1e-5, name


@pytest.mark.parametrize("filters", ["table", "direct"])
@pytest.mark.parametrize("readout", ["sum", "mean", "dipole", "spatial_extent"])
def test_a_nan_position_shows_in_its_molecule_alone(filters, readout):
    model, batch = small(filters=filters, readout=readout), pack()
    before = model(batch).detach()
    batch["pos"][0, 1] = torch.nan
    after = model(batch)
    assert after[0].isnan().all()
    torch.testing.assert_close(after[1:], before[1:], rtol=0, atol=0)


def test_float32_follows_float64():
    # a few hundred float32 roundings
    for filters in ("table", "direct"):
        wide, batch = small(filters=filters), pack()
        narrow = SchNet(arguments=wide.arguments)
        narrow.load_state_dict(wide.state_dict())
        batch32 = {**batch, "pos": batch["pos"].float()}
        out = narrow(batch32)
        assert out.dtype == torch.float32
        torch.testing.assert_close(out.double(), wide(batch), rtol=1e-4, atol=1e-5)


def test_kernels_switched_off(monkeypatch):
    model, batch = small(), pack()
    expected = model(batch)
    monkeypatch.setattr(dispatch, "SWITCHED_OFF", True)
    torch.testing.assert_close(model(batch), expected, rtol=1e-11, atol=1e-11)


def test_autocast():
    # bfloat16 holds three digits
    model, batch = small().float(), pack()
    batch["pos"] = batch["pos"].float()
    expected = model(batch).detach()
    with torch.autocast("cpu", torch.bfloat16):
        out = model(batch)
        out.float().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    torch.testing.assert_close(out.detach().float(), expected, rtol=0.1, atol=0.05)


@pytest.mark.parametrize(
    ("key", "value"),
    [("cutoff", 0), ("knots", 3), ("gaussians", 1), ("readout", "max"), ("feature", 8)],
)
def test_arguments_are_checked(key, value):
    with pytest.raises(ValidationError, match=key):
        SchNetArguments(**{key: value})


def known_model(**arguments) -> SchNet:
    """Weights by a formula, so that no random generator is in the stored numbers."""
    model = small(**arguments)
    with torch.no_grad():
        for number, (_, parameter) in enumerate(sorted(model.named_parameters())):
            place = torch.arange(parameter.numel(), dtype=torch.float64).view(parameter.shape)
            parameter.copy_(torch.sin(1.7 * place + number))
    return model


def water_and_friends():
    """Water, methane and a lone helium (Å)."""
    a = 1.09 / math.sqrt(3)
    water = [[0, 0, 0.1173], [0, 0.7572, -0.4692], [0, -0.7572, -0.4692]]
    methane = [[0, 0, 0], [a, a, a], [a, -a, -a], [-a, a, -a], [-a, -a, a]]
    return make_store(
        node_ptr=np.array([0, 3, 8, 9]),
        node={
            "z": np.array([8, 1, 1, 6, 1, 1, 1, 1, 2], np.int32),
            "pos": np.array([*water, *methane, [0, 0, 0]], np.float64),
        },
        graph={},
    )


STORED = {
    ("sum", "table"): [-19.0117628, -38.4412998, -7.68157238],
    ("sum", "direct"): [-19.0118601, -38.4414739, -7.68157238],
    ("mean", "table"): [-6.33725426, -7.68825995, -7.68157238],
    ("mean", "direct"): [-6.33728672, -7.68829478, -7.68157238],
    ("dipole", "table"): [4.77146565, 0.0, 0.0],
    ("dipole", "direct"): [4.77151244, 0.0, 0.0],
    ("spatial_extent", "table"): [-8.70640096, -33.1034404, 0.0],
    ("spatial_extent", "direct"): [-8.70647757, -33.1034535, 0.0],
}
# on oxygen, two hydrogens and carbon
STORED_FORCES = [
    [0.0, 0.0, 5.57629411],
    [0.0, -0.217960495, -2.78814705],
    [0.0, 0.217960495, -2.78814705],
    [0.0, 0.0, 0.0],
]
# Tables and filters rest on constants in float32, which libraries may round the other way.
STORED_TOLERANCE = {"rtol": 1e-6, "atol": 1e-6}


@pytest.mark.parametrize(("readout", "filters"), STORED)
def test_outputs_are_as_stored(readout, filters):
    out = known_model(readout=readout, filters=filters)(pack(water_and_friends()))[:3, 0]
    expected = torch.tensor(STORED[readout, filters], dtype=torch.float64)
    torch.testing.assert_close(out.detach(), expected, **STORED_TOLERANCE)


def test_forces_are_as_stored():
    batch = pack(water_and_friends())
    batch["pos"].requires_grad_()
    (gradient,) = torch.autograd.grad(known_model()(batch).sum(), batch["pos"])
    expected = torch.tensor(STORED_FORCES, dtype=torch.float64)
    torch.testing.assert_close(-gradient[:4], expected, **STORED_TOLERANCE)
