"""Whole runs on made-up data: their result, every tag, the schedules, what stops them early."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TINY, history, strict_json, tiny, untrained

import zoo
from zoo import artifact
from zoo.errors import RequestError, ZooError
from zoo.recipes import run as running
from zoo.recipes.energy import EnergyTask, open_data
from zoo.recipes.run import run
from zoo.training import loop
from zoo.training.loop import train
from zoo.training.progress import Display
from zoo.training.tracking_protocol import NoTracker

pytestmark = pytest.mark.usefixtures("cache")

KEYS = {
    *("entry", "seed", "backend", "device", "precision", "replicas", "epochs", "steps", "metrics"),
    *("units", "split_sha256", "batch_shape", "packing_efficiency", "train_graphs_per_s"),
    *("peak_rss_anon_mb", "wall_s", "run_id", "checkpoint"),
}


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these runs."""
    monkeypatch.setattr(running, "_plots", lambda *_: [])


def train_only(folder: Path, *overrides: str, name: str = "schnet-qm9") -> loop.TrainingResult:
    """The loop alone: no test, plots or log."""
    config = tiny(*overrides, name=name)
    task = EnergyTask(config=config, data=open_data(config))
    return train(
        task=task,
        settings=config.train,
        folder=folder,
        tracker=NoTracker(),
        display=Display(quiet=True),
    )


def test_a_run_has_a_result_with_all_keys(trained: Path) -> None:
    result = strict_json((trained / "result.json").read_text())
    assert set(result) >= KEYS
    assert (result["entry"], result["seed"], result["replicas"]) == ("schnet-qm9.U0", 0, 1)
    assert (result["backend"], result["device"]) == ("eager", "cpu")
    assert (result["precision"], result["epochs"], result["steps"]) == ("float32", 2, 14)
    assert set(result["metrics"]) == {"valid", "test"}
    assert set(result["metrics"]["test"]) == set(result["units"]) == {"mae", "rmse", "r2"}
    assert result["units"] == {"mae": "eV", "rmse": "eV", "r2": ""}
    assert set(result["batch_shape"]) == {"nodes", "edges", "graphs"}
    assert 0.5 < result["packing_efficiency"]["nodes"] <= 1
    assert result["train_graphs_per_s"] > 0 and result["peak_rss_anon_mb"] > 50
    assert Path(result["checkpoint"]) == trained / "checkpoints" / "best"
    assert result["run_id"] is None
    assert result["skipped"] == {"train": 0, "valid": 0, "test": 0}


def test_a_run_leaves_a_config_checkpoints_and_plots(trained: Path) -> None:
    names = {path.name for path in (trained / "plots").iterdir()}
    assert names == {"learning-curve.png", "parity.png", "error-by-size.png", "batch-filling.png"}
    assert {path.name for path in (trained / "checkpoints").iterdir()} == {"best", "last"}
    rows = history(trained)
    assert [row["epoch"] for row in rows] == [1, 2]
    assert rows[1]["train/loss"] < rows[0]["train/loss"]
    result = strict_json((trained / "result.json").read_text())
    assert result["metrics"]["valid"]["mae"] == min(row["valid/mae"] for row in rows)
    assert zoo.load(trained).spec.entry == "schnet-qm9.U0"


def test_evaluating_a_run_gives_its_own_metrics(trained: Path) -> None:
    result = strict_json((trained / "result.json").read_text())
    for place in (trained, trained / "checkpoints" / "best"):
        for split in ("test", "valid"):
            found = zoo.evaluate(place, split=split)
            assert set(found) >= KEYS
            assert found["metrics"][split] == pytest.approx(result["metrics"][split], rel=1e-9)
            assert found["split_sha256"] == result["split_sha256"]
    file = trained / "checkpoints" / "best" / "weights.safetensors"
    assert zoo.evaluate(file)["metrics"]["test"] == pytest.approx(result["metrics"]["test"])
    assert zoo.evaluate(str(file))["checkpoint"] == str(file)


def test_weights_by_themselves_are_evaluated_with_the_entrys_recipe(
    trained: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.safetensors"
    shutil.copy(trained / "checkpoints" / "best" / "weights.safetensors", file)
    result = strict_json((trained / "result.json").read_text())
    found = zoo.evaluate(file, "data.synthetic=120")
    assert found["metrics"]["test"] == pytest.approx(result["metrics"]["test"], rel=1e-6)
    # A config of something else beside it is none of its business.
    (tmp_path / "config.json").write_text('{"a": 1}')
    assert zoo.evaluate(file, "data.synthetic=120")["metrics"] == found["metrics"]


def test_another_split_is_refused(trained: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.safetensors"
    shutil.copy(trained / "checkpoints" / "best" / "weights.safetensors", file)
    for override in ("data.synthetic=121", "data.split_seed=1"):
        with pytest.raises(RequestError) as error:
            zoo.evaluate(file, "data.synthetic=120", override)
        assert "was trained on another split" in str(error.value)
        with pytest.raises(RequestError, match="was trained on another split"):
            zoo.evaluate(trained, override)


def test_evaluate_says_what_is_wrong_with_a_request(trained: Path) -> None:
    with pytest.raises(RequestError, match="unknown split 'tests'; nearest: 'test'"):
        zoo.evaluate(trained, split="tests")
    with pytest.raises(RequestError, match=r"unknown key 'train\.epoch'; nearest: 'epochs'"):
        zoo.evaluate(trained, "train.epoch=2")
    with pytest.raises(RequestError, match="predicts U0, not homo"):
        zoo.evaluate(trained, "data.property=homo")
    with pytest.raises(RequestError, match="has no trained weights yet"):
        zoo.evaluate(untrained())


@pytest.mark.usefixtures("no_plots")
def test_bfloat16_products_train_and_stay_near(tmp_path: Path) -> None:
    full = run(config=tiny("train.epochs=1"), folder=tmp_path / "full")
    half = run(config=tiny("train.epochs=1", "train.precision=bf16"), folder=tmp_path / "half")
    assert half["precision"] == "bf16"
    a, b = full["metrics"]["valid"]["mae"], half["metrics"]["valid"]["mae"]
    assert a != b and b == pytest.approx(a, rel=0.05)
    _, tensors = artifact.read_weights(tmp_path / "half/checkpoints/best/weights.safetensors")
    assert all(t.dtype == torch.float32 for t in tensors.values())


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize("able", [True, False])
def test_a_processor_without_bfloat16_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], able: bool
) -> None:
    found = {"avx512_bf16": able, "amx_bf16": False}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    config = tiny("train.epochs=1", "train.precision=bf16", "data.limit=16")
    run(config=config, folder=tmp_path / "run")
    said = capsys.readouterr()
    assert ("no bfloat16 products" in said.out + said.err) is not able


def test_a_plateau_halves_the_rate(tmp_path: Path) -> None:
    # A rate too small to gain anything: every epoch but the first is a plateau.
    train_only(
        tmp_path,
        *("train.schedule=plateau", "train.plateau_epochs=1", "train.epochs=5"),
        *("train.lr=1e-12", "train.warmup_steps=0", "data.limit=16"),
    )
    rates = [row["lr"] for row in history(tmp_path)]
    assert rates[0] == 1e-12 and rates[-1] == pytest.approx(rates[0] / 2)


def test_warm_up_and_cosine_and_a_constant_rate(tmp_path: Path) -> None:
    common = ("data.limit=16", "train.lr=1e-3", "train.epochs=3", "train.warmup_steps=1")
    train_only(tmp_path / "cosine", *common)
    train_only(tmp_path / "constant", *common, "train.schedule=constant")
    cosine = [row["lr"] for row in history(tmp_path / "cosine")]
    constant = [row["lr"] for row in history(tmp_path / "constant")]
    assert cosine == sorted(cosine, reverse=True) and cosine[-1] == pytest.approx(0, abs=1e-9)
    assert constant[-1] == constant[1] == 1e-3


def test_training_stops_when_it_no_longer_gains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = iter([3.0, 2.0, 2.5, 2.0, 9.0, 9.0, 9.0])

    def evaluate(self: EnergyTask, module: Any, split: str) -> dict[str, float]:
        return {"mae": next(errors), "rmse": 0.0}

    monkeypatch.setattr(EnergyTask, "evaluate", evaluate)
    result = train_only(tmp_path, "train.patience=2", "train.epochs=9", "data.limit=8")
    progress = result.state.progress
    # An equal value is no gain.
    assert (len(progress.history), progress.best_epoch, progress.best) == (4, 2, 2.0)
    best = artifact.read_state(tmp_path / "checkpoints" / "best")[1]["progress"]
    assert best["step"] == 2 * progress.step // 4


def test_a_first_validation_of_nan_does_not_stay_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = iter([float("nan"), 5.0, 4.0, float("nan")])
    monkeypatch.setattr(EnergyTask, "evaluate", lambda *_: {"mae": next(errors), "rmse": 0.0})
    progress = train_only(tmp_path, "train.epochs=4", "data.limit=8").state.progress
    assert (progress.best, progress.best_epoch) == (4.0, 3)


@pytest.mark.parametrize("tag", ["mu", "r2", "homo", "alpha"])
def test_every_read_out_trains(tag: str, tmp_path: Path) -> None:
    result = train_only(tmp_path, "train.epochs=1", name=f"schnet-qm9.{tag}")
    assert result.state.progress.history[0]["valid/mae"] > 0
    model = zoo.load(tmp_path)
    unit = {"mu": "D", "r2": "a0^2", "homo": "eV", "alpha": "a0^3"}[tag]
    assert model.column == f"{tag} [{unit}]"
    from ase.build import molecule

    frame = model.predict([molecule("CH3CH2OH"), molecule("H2O")])
    assert frame["valid"].all() and frame[model.column].notna().all()
    if tag in ("mu", "r2"):
        assert (frame[model.column] >= 0).all() or tag == "r2"
        with pytest.raises(RequestError, match="isn't an energy surface"):
            model.calculator().get_potential_energy(molecule("H2O"))


def test_the_moving_average_is_what_is_judged_and_kept(tmp_path: Path) -> None:
    train_only(tmp_path / "with", "train.ema_decay=0.5", "data.limit=16")
    train_only(tmp_path / "without", "train.ema_decay=0", "data.limit=16")
    for name, averaged in (("with", True), ("without", False)):
        last = tmp_path / name / "checkpoints" / "last"
        _, weights = artifact.read_weights(last / "weights.safetensors")
        tensors, _ = artifact.read_state(last)
        key = next(k for k in weights if k.endswith("output.weight"))
        assert torch.equal(weights[key], tensors[f"module.{key}"]) is not averaged
        assert any(k.startswith("average.") for k in tensors) is averaged


@pytest.mark.slow
def test_inductor_trains_as_eager_does(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++ for the inductor backend")
    common = ("train.epochs=1", "data.limit=32")
    eager = train_only(tmp_path / "eager", *common)
    torch._dynamo.utils.counters.clear()
    compiled = train_only(tmp_path / "compiled", *common, "train.backend=inductor")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    for name in ("train/loss", "valid/mae"):
        a = eager.state.progress.history[0][name]
        assert compiled.state.progress.history[0][name] == pytest.approx(a, rel=1e-4)


def test_inductor_without_a_compiler_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ZooError, match=r"needs g\+\+, and there is none on PATH"):
        train_only(tmp_path, "train.backend=inductor")


class TestALossThatIsNotFinite:
    """Named graphs, and the last checkpoint as it was."""

    def train(self, folder: Path, spoil: Any, *overrides: str) -> EnergyTask:
        config = tiny("train.epochs=3", "train.accumulate=1", *overrides)
        self.task = task = EnergyTask(config=config, data=open_data(config))
        steps: list[int] = []

        def after_step(step: int) -> None:
            steps.append(step)
            self.kept = (folder / "checkpoints/last/weights.safetensors").read_bytes()
            if step == 4:
                spoil(task)

        train(
            task=task,
            settings=config.train,
            folder=folder,
            tracker=NoTracker(),
            display=Display(quiet=True),
            after_step=after_step,
        )
        return task

    def test_an_infinite_label_names_its_graphs(self, tmp_path: Path) -> None:
        def spoil(task: EnergyTask) -> None:
            position = task.train_loader.position
            self.pack = task.train_loader.plan().pack(position)
            task.data.labels.scaled[self.pack[1]] = float("inf")

        with pytest.raises(ZooError) as error:
            self.train(tmp_path, spoil)
        first, second = str(error.value).split("\n")
        assert first.startswith("the loss is inf at step 5 of epoch 1; the batch holds graphs ")
        assert first.endswith(", ".join(map(str, self.pack)))
        assert "what was saved before is kept" in second
        last = tmp_path / "checkpoints" / "last"
        assert (last / "weights.safetensors").read_bytes() == self.kept
        assert artifact.read_state(last)[1]["progress"]["step"] == 4

    def test_only_the_pack_that_holds_it_is_named(self, tmp_path: Path) -> None:
        def spoil(task: EnergyTask) -> None:
            plan = task.train_loader.plan()
            self.pack, self.other = (
                plan.pack(task.train_loader.position + shift) for shift in (1, 0)
            )
            task.data.labels.scaled[self.pack[0]] = float("inf")

        with pytest.raises(ZooError) as error:
            self.train(tmp_path, spoil, "train.accumulate=2")
        named = str(error.value).split("\n")[0].partition("graphs ")[2]
        assert named == ", ".join(map(str, self.pack))

    def test_an_infinite_gradient_is_not_taken(self, tmp_path: Path) -> None:
        def spoil(task: EnergyTask) -> None:
            # Its loss is finite, and its slope is not: no step may carry it into a checkpoint.
            task._criterion = lambda a, b, reduction: (
                (a - b).abs().add(1e-12).pow(1e-3).sum() * 0 + (a * 0).sqrt().sum()
            )

        with pytest.raises(ZooError, match="the gradient's norm is nan at step 5 of epoch 1"):
            self.train(tmp_path, spoil)
        assert zoo.load(tmp_path).module.output.weight.isfinite().all()
        assert (tmp_path / "checkpoints/last/weights.safetensors").read_bytes() == self.kept


def test_the_same_folder_twice_is_refused(trained: Path) -> None:
    before = (trained / "config.json").read_bytes()
    with pytest.raises(RequestError) as error:
        zoo.run("schnet-qm9", *TINY, "train.lr=0.5", preset="smoke", folder=trained)
    assert f"{trained} holds a run already" in str(error.value)
    assert f"zoo resume {trained}" in str(error.value)
    assert (trained / "config.json").read_bytes() == before


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path) -> None:
    second: list[BaseException] = []

    def after_step(step: int) -> None:
        if step == 1:
            try:
                zoo.resume(tmp_path)
            except RequestError as error:
                second.append(error)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config=tiny(), folder=tmp_path, after_step=after_step)
    assert "another process is training in" in str(second[0])
    # The first is gone, and its lock with it.
    assert zoo.resume(tmp_path)["steps"] == 14


def test_resuming_a_finished_run_gives_its_result(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = strict_json((trained / "result.json").read_text())
    before = (trained / "checkpoints/best/weights.safetensors").stat().st_mtime_ns
    assert zoo.resume(trained) == stored
    assert "is finished; this is its result" in capsys.readouterr().err
    assert (trained / "checkpoints/best/weights.safetensors").stat().st_mtime_ns == before


def test_resuming_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no run at .*config.json is missing"):
        zoo.resume(tmp_path)
    with pytest.raises(RequestError, match="no run at"):
        zoo.resume(tmp_path / "absent")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RequestError, match=r"config\.json is damaged"):
        zoo.resume(tmp_path)
    (tmp_path / "config.json").write_text('{"entry": "x"}')
    with pytest.raises(RequestError) as error:
        zoo.resume(tmp_path)
    assert len(str(error.value).split("\n")) <= 3


def test_what_cannot_start_leaves_no_folder(tmp_path: Path) -> None:
    nowhere = ["data.synthetic=0", "data.folder=/nowhere"]
    for overrides in (["data.property=u0"], ["batch.nodes=2"], nowhere):
        with pytest.raises(RequestError):
            zoo.run("schnet-qm9", *TINY, *overrides, preset="smoke", folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
