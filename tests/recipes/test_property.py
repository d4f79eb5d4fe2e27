"""The recipe for labels of graphs: data, masked labels of three kinds, metrics, runs, resuming."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gin_subject import store as graphs
from properties import Subject, check_padding_adds_nothing, check_padding_is_never_read
from tiny import TINY, tiny

import zoo
from zoo import artifact, registry
from zoo.batching.loader import PackLoader
from zoo.datasets import moleculenet
from zoo.datasets.facts import Property
from zoo.errors import DataError, RequestError
from zoo.models.gin import GIN, GINArguments
from zoo.recipes import run as running
from zoo.recipes.property import PropertyTask
from zoo.recipes.property_data import columns, fit_scaling, make_data, open_data
from zoo.recipes.run import run
from zoo.recipes.settings import BatchSettings, PropertyConfig
from zoo.training.step import _twins

pytestmark = pytest.mark.usefixtures("cache")

GINS = [name for name in registry.entries() if name.startswith("gin-")]


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_plots", lambda *_: [])


def config(*overrides: str, name: str = "gin-esol") -> PropertyConfig:
    made = tiny(*overrides, name=name)
    assert isinstance(made, PropertyConfig)
    return made


def task(*overrides: str, name: str = "gin-esol") -> PropertyTask:
    made = config(*overrides, name=name)
    return PropertyTask.of(config=made, data=open_data(made))


def labelled(kind: str, y: np.ndarray, classes: tuple[str, ...] = ()) -> PropertyTask:
    """A float64 task on the graphs of `gin_subject`, with these labels."""
    whole = replace(graphs(), graph={"y": y})
    splits = {"train": np.arange(8), "valid": np.arange(8, 10), "test": np.arange(10, 12)}
    properties = [
        Property(name=f"p{t}", unit="", description="", kind=kind, classes=classes)  # type: ignore[arg-type]
        for t in range(y.shape[1])
    ]
    data = make_data(
        store=whole,
        splits=splits,
        split_sha256="0" * 64,
        properties=properties,
        batch=BatchSettings(graphs=5),
        metric="rmse" if kind == "regression" else "roc_auc",
    )
    torch.manual_seed(0)
    module = GIN(arguments=GINArguments(features=6, layers=2, outputs=data.outputs)).double()
    return PropertyTask(entry="gin-made", data=data, module=module.eval(), seed=0)


RNG = np.random.default_rng(0)
HOLES = np.where(RNG.random((12, 3)) < 0.3, np.nan, 1.0)
HOLES[[8, 10]] = 1
KINDS = {
    "regression": (RNG.normal(5, 3, (12, 3)) * HOLES, ()),
    "binary": (RNG.integers(0, 2, (12, 3)) * HOLES, ()),
    "multiclass": (RNG.integers(0, 4, (12, 1)).astype(float), ("a", "b", "c", "d")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_unknown_labels_add_nothing_to_a_loss(kind: str) -> None:
    own = labelled(kind, *KINDS[kind])
    subject = Subject(
        module=own.module,
        store=own.data.store,
        shape=own.shape,
        targets=np.asarray(own.data.values - own.mean) / own.std,
        cutoff=None,
        ids={"atom": 2, "bond": 2},
        loss=own.loss,
        predict=own.predict,
    )
    check_padding_adds_nothing(subject, [0, 3, 5])
    check_padding_is_never_read(subject, [0, 3, 5])


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_is_torchs_over_the_known_labels(kind: str) -> None:
    own = labelled(kind, *KINDS[kind])
    batch = own.loader("train").batch(np.arange(4))
    output = own.predict(own.module, batch)[:4].detach()
    scaled = torch.from_numpy((own.data.values[:4] - own.mean) / own.std)
    known = ~scaled.isnan()
    if kind == "regression":
        expected = ((output - scaled)[known] ** 2).sum()
    elif kind == "binary":
        expected = torch.nn.BCEWithLogitsLoss(reduction="sum")(output[known], scaled[known])
    else:
        expected = torch.nn.CrossEntropyLoss(reduction="sum")(output, scaled[:, 0].long())
    summed, count = own.loss(own.module, batch)
    assert int(count) == int(known.sum())
    assert summed.item() == pytest.approx(float(expected), rel=1e-6)


def test_quantities_are_scaled_by_the_training_graphs_alone() -> None:
    own = labelled("regression", *KINDS["regression"])
    train = own.data.values[:8]
    assert own.mean == pytest.approx(np.nanmean(train, 0))
    assert own.std == pytest.approx(np.nanstd(train, 0))
    values = own.data.values.copy()
    values[8:] = 1e6
    assert fit_scaling(replace(own.data, values=values))[0] == pytest.approx(own.mean)
    values[:, 1] = 7.0  # nothing to learn, nothing to divide by
    mean, std = fit_scaling(replace(own.data, values=values))
    assert (mean[1], std[1]) == (7, 1)
    assert (labelled("binary", *KINDS["binary"]).std == 1).all()


def test_predictions_come_in_units_and_probabilities() -> None:
    own = labelled("multiclass", *KINDS["multiclass"])
    rows, found = own.predictions(own.module, "train")
    assert rows.tolist() == list(range(8)) and found.shape == (8, 4)
    assert found.sum(1) == pytest.approx(1)
    assert own.outputs == [f"p0={c} [probability]" for c in "abcd"]
    values = labelled("regression", *KINDS["regression"])
    _, raw = values.raw_predictions(values.module, "train")
    _, found = values.predictions(values.module, "train")
    assert found == pytest.approx(values.mean + values.std * raw)


def test_columns_name_units_or_say_that_they_are_probabilities() -> None:
    quantity = Property(name="logS", unit="log mol/L", description="")
    yes = Property(name="active", unit="", description="", kind="binary")
    assert columns([quantity, yes]) == ["logS [log mol/L]", "active [probability]"]


def test_several_labels_have_a_metric_each_and_their_mean() -> None:
    own = task(name="gin-tox21")
    rows, predicted = own.predictions(own.module, "train")
    found = own.metrics(rows, predicted)
    each = [v for k, v in found.items() if k.startswith("roc_auc/")]
    assert found["roc_auc"] == pytest.approx(np.mean(each)) and len(each) > 5
    assert own.higher_is_better and own.select == "roc_auc"


@pytest.mark.parametrize("name", GINS)
def test_every_entry_runs_on_made_up_data(name: str, tmp_path: Path, no_plots: None) -> None:
    folder = tmp_path / name
    result = run(config=config("train.epochs=1", name=name), folder=folder)
    assert result["checkpoint"] == str(folder / "model.safetensors")
    assert result["selected_by"] in result["metrics"]["test"]
    again = zoo.evaluate(folder)
    assert again["metrics"]["test"] == pytest.approx(result["metrics"]["test"], nan_ok=True)
    spec = artifact.read_spec(folder / "model.safetensors")
    assert spec.entry == f"{name}.{next(iter(registry.entries()[name].tags))}"
    assert ("similarity" in spec.ranges) == (name != "gin-nci1")


def test_the_data_say_how_many_outputs_there_are() -> None:
    assert task(name="gin-tox21").module.arguments.outputs == 12  # type: ignore[union-attr]
    with pytest.raises(RequestError, match="outputs=5, and these data need 1"):
        task("model.arguments.outputs=5")


def test_a_split_without_labels_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    made = config()
    data = open_data(made)
    y = np.array(data.store.graph["y"])
    y[data.splits["valid"]] = np.nan
    store = replace(data.store, graph={**data.store.graph, "y": y})
    monkeypatch.setattr(moleculenet, "load", lambda **_: store)
    with pytest.raises(DataError, match="no valid graph has a known label"):
        open_data(made)


def test_the_best_epoch_is_the_highest_where_higher_is_better(
    tmp_path: Path, no_plots: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter([0.6, 0.8, 0.7, 0.5, 0.5, 0.5])
    monkeypatch.setattr(PropertyTask, "evaluate", lambda *_: {"roc_auc": next(told)})
    result = run(config=config("train.epochs=3", name="gin-bace"), folder=tmp_path / "r")
    assert result["best_epoch"] == 2


def test_each_pack_of_each_epoch_has_a_seed_of_its_own() -> None:
    loader = task().train_loader
    first = [int(batch["seed"]) for batch in loader]
    second = [int(batch["seed"]) for batch in loader]
    assert len({*first, *second}) == len(first) + len(second)
    again = task().train_loader
    again.load_state_dict({**loader.state_dict(), "epoch": 1})
    assert [int(batch["seed"]) for batch in again] == second
    assert isinstance(again, PackLoader) and "seed" not in task().loader("valid").example()


def test_packs_side_by_side_share_parameters_and_count_on_their_own() -> None:
    module = GIN(arguments=GINArguments(features=4, layers=1))
    one, other = _twins(module, count=2)
    assert all(
        a is b is c for a, b, c in zip(*(m.parameters() for m in (module, one, other)), strict=True)
    )
    one.layers[0].norm.running_mean.add_(1)  # type: ignore[union-attr, operator]
    assert not module.layers[0].norm.running_mean.any()  # type: ignore[union-attr, operator]


def test_a_frozen_body_keeps_its_bits() -> None:
    module = GIN(arguments=GINArguments(features=4, layers=2))
    module.freeze()
    module.train()
    assert not module.layers[0].norm.training and module.output.training  # type: ignore[union-attr]
    assert {n for n, p in module.named_parameters() if p.requires_grad} == {
        "output.weight",
        "output.bias",
    }


def test_runs_are_told_by_name(tmp_path: Path, no_plots: None) -> None:
    result = zoo.run("gin-nci1.fold3", *TINY, "train.epochs=1", preset="smoke", folder=tmp_path)
    assert result["entry"] == "gin-nci1.fold3"
    assert result["units"] == {} and "accuracy" in result["metrics"]["test"]


@pytest.mark.parametrize("name", ["gin-esol", "gin-molhiv", "gin-nci1"])
def test_its_steps_can_be_compiled_for_ipus(name: str) -> None:
    found = zoo.check(name, "data.synthetic=120", "batch.graphs=8", preset="smoke")
    assert found["ok"], found["findings"]
    assert "dropout.default" in found["steps"]["training"]["operators"]
    assert "dropout.default" not in found["steps"]["inference"]["operators"]
