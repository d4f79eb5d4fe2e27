"""Tuning on a person's own table: kinds of labels, splits, members, what is written, refusals."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tables import base, table
from tiny import strict_json, zoo_command

import zoo
from zoo.artifact import read_spec, read_weights
from zoo.errors import DataError, RequestError
from zoo.recipes import finetune_results
from zoo.recipes.property_model import PropertyModel

pytestmark = pytest.mark.usefixtures("cache")

QUICK = {"epochs": 2, "tracking": False, "forest": False, "scratch": False, "split": "random"}
LOGS, ACTIVE, TOXIC, COLOUR = "logS [log mol/L]", "active", "toxic", "colour"


@pytest.fixture(autouse=True)
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetune_results, "save_plots", lambda *_: [])


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    table().to_csv(path, index=False)
    return path


def tune(csv: Path, *labels: str, **options: Any) -> dict[str, Any]:
    return zoo.finetune(
        base(csv.parent),
        data=csv,
        labels=list(labels),
        **{"folder": csv.parent / "run", **QUICK, **options},
    )


@pytest.mark.parametrize(
    ("labels", "columns", "judged"),
    [
        ([LOGS], ["logS [log mol/L]"], "rmse"),
        ([ACTIVE], ["active [probability]"], "roc_auc"),
        ([ACTIVE, TOXIC], ["active [probability]", "toxic [probability]"], "roc_auc"),
        ([COLOUR], [f"colour={c} [probability]" for c in ("blue", "green", "red")], "accuracy"),
    ],
)
def test_each_kind_of_label_makes_a_model_that_predicts(
    labels: list[str], columns: list[str], judged: str, csv: Path
) -> None:
    result = tune(csv, *labels)
    assert result["judged_by"] == judged and judged in result["metrics"]["test"]
    assert strict_json(json.dumps(result)) == json.loads(json.dumps(result))
    model = zoo.load(result["folder"])
    assert isinstance(model, PropertyModel) and model.columns == columns
    found = model.predict(["CCO", "not a molecule", "c1ccccc1C"])
    assert found["valid"].tolist() == [True, False, True]
    assert found[columns].iloc[[0, 2]].notna().all().all()
    assert found[columns].iloc[1].isna().all()
    assert found["similarity"].between(0, 1).sum() == 2


def test_the_comparison_holds_every_way_on_the_same_molecules(csv: Path) -> None:
    result = tune(csv, ACTIVE, TOXIC, scratch=True, forest=True)
    assert [line["key"] for line in result["comparison"]] == ["model", "scratch", "forest", "mean"]
    for line in result["comparison"]:
        assert line["low"] <= line["value"] <= line["high"]
    assert result["comparison"][3]["value"] == 0.5
    written = pd.read_csv(Path(result["folder"]) / "comparison.csv")
    assert written["ROC-AUC"].tolist() == pytest.approx(
        [line["value"] for line in result["comparison"]]
    )
    tested = pd.read_csv(Path(result["folder"]) / "test-predictions.csv")
    assert len(tested) == result["split_sizes"]["test"]
    assert tested["smiles"].tolist() == [table()["smiles"][row] for row in tested["row"]]


def test_folds_test_each_molecule_once_and_make_one_model(csv: Path) -> None:
    result = tune(csv, LOGS, split="kfold", folds=3)
    tested = pd.read_csv(Path(result["folder"]) / "test-predictions.csv")
    assert sorted(tested["row"]) == list(range(104))
    model = zoo.load(result["folder"])
    assert isinstance(model, PropertyModel) and len(model.modules) == 3
    # Each member's output layer is in the file's one scale, whatever its fold's was.
    residuals = tested[f"{LOGS} (predicted)"] - tested["logS (given)"]
    half = model.predict(["CCO"])["logS high 90% [log mol/L]"] - model.predict(["CCO"])[LOGS]
    assert half[0] == pytest.approx(np.sort(np.abs(residuals))[94], rel=1e-4)


def test_an_ensemble_says_how_far_its_members_disagree(csv: Path) -> None:
    result = tune(csv, LOGS, ensemble=3)
    found = zoo.predict(result["folder"], ["CCO", "c1ccccc1C"])
    assert (found["logS std [log mol/L]"] > 0).all()
    low, high = found["logS low 90% [log mol/L]"], found["logS high 90% [log mol/L]"]
    widths = (high - low).to_numpy()
    assert (low < found[LOGS]).all() and widths[0] != pytest.approx(widths[1])


def test_a_frozen_body_keeps_every_bit(csv: Path) -> None:
    result = tune(csv, LOGS, freeze=True)
    _, before = read_weights(base(csv.parent))
    _, after = read_weights(Path(result["folder"]) / "model.safetensors")
    for name, value in before.items():
        if not name.startswith("output."):
            assert torch.equal(after[name], value), name
    loose = tune(csv, LOGS, folder=csv.parent / "loose")
    _, moved = read_weights(Path(loose["folder"]) / "model.safetensors")
    assert not torch.equal(moved["layers.0.first.weight"], before["layers.0.first.weight"])


def test_rows_that_cannot_be_used_end_it_or_are_left_out_and_named(csv: Path) -> None:
    with csv.open("a") as file:
        file.write("bad,C1CC,1.0,active,1,red\n")
    with pytest.raises(DataError, match=r"1 of 105 rows can't be used[\s\S]*--on-error skip"):
        tune(csv, LOGS)
    assert not (csv.parent / "run").exists()
    result = tune(csv, LOGS, on_error="skip")
    assert result["rows"]["kept"] == 104 and sum(result["rows"]["dropped"].values()) == 1
    report = pd.read_csv(csv.parent / "run" / "table.report.csv")
    assert report["row"].tolist() == [104] and report["value"].tolist() == ["C1CC"]


@pytest.mark.parametrize(
    ("labels", "options", "says"),
    [
        (["logs"], {}, "no column 'logs'"),
        ([LOGS, ACTIVE], {}, "labels of one kind"),
        ([COLOUR, COLOUR], {}, "twice"),
        ([LOGS], {"split": "column"}, "go together"),
        ([LOGS], {"split": "fancy"}, "split"),
        ([LOGS], {"epochs": -1}, "epochs"),
        ([LOGS], {"patients": 3}, "nearest: 'patience'"),
        (["name"], {}, "name"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_before_training(
    labels: list[str], options: dict[str, Any], says: str, csv: Path
) -> None:
    with pytest.raises((RequestError, DataError), match=says):
        tune(csv, *labels, **options)
    assert not (csv.parent / "run").exists()


def test_models_that_read_no_bonds_or_hold_no_body_are_refused(csv: Path) -> None:
    with pytest.raises(RequestError, match="learns from geometries"):
        zoo.finetune("schnet-qm9", data=csv, labels=[LOGS], **QUICK)
    numbers = base(csv.parent, atom_categories=(37,), bond_categories=())
    with pytest.raises(RequestError, match="numbers without a name"):
        zoo.finetune(numbers, data=csv, labels=[LOGS], **QUICK)


def test_a_second_run_in_a_folder_is_refused(csv: Path) -> None:
    tune(csv, LOGS)
    with pytest.raises(RequestError, match="holds a run already"):
        tune(csv, LOGS)
    again = zoo.resume(csv.parent / "run")  # done: not done again
    assert again["judged_by"] == "rmse"


def test_a_split_column_is_taken_at_its_word(csv: Path) -> None:
    frame = pd.read_csv(csv)
    frame["part"] = ["train"] * 84 + ["valid"] * 10 + ["test"] * 10
    frame.to_csv(csv, index=False)
    result = tune(csv, LOGS, split="column", split_column="part")
    assert result["split_sizes"] == {"train": 84, "valid": 10, "test": 10}
    tested = pd.read_csv(Path(result["folder"]) / "test-predictions.csv")
    assert sorted(tested["row"]) == list(range(94, 104))


def test_the_command_stopped_by_sigterm_goes_on_to_the_same_bits(csv: Path) -> None:
    start = base(csv.parent)
    options = ("--data", str(csv), "--labels", LOGS, "--split", "random", "--epochs", "15")
    rest = ("--patience", "0", "--no-tracking", "--no-forest", "--no-scratch", "--json")
    folder = csv.parent / "stopped"
    process = zoo_command(
        *("finetune", str(start), *options, *rest, "--folder", str(folder)), folder=csv.parent
    )
    checkpoint = folder / "member-0" / "checkpoints" / "last"
    until = time.monotonic() + 120
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 143, said
    assert not (folder / "result.json").exists()
    resumed = zoo.resume(folder)
    whole = tune(csv, LOGS, epochs=15, patience=0)
    _, one = read_weights(folder / "model.safetensors")
    _, other = read_weights(Path(whole["folder"]) / "model.safetensors")
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert resumed["metrics"] == whole["metrics"]


def test_a_model_says_what_it_was_made_of(csv: Path) -> None:
    result = tune(csv, LOGS, largest_fragment=True)
    spec = read_spec(Path(result["checkpoint"]))
    assert spec.entry == "gin-base-on-mine" and spec.extra["largest_fragment"]
    assert "C" in spec.elements and "I" not in spec.elements
    assert spec.properties[0].unit == "log mol/L"
    found = zoo.predict(result["folder"], ["CCI", "CCO.Cl"])
    assert found["reason"][0].startswith("holds I, which the model never saw")
    assert found[LOGS][1] == pytest.approx(zoo.predict(result["folder"], ["CCO"])[LOGS][0])
