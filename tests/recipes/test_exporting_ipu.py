"""The folder for PopTorch, under a stand-in that enforces its rules: trains, predicts, compiles."""

from __future__ import annotations

import ast
import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny import TINY, strict_json, tiny

import zoo
from zoo.batching.loader import groups
from zoo.errors import RequestError
from zoo.recipes.config import Config, load_config
from zoo.recipes.energy import open_data
from zoo.recipes.energy_model import EnergyModel
from zoo.recipes.property_data import open_data as open_property_data
from zoo.recipes.property_model import PropertyModel
from zoo.recipes.tasks import open_task
from zoo.training.optimiser import make_optimiser, make_schedule
from zoo.training.state import Progress, TrainingState
from zoo.training.step import take_step

STAND_IN = Path(__file__).parents[1] / "stand_in"
OVERRIDES = [*TINY[:3], "train.ema_decay=0", "train.warmup_steps=3"]


@pytest.fixture(scope="module")
def folder(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ipu") / "model"
    told = zoo.export("schnet-qm9", *OVERRIDES, format="ipu", out=place, preset="smoke")
    assert told["folder"] == str(place) and told["packs"]["train"] == 13
    assert "not run on an IPU" in told["checked"]
    return place


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "model"))


def run(folder: Path, *arguments: str, fails: bool = False) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(folder / "run_ipu.py"), *arguments],
        capture_output=True,
        text=True,
        cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": str(STAND_IN), "OMP_NUM_THREADS": "1"},
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return [{"error": done.stderr}] if fails else [strict_json(x) for x in done.stdout.splitlines()]


def change(folder: Path, **options: Any) -> None:
    path = folder / "options.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **options}))


def eager(config: Config, *, steps: int) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses of ordinary training steps over the same packs in the same order, and the weights."""
    task = open_task(config)
    optimiser = make_optimiser(module=task.module, settings=config.train)
    state = TrainingState(
        task=task,
        optimiser=optimiser,
        schedule=make_schedule(
            optimiser=optimiser,
            settings=config.train,
            steps=-(-len(task.train_loader) // config.train.accumulate) * config.train.epochs,
        ),
        plateau=None,
        average=None,
        progress=Progress(),
    )
    losses: list[float] = []
    while True:
        task.train_loader.epoch = 0  # the folder's packs are those of the first epoch
        for packs in groups(task.train_loader, size=config.train.accumulate):
            losses.append(take_step(state, task.module, task.loss, packs, config.train))
            if len(losses) == steps:
                return losses, task.module.state_dict()


def test_ten_steps_are_those_of_ordinary_training(copy: Path) -> None:
    wanted, weights = eager(tiny(*OVERRIDES), steps=10)
    told = run(copy, "train", "--in-order", "--steps", "10")
    losses = [row["loss"] for row in told if "loss" in row]
    assert len(losses) == 10 and losses == pytest.approx(wanted, rel=1e-5)
    assert losses[0] != pytest.approx(losses[5], rel=1e-2)
    trained = load_file(copy / "trained.safetensors")
    assert trained.keys() == weights.keys()
    for name, value in weights.items():
        assert torch.allclose(trained[name], value, rtol=1e-4, atol=1e-6), name
    # What it wrote is a weight file, which predicts with its units.
    model = zoo.load(copy / "trained.safetensors")
    assert model.spec.entry == "schnet-qm9.U0" and model.predict("CCO")["valid"].all()


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_accumulation": 1, "replicas": 2},
        {"gradient_accumulation": 2, "device_iterations": 2},
    ],
)
def test_a_step_may_be_shared_out_otherwise(copy: Path, options: dict[str, int]) -> None:
    chosen = json.loads((copy / "options.json").read_text())["optimiser"]
    # With several device iterations a call has one learning rate: compare at a constant one.
    change(copy, **options, optimiser={**chosen, "schedule": "constant", "warmup_steps": 0})
    losses = [r["loss"] for r in run(copy, "train", "--in-order", "--steps", "6") if "loss" in r]
    change(copy, gradient_accumulation=2, device_iterations=1, replicas=1)
    wanted = [r["loss"] for r in run(copy, "train", "--in-order", "--steps", "6") if "loss" in r]
    assert losses == pytest.approx(wanted, rel=1e-5) and len(losses) == 6


def test_packs_that_fill_up_the_last_call_weigh_nothing(copy: Path) -> None:
    change(copy, gradient_accumulation=5)  # 13 packs: the third step has three
    told = run(copy, "train", "--in-order", "--epochs", "1")
    assert [row["step"] for row in told if "loss" in row] == [1, 2, 3]
    labels = np.load(copy / "data" / "train" / "labels.npy")
    assert labels.sum() == 102 and told[-2]["labels_per_s"] > 0


def test_it_predicts_what_the_weights_do(copy: Path, trained: Path) -> None:
    shutil.copy(trained / "checkpoints" / "best" / "weights.safetensors", copy / "w.safetensors")
    (told,) = run(copy, "infer", "--weights", str(copy / "w.safetensors"), "--out", "p.csv")
    assert told["packs"] == 2
    with (copy.parent / "p.csv").open() as file:
        rows = {int(r["graph_id"]): float(r["U0 [eV]"]) for r in csv.DictReader(file)}
    config = tiny(*OVERRIDES)
    data = open_data(config)
    assert sorted(rows) == sorted(data.splits["test"].tolist())
    store, ptr = data.store, data.store.node_ptr
    molecules = [
        (store.node["z"][ptr[g] : ptr[g + 1]], store.node["pos"][ptr[g] : ptr[g + 1]]) for g in rows
    ]
    model = zoo.load(trained)
    assert isinstance(model, EnergyModel)
    wanted = model.values(molecules)
    spread = model.spec.scaling["U0"].std
    assert np.abs(np.array(list(rows.values())) - wanted).max() <= 1e-5 * spread + 1e-5


@pytest.mark.parametrize("name", ["gin-esol", "gin-tox21"])
def test_labels_too_are_learnt_and_predicted(cache: Path, tmp_path: Path, name: str) -> None:
    """Batch norm's statistics, labels with holes, probabilities: all as in ordinary training."""
    overrides = [*OVERRIDES, "model.arguments.dropout=0"]
    folder = tmp_path / "model"
    told = zoo.export(name, *overrides, format="ipu", out=folder, preset="smoke")
    config = load_config(name, preset="smoke", overrides=overrides)
    wanted, weights = eager(config, steps=10)
    lines = run(folder, "train", "--in-order", "--steps", "10")
    losses = [row["loss"] for row in lines if "loss" in row]
    assert len(losses) == 10 and losses == pytest.approx(wanted, rel=1e-5)
    trained = folder / "trained.safetensors"
    written = load_file(trained)
    assert written.keys() == weights.keys()
    for key, value in weights.items():
        kind = key.split(".", 2)[-1]
        # A count of batches doesn't move: an integer buffer is a constant there. A bias before
        # batch norm has no gradient but rounding, of which Adam makes whole steps, and the means
        # go with it.
        if kind not in ("first.bias", "second.bias") and "num_batches" not in kind:
            close = 0.02 if "running_mean" in kind else 1e-4
            assert torch.allclose(written[key], value, rtol=1e-3, atol=close), key
    run(folder, "infer", "--weights", str(trained), "--out", "p.csv")
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    model = zoo.load(trained)
    assert isinstance(model, PropertyModel) and told["entry"] == config.entry
    data = open_property_data(config)
    rows.sort(key=lambda row: int(row["graph_id"]))
    assert [int(row["graph_id"]) for row in rows] == sorted(data.splits["test"].tolist())
    wanted = model.values(data.store).values[sorted(data.splits["test"].tolist())]
    assert list(rows[0])[1:] == model.columns
    found = np.array([[float(row[key]) for key in list(row)[1:]] for row in rows])
    assert np.abs(found - wanted).max() <= 1e-5 and len(set(found[:, 0])) > 5


def test_it_compiles_without_an_ipu_and_benchmarks(copy: Path) -> None:
    (told,) = run(copy, "compile", "--out", str(copy / "x.poptorch"))
    assert (copy / "x.poptorch").exists() and told["wrote"].endswith("x.poptorch")
    for arguments in ([], ["--inference"]):
        (told,) = run(copy, "bench", "--steps", "2", *arguments)
        assert told["graphs_per_s"] > 0 and told["hardware"] is False


def test_a_changed_file_is_refused_and_options_are_the_users(copy: Path) -> None:
    change(copy, seed=5)
    model = copy / "model.py"
    model.write_text(model.read_text() + "# changed\n")
    (told,) = run(copy, "infer", fails=True)
    assert "model.py isn't the file that was exported" in told["error"]


def test_a_diverging_run_writes_nothing(copy: Path) -> None:
    chosen = json.loads((copy / "options.json").read_text())["optimiser"]
    change(copy, optimiser={**chosen, "lr": 1e30, "warmup_steps": 0, "schedule": "constant"})
    (told,) = run(copy, "train", "--steps", "12", fails=True)
    assert "nothing was written" in told["error"]
    assert not (copy / "trained.safetensors").exists()


def test_what_breaks_a_rule_fails(copy: Path) -> None:
    """The stand-in is no rubber stamp: a step that reads a value doesn't run under it."""
    manifest = json.loads((copy / "manifest.json").read_text())
    del manifest["model.py"]
    (copy / "manifest.json").write_text(json.dumps(manifest))
    model = copy / "model.py"
    source = model.read_text()
    line = "        return poptorch.identity_loss("
    for wrong, says in (
        ("        pos.sum().item()\n", "item"),
        ("        pos[nodes_mask]\n", "nonzero|dynamic|Unsupported|mask"),
    ):
        assert line in source
        model.write_text(source.replace(line, wrong + line))
        (told,) = run(copy, "train", "--steps", "1", fails=True)
        assert any(word in told["error"] for word in says.split("|")), told["error"]
    found = next(text for text in source.splitlines() if text.startswith(line))
    both = f"        other = {found.strip()[7:]}\n        return other, {found.strip()[7:]}"
    model.write_text(source.replace(found, both))
    (told,) = run(copy, "train", "--steps", "1", fails=True)
    assert "Multiple independent losses" in told["error"]


def test_the_files_are_of_their_time(folder: Path) -> None:
    for name in ("model.py", "run_ipu.py"):
        ast.parse((folder / name).read_text(), feature_version=(3, 8))
    assert "not run on an IPU" in (folder / "README.md").read_text()
    options = strict_json((folder / "options.json").read_text())
    assert options["replicas"] == 1 and options["executable_cache"] is None
    assert {p.name for p in folder.iterdir()} == {
        *("README.md", "constants.safetensors", "data", "initial.safetensors", "manifest.json"),
        *("model.py", "options.json", "run_ipu.py", "weights.safetensors"),
    }


def test_what_cannot_be_exported(folder: Path, tmp_path: Path) -> None:
    def export(*overrides: str, out: Path = tmp_path / "model", packs: int = 0) -> None:
        zoo.export("schnet-qm9", *overrides, format="ipu", preset="smoke", out=out, packs=packs)

    with pytest.raises(RequestError, match="exists already"):
        export(*OVERRIDES, out=folder)
    with pytest.raises(RequestError, match=r"train\.schedule=cosine"):
        export("train.schedule=plateau")
    with pytest.raises(RequestError, match="not -1"):
        export(packs=-1)
    assert not list(tmp_path.iterdir())
