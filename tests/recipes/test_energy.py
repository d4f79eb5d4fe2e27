"""The energy recipe: data, scaled labels, losses and metrics that padding never enters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import tiny

from zoo.datasets import qm9
from zoo.errors import DataError, RequestError
from zoo.recipes import energy
from zoo.recipes.energy import EnergyTask, metrics, open_data

pytestmark = pytest.mark.usefixtures("cache")


def task(*overrides: str) -> EnergyTask:
    config = tiny(*overrides)
    return EnergyTask(config=config, data=open_data(config))


def test_open_data_splits_scales_and_chooses_a_shape() -> None:
    data = open_data(tiny())
    ids = np.concatenate(list(data.splits.values()))
    assert np.array_equal(np.sort(ids), np.arange(120)) and len(data.split_sha256) == 64
    assert (data.unit, data.labels.elements) == ("eV", ["H", "C", "N", "O", "F"])
    assert data.reference.startswith("total energy")
    assert data.shape.nodes % 8 == 0 and data.shape.graphs > 8
    train = data.labels.scaled[data.splits["train"], 0]
    assert train.std() == pytest.approx(1, rel=1e-5)
    chosen = open_data(tiny("batch.nodes=200", "batch.edges=9999", "batch.slots=40")).shape
    assert (chosen.nodes, chosen.edges, chosen.graphs) == (200, 9999, 40)


def test_a_limit_shortens_training_alone() -> None:
    whole, few = open_data(tiny()), open_data(tiny("data.limit=10"))
    assert np.array_equal(few.splits["train"], whole.splits["train"][:10])
    assert np.array_equal(few.splits["test"], whole.splits["test"])
    assert few.split_sha256 == whole.split_sha256


def test_an_unknown_property_names_the_nearest() -> None:
    with pytest.raises(RequestError, match="unknown property of qm9 'u0'; nearest: 'U0'"):
        open_data(tiny("data.property=u0"))


def test_a_split_without_a_known_label_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = open_data(tiny())
    y = np.array(whole.store.graph["y"])
    y[whole.splits["valid"]] = np.nan
    store = replace(whole.store, graph={**whole.store.graph, "y": y})
    monkeypatch.setattr(qm9, "load", lambda folder: store)
    with pytest.raises(DataError, match=r"no valid molecule has a known label \(U0\)"):
        open_data(tiny())


def test_more_than_one_output_or_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(RequestError, match="outputs is 1"):
        task("model.arguments.outputs=2")
    if not torch.cuda.is_available():
        with pytest.raises(RequestError, match="train.device=cuda, and torch sees no GPU"):
            task("train.device=cuda")


def test_a_molecule_larger_than_the_shape_is_named_or_left_out() -> None:
    # At once, and not when a validation split that nobody looked at comes up.
    with pytest.raises(RequestError, match=r"train graph \d+ has \d+ nodes"):
        task("batch.nodes=20", "batch.edges=400")
    small = task("batch.nodes=20", "batch.edges=400", "batch.skip_oversize=true")
    sizes = small.data.store.nodes_per_graph()
    assert small.skipped["train"] == (sizes[small.data.splits["train"]] > 19).sum() > 0
    rows, _ = small.predictions(small.module, "train")
    assert (sizes[rows] <= 19).all()
    assert len(rows) + small.skipped["train"] == len(small.data.splits["train"])
    with pytest.raises(RequestError, match="no train molecule fits the batch shape"):
        task("batch.nodes=2", "batch.edges=64", "batch.skip_oversize=true")


@pytest.mark.parametrize("loss", ["smooth_l1", "mae", "mse"])
def test_a_loss_sums_over_known_labels_alone(loss: str) -> None:
    one = task(f"loss={loss}", "loss_beta=0.5")
    batch = next(iter(one.train_loader))
    predicted = one.predict(one.module, batch).detach()
    real = batch["graphs_mask"].clone()
    hole = int(torch.nonzero(real)[2])
    batch["y"][hole] = float("nan")
    real[hole] = False
    error = (predicted - batch["y"])[real, 0]
    size = error.abs()
    expected = {
        "mae": size,
        "mse": size**2,
        "smooth_l1": torch.where(size < 0.5, size**2, size - 0.25),
    }[loss]
    summed, count = one.loss(one.module, batch)
    assert float(summed.detach()) == pytest.approx(float(expected.sum()), rel=1e-5)
    assert int(count) == int(real.sum())
    gradients = torch.autograd.grad(summed, list(one.module.parameters()))
    assert all(g.isfinite().all() for g in gradients)


def test_an_all_padding_pack_adds_nothing() -> None:
    one = task()
    empty = one.train_loader.batch(np.zeros(0, np.int64))
    summed, count = one.loss(one.module, empty)
    assert float(summed.detach()) == 0 and int(count) == 0
    gradients = torch.autograd.grad(summed, list(one.module.parameters()))
    assert all((g == 0).all() for g in gradients)


def test_predictions_cover_a_split_once_in_its_unit() -> None:
    one = task()
    rows, predicted = one.predictions(one.module, "train")
    assert np.array_equal(rows, one.data.splits["train"]) and predicted.dtype == np.float64
    # By hand, molecule for molecule.
    for row in rows[:3]:
        batch = one.train_loader.batch(np.array([row]))
        with torch.no_grad():
            scaled = one.module(batch)[0, 0].double().numpy()
        labels = one.data.labels
        expected = labels.offset[row] + labels.mean + labels.std * scaled
        assert predicted[list(rows).index(row)] == pytest.approx(expected, abs=1e-4)


def test_metrics_are_of_all_known_labels() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=50) - 4000.0
    predicted = truth + rng.normal(size=50)
    truth[[3, 10]] = np.nan
    known = ~np.isnan(truth)
    error = (predicted - truth)[known]
    found = metrics(truth=truth, predicted=predicted)
    spread = ((truth[known] - truth[known].mean()) ** 2).sum()
    assert found == pytest.approx(
        {
            "mae": np.abs(error).mean(),
            "rmse": (error**2).mean() ** 0.5,
            "r2": 1 - (error**2).sum() / spread,
        }
    )


def test_r2_is_left_out_where_it_means_nothing() -> None:
    one = metrics(truth=np.array([1.0]), predicted=np.array([1.5]))
    assert one == {"mae": 0.5, "rmse": 0.5}
    same = metrics(truth=np.array([1.0, 1.0]), predicted=np.array([1.5, 1.0]))
    assert set(same) == {"mae", "rmse"}


def test_the_spec_says_all_that_prediction_needs() -> None:
    one = task()
    spec = one.spec
    assert (spec.entry, spec.task, spec.architecture) == ("schnet-qm9.U0", "energy", "schnet")
    assert [(p.name, p.unit) for p in spec.properties] == [("U0", "eV")]
    assert set(spec.atom_refs["U0"]) == set(spec.elements) == {"H", "C", "N", "O", "F"}
    sizes = one.data.store.nodes_per_graph()[one.data.splits["train"]]
    assert spec.ranges["atoms"] == [sizes.min(), sizes.max()]
    low, high = spec.ranges["per_atom/U0"]
    assert low < high < 0
    assert spec.extra["split_sha256"] == one.data.split_sha256
    assert energy.EnergyTask(config=one.config, data=one.data).spec == spec
