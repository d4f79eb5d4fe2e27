"""PyG's SchNet converted: the same outputs, or a refusal."""

import numpy as np
import pytest
import torch
from molecules import molecule_store
from torch_geometric.nn.models import SchNet as PyGSchNet

from zoo.batching.pack import fill_batch
from zoo.batching.shape import FixedSize
from zoo.errors import RequestError
from zoo.models.pyg_schnet import from_pyg

CUTOFF = 4.0
SIZES = [5, 1, 9, 2, 7]


def all_pairs(pos, batch):
    """PyG's interaction graph, without the compiled extension that it needs for its own."""
    distance = torch.cdist(pos, pos, compute_mode="donot_use_mm_for_euclid_dist")
    near = (batch[:, None] == batch[None]) & (distance < CUTOFF)
    near.fill_diagonal_(False)
    src, dst = near.nonzero(as_tuple=True)
    return torch.stack([src, dst]), (pos[src] - pos[dst]).norm(dim=-1)


def pyg_model(**arguments) -> PyGSchNet:
    torch.manual_seed(0)
    usual = {"num_interactions": 3, "num_gaussians": 12, "num_filters": 16}
    model = PyGSchNet(
        hidden_channels=16, cutoff=CUTOFF, interaction_graph=all_pairs, **{**usual, **arguments}
    )
    with torch.no_grad():
        for parameter in model.parameters():  # biases start at zero, which hides mistakes
            parameter.add_(0.1 * torch.randn_like(parameter))
        model.embedding.weight[0] = 0
    return model.eval()


def outputs(model, converted):
    """Of PyG's model and ours, for the same molecules."""
    store = molecule_store(SIZES)
    batch = fill_batch(
        store=store,
        graphs=np.arange(len(SIZES)),
        shape=FixedSize(nodes=28, edges=200, graphs=7),
        cutoff=CUTOFF,
    )
    dtype = model.embedding.weight.dtype
    owner = torch.repeat_interleave(torch.arange(len(SIZES)), torch.tensor(SIZES))
    z = torch.from_numpy(store.node["z"]).long()
    pos = torch.from_numpy(store.node["pos"]).to(dtype)
    batch["pos"] = batch["pos"].to(dtype)
    with torch.no_grad():
        # PyG's masses, and so its dipoles, are float64 whatever its weights are
        return model(z, pos, owner).to(dtype), converted(batch)[: len(SIZES)]


FORMS = {
    "add": {},
    "mean": {"readout": "mean"},
    "dipole": {"dipole": True},
    "standardised": {"mean": -3.0, "std": 2.5},
    "standardised_mean": {"mean": -3.0, "std": 2.5, "readout": "mean"},
    "mean_alone_is_ignored": {"mean": -3.0},
    "dipole_ignores_mean_and_std": {"dipole": True, "mean": -3.0, "std": 2.5},
}


@pytest.mark.parametrize("filters", ["table", "direct"])
@pytest.mark.parametrize("form", FORMS)
def test_equal_outputs(form, filters):
    model = pyg_model(**FORMS[form])
    expected, ours = outputs(model, from_pyg(model, filters=filters))
    assert expected.abs().max() > 0.05
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_equal_outputs_in_float64(form):
    model = pyg_model(**FORMS[form]).double()
    converted = from_pyg(model, filters="direct")
    assert converted.embedding.weight.dtype == torch.float64
    # constants that PyG (masses: that we) round to float32, whatever the weights are
    if model.dipole:
        model.atomic_mass = converted.masses
    expansion = model.distance_expansion
    expansion.coeff = -0.5 / (CUTOFF / (model.num_gaussians - 1)) ** 2
    expansion.offset = converted.filters.centres
    for module in model.modules():
        if type(module).__name__ == "ShiftedSoftplus":
            module.shift = float(np.log(2.0))
    expected, ours = outputs(model, converted)
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)


def test_scale_of_a_pretrained_model():
    model = pyg_model()
    model.scale = 0.25
    expected, ours = outputs(model, from_pyg(model))
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def test_mode_is_kept_and_weights_are_copies():
    model = pyg_model()
    converted = from_pyg(model)
    assert not converted.training and from_pyg(model.train()).training
    with torch.no_grad():
        converted.hidden.weight.zero_()
        converted.embedding.weight.zero_()
    assert model.lin1.weight.any() and model.embedding.weight.any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_filters": 8}, "16 features and 8 filters"),
        ({"atomref": torch.ones(100, 1)}, "atomref"),
        ({"readout": "max"}, "MaxAggregation"),
    ],
)
def test_what_has_no_counterpart_is_refused(arguments, message):
    with pytest.raises(RequestError, match=message):
        from_pyg(pyg_model(**arguments))


def test_altered_models_are_refused():
    model = pyg_model(dipole=True)
    model.readout = pyg_model(readout="mean").readout
    with pytest.raises(RequestError, match="dipole with MeanAggregation"):
        from_pyg(model)
    model = pyg_model()
    model.distance_expansion.offset += 0.5
    with pytest.raises(RequestError, match="Gaussians"):
        from_pyg(model)
    model = pyg_model()
    model.embedding = torch.nn.Embedding(10, 16)
    with pytest.raises(RequestError, match="10 elements"):
        from_pyg(model)
    with pytest.raises(RequestError, match="not Linear"):
        from_pyg(torch.nn.Linear(2, 2))
