"""Runs with MLflow: what they log, the model that others load, and stores that can't be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import TINY, strict_json, tiny, zoo_command

import zoo
from zoo.recipes import run as running
from zoo.recipes.run import run
from zoo.training.tracking_protocol import NoTracker
from zoo.training.tracking_records import write_run

pytestmark = [
    pytest.mark.usefixtures("cache"),
    # What MLflow advises when a model is saved or loaded is no concern of these tests.
    pytest.mark.filterwarnings("ignore:.*([Tt]ype hint|input example)"),
]

TRACKED = (*TINY, "train.tracking=true")
WATER = "3\n\nO 0 0 0.119\nH 0 0.763 -0.477\nH 0 -0.763 -0.477\n"


def test_a_run_logs_all_it_knows_and_a_model_that_predicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import mlflow
    import pandas as pd
    from ase.build import molecule

    monkeypatch.chdir(tmp_path)
    folder = Path("runs") / "mine"
    result = run(config=tiny("train.tracking=true"), folder=folder)
    out, err = capfd.readouterr()
    assert out == "" and f"tracked as run {result['run_id']}" in err
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert f"mlflow ui --backend-store-uri {uri}" in err
    client = mlflow.MlflowClient(uri)
    logged = client.get_run(result["run_id"])
    assert logged.info.status == "FINISHED" and logged.info.run_name == "mine"
    params = logged.data.params
    assert params["train.lr"] == "0.001" and params["model.arguments.features"] == "32"
    assert params["data.property"] == "U0"
    tags = logged.data.tags
    assert tags["split_sha256"] == result["split_sha256"] and "torch" in tags and "zoo" in tags
    epochs = client.get_metric_history(result["run_id"], "valid/mae")
    assert [m.step for m in epochs][:2] == [7, 14]
    assert logged.data.metrics["test/mae"] == pytest.approx(result["metrics"]["test"]["mae"])
    assert logged.data.metrics["train_graphs_per_s"] > 0
    plots = {Path(file.path).name for file in client.list_artifacts(result["run_id"], "plots")}
    assert {"learning-curve.png", "parity.png"} <= plots
    kept = client.list_artifacts(result["run_id"], "checkpoint/best")
    assert "checkpoint/best/weights.safetensors" in {file.path for file in kept}
    [data] = logged.inputs.dataset_inputs
    assert data.dataset.name == "qm9" and data.dataset.digest

    [output] = logged.outputs.model_outputs
    place = client.get_logged_model(output.model_id).artifact_location
    model = mlflow.pyfunc.load_model(place)
    expected = zoo.load(folder)
    frame = model.predict(pd.DataFrame({"smiles": ["CO", "no molecule", None]}))
    assert frame["valid"].tolist() == [True, False, False]
    ours = expected.predict(["CO"])["U0 [eV]"][0]
    # Packed with other molecules, a float32 sum may end one rounding apart.
    assert frame["U0 [eV]"][0] == pytest.approx(ours, rel=1e-6)
    given = model.predict(pd.DataFrame({"xyz": [WATER, "3\n\nO 0 0"]}))
    assert given["valid"].tolist() == [True, False]
    assert "not the text of an XYZ file" in given["reason"][1]
    assert given["U0 [eV]"][0] == pytest.approx(
        expected.predict([molecule("H2O")])["U0 [eV]"][0], abs=0.05
    )
    both = model.predict(pd.DataFrame({"smiles": ["C", "CO"], "xyz": [WATER, ""]}))
    alone = [given["U0 [eV]"][0], frame["U0 [eV]"][0]]
    assert both["U0 [eV]"].tolist() == pytest.approx(alone, rel=1e-6)
    assert list(both.columns[:2]) == ["smiles", "xyz"] and len(both) == 2


@pytest.mark.slow
def test_two_first_runs_at_once_in_one_folder(tmp_path: Path) -> None:
    arguments = ("run", "schnet-qm9", "--preset", "smoke", *TRACKED, "--json")
    processes = [zoo_command(*arguments, folder=tmp_path) for _ in range(2)]
    results = []
    for process in processes:
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
        results.append(strict_json(out))
    assert results[0]["metrics"] == results[1]["metrics"]
    assert results[0]["folder"] != results[1]["folder"]
    assert None not in {r["run_id"] for r in results} and len({r["run_id"] for r in results}) == 2
    code = "import mlflow, sys; c = mlflow.MlflowClient(sys.argv[1])\n"
    code += "print(*sorted(c.get_run(r).info.status for r in sys.argv[2:]))"
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    done = subprocess.run(
        [sys.executable, "-c", code, uri, *(r["run_id"] for r in results)],
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["FINISHED", "FINISHED"], done.stderr


@pytest.mark.parametrize("store", ["file-in-the-way/mlflow.db", "no-database.db", "nothing://x"])
def test_a_store_that_cannot_be_used_never_ends_a_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    store: str,
) -> None:
    (tmp_path / "file-in-the-way").touch()
    (tmp_path / "no-database.db").write_text("this is no database, and long enough to say so" * 9)
    uri = store if "://" in store else f"sqlite:///{tmp_path / store}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setattr(running, "_plots", lambda *_: [])
    result = run(config=tiny("train.tracking=true", "data.limit=16"), folder=tmp_path / "run")
    assert result["run_id"] is None and result["metrics"]["test"]["mae"] > 0
    out, err = capfd.readouterr()
    assert out == "" and "the run goes on, its log is kept in" in err
    assert "Traceback" not in err and "tracked as run" not in err
    assert "python -m zoo.training.replay" in err


def test_a_run_resumed_from_elsewhere_goes_on_in_its_own_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = []

    class Fake(NoTracker):
        def __init__(self, *, uri: str | None, **_: object) -> None:
            stores.append(uri)

    monkeypatch.setattr(running, "Tracker", Fake)
    monkeypatch.setattr(running, "_plots", lambda *_: [])
    database = tmp_path / "mlflow.db"
    uri = f"sqlite:///{database}"
    folder = tmp_path / "run"

    def stop(step: int) -> None:
        raise KeyboardInterrupt

    config = tiny("train.tracking=true", "data.limit=16")
    with pytest.raises(KeyboardInterrupt):
        run(config=config, folder=folder, after_step=stop)
    write_run(folder, run_id="abc", uri=uri, experiment="x")
    database.touch()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(config=config, folder=folder, resume=True, after_step=stop)
        database.unlink(missing_ok=True)  # moved away: nothing is made in its old place
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere")
    run(config=config, folder=folder, resume=True)
    assert stores == [None, uri, None, "http://elsewhere"]


def test_a_run_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    process = zoo_command("run", "schnet-qm9", "--preset", "smoke", *TINY, folder=tmp_path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1 and out == ""
    last = err.strip().splitlines()[-1]
    assert last.startswith("error: cannot write runs/schnet-qm9.U0-s0-") and os.linesep not in last
