"""Tracking against real stores: a SQLite file, and an `mlflow server` that is killed."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zoo.errors import RequestError, StoppedError, UnavailableError
from zoo.training import replay as replaying
from zoo.training import tracking
from zoo.training.tracking import NoTracker, Tracker, Tracking, known_run, replay
from zoo.training.tracking_records import SPOOL

# What MLflow advises when a model is saved or loaded is no concern of these tests.
pytestmark = pytest.mark.filterwarnings("ignore:.*(type hints|input example)")

MODEL = """
import mlflow
from mlflow.pyfunc import PythonModel

class Times(PythonModel):
    def load_context(self, context):
        with open(context.artifacts["factor"]) as file:
            self.factor = float(file.read())

    def predict(self, context, model_input, params=None):
        return model_input.assign(y=model_input["x"] * self.factor)[["y"]]

mlflow.models.set_model(Times())
"""
SIGNATURE = {
    "inputs": [{"name": "x", "type": "double"}],
    "outputs": [{"name": "y", "type": "double"}],
}


def client(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def history(uri: str, run_id: str, name: str) -> list[tuple[int, float]]:
    found = client(uri).get_metric_history(run_id, name)
    return sorted((metric.step, metric.value) for metric in found)


def run_python(code: str, *, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """A process of its own, without what tells MLflow that it is being tested."""
    needed = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "SYSTEMROOT", "OMP_NUM_THREADS")
    kept = {name: os.environ[name] for name in needed if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=folder,
        env=kept | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(true: Callable[[], bool], *, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A SQLite store, made once: MLflow's migrations take seconds."""
    folder = tmp_path_factory.mktemp("a store å")
    uri = f"sqlite:///{(folder / 'mlflow.db').as_posix()}"
    Tracker(experiment="first", run_name="first", folder=folder, uri=uri).close()
    return uri


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "_GATHER_SECONDS", 0.05)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run 1"
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "checkpoint" / "state.json").write_text("{}")
    (folder / "factor.txt").write_text("3")
    (folder / "model.py").write_text(MODEL)
    return folder


def log_model(tracker: Tracker, folder: Path) -> None:
    tracker.model(
        script=folder / "model.py",
        artifacts={"factor": folder / "factor.txt"},
        signature=SIGNATURE,
        requirements=["pandas"],
    )


def test_a_run_in_a_local_store(
    store: str, run_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Tracker(experiment="qm9/all", run_name="one", folder=run_folder, uri=store) as tracker:
        tracker.params({"train": {"lr": 1e-3, "ema": None}, "note": "x" * 7000})
        tracker.metrics({"mae/U0 [eV]": 0.5, "hits@1": float("nan")}, step=1)
        tracker.metrics({"mae/U0 [eV]": 0.25}, step=2)
        tracker.tags({"split": "abc"})
        tracker.dataset(name="qm9", digest="ab" * 32)
        tracker.artifact(run_folder / "checkpoint", folder="checkpoints")
        log_model(tracker, run_folder)
    run_id = tracker.run_id
    assert run_id is not None and tracker.unsent is None
    assert known_run(run_folder) == run_id
    assert capfd.readouterr() == ("", "")

    run = client(store).get_run(run_id)
    assert run.info.status == "FINISHED" and run.info.run_name == "one"
    assert run.data.params["train.lr"] == "0.001" and run.data.params["train.ema"] == "null"
    assert len(run.data.params["note"]) == 6000
    assert history(store, run_id, "mae/U0 in eV") == [(1, 0.5), (2, 0.25)]
    [(step, value)] = history(store, run_id, "hits_at_1")
    assert step == 1 and value != value
    assert run.data.tags["split"] == "abc"
    assert run.data.tags["dataset.training"] == "qm9 " + "ab" * 32
    [dataset] = run.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.tags[0].value) == ("qm9", "training")
    files = client(store).list_artifacts(run_id, "checkpoints/checkpoint")
    assert [file.path for file in files] == ["checkpoints/checkpoint/state.json"]


def test_the_logged_model_is_code_without_pickle_and_loads(store: str, run_folder: Path) -> None:
    import mlflow
    import pandas as pd

    with Tracker(experiment="models", run_name="one", folder=run_folder, uri=store) as tracker:
        log_model(tracker, run_folder)
    run = client(store).get_run(tracker.run_id)
    [output] = run.outputs.model_outputs
    logged = client(store).get_logged_model(output.model_id)
    assert logged.status == "READY" and logged.source_run_id == tracker.run_id
    folder = Path(mlflow.artifacts.download_artifacts(logged.artifact_location))
    assert not [path for path in folder.rglob("*") if path.suffix in (".pkl", ".pickle", ".pyc")]
    lines = (folder / "requirements.txt").read_text().split()
    assert [line.partition("==")[0] for line in lines] == ["mlflow", "pandas"]
    model = mlflow.pyfunc.load_model(str(folder))
    assert model.predict(pd.DataFrame({"x": [1.0, 2.0]}))["y"].tolist() == [3.0, 6.0]
    assert [column.name for column in model.metadata.signature.inputs.inputs] == ["x"]


def test_an_mlflow_signature_is_taken_too() -> None:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    signature = ModelSignature(inputs=Schema([ColSpec("double", "x")]))
    plain = tracking.plain_signature(signature)
    assert plain == {"inputs": [{"type": "double", "name": "x", "required": True}]}
    assert tracking.plain_signature(SIGNATURE) == SIGNATURE


def test_resuming_a_run(store: str, run_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tracker = Tracker(experiment="resumed", run_name="r", folder=run_folder, uri=store)
    with pytest.raises(StoppedError), tracker:
        tracker.params({"epochs": 10, "lr": 0.1})
        tracker.metrics({"loss": 2.0}, step=1)
        raise StoppedError("stopped")
    run_id = tracker.run_id
    assert client(store).get_run(run_id).info.status == "KILLED"

    again = Tracker(experiment="resumed", run_name="r", folder=run_folder, uri=store, run_id=run_id)
    again.params({"epochs": 20, "lr": 0.1, "new": 1})
    again.metrics({"loss": 1.0}, step=2)
    assert again.run_id == run_id
    assert client(store).get_run(run_id).info.status == "RUNNING"
    again.close()
    run = client(store).get_run(run_id)
    assert run.info.status == "FINISHED"
    # MLflow lets no parameter change: the new value stands beside the old one.
    assert run.data.params == {"epochs": "10", "lr": "0.1", "new": "1"}
    assert run.data.tags["changed.epochs"] == "20" and "changed.lr" not in run.data.tags
    assert history(store, run_id, "loss") == [(1, 2.0), (2, 1.0)]
    assert capfd.readouterr().err == ""


def test_resuming_a_run_that_the_store_lost(
    store: str, run_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lost = "0123456789abcdef0123456789abcdef"
    with Tracker(
        experiment="resumed", run_name="r", folder=run_folder, uri=store, run_id=lost
    ) as tracker:
        tracker.metrics({"loss": 2.0}, step=1)
    assert tracker.run_id not in (None, lost)
    assert history(store, tracker.run_id, "loss") == [(1, 2.0)]
    assert capfd.readouterr().err.count(lost) == 1


def test_a_failure_is_the_runs_status(store: str, run_folder: Path) -> None:
    tracker = Tracker(experiment="failed", run_name="r", folder=run_folder, uri=store)
    with pytest.raises(ZeroDivisionError), tracker:
        raise ZeroDivisionError
    assert client(store).get_run(tracker.run_id).info.status == "FAILED"


def test_what_mlflow_refuses_does_not_hold_up_the_rest(
    store: str, run_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (run_folder / "model.py").write_text("raise ValueError('broken script')")
    with Tracker(experiment="refused", run_name="r", folder=run_folder, uri=store) as tracker:
        tracker.artifact(run_folder / "missing.png")
        log_model(tracker, run_folder)
        tracker._put({"kind": "metrics", "values": {"a": 1.0, "b": 2.0}, "step": 1, "time": "x"})
        tracker.metrics({"loss": 1.0}, step=1)
    run = client(store).get_run(tracker.run_id)
    assert run.info.status == "FINISHED" and run.data.metrics == {"loss": 1.0}
    assert tracker.unsent is None
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 4 and all("MLflow refused" in line for line in lines)
    assert "missing.png" in lines[0] and "broken script" in lines[1] and "metrics a" in lines[2]


def test_a_deleted_experiment_comes_back(store: str, run_folder: Path) -> None:
    for _ in range(2):
        with Tracker(experiment="gone", run_name="r", folder=run_folder, uri=store) as tracker:
            tracker.metrics({"loss": 1.0}, step=1)
        found = client(store).get_experiment_by_name("gone")
        assert history(store, tracker.run_id, "loss") == [(1, 1.0)]
        client(store).delete_experiment(found.experiment_id)


def test_two_first_runs_at_once(tmp_path: Path) -> None:
    code = """
    import sys, time
    from pathlib import Path
    from zoo.training.tracking import Tracker

    folder = Path("run")
    folder.mkdir(exist_ok=True)
    with Tracker(experiment="same", run_name="r", folder=folder) as tracker:
        tracker.metrics({"loss": 1.0}, step=1)
    print(tracker.run_id, tracker.unsent)
    """
    processes = [run_python(code, folder=tmp_path) for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [error for _, error in outputs] == ["", ""]
    ids, unsent = zip(*(output.split() for output, _ in outputs), strict=True)
    assert unsent == ("None", "None") and len(set(ids)) == 2
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    for run_id in ids:
        assert history(uri, run_id, "loss") == [(1, 1.0)]
        assert client(uri).get_run(run_id).info.status == "FINISHED"


WATCHED = """
import socket, sys, threading
from pathlib import Path

asked, started = [], []

def refuse(host, *rest, **named):
    asked.append(host)
    raise OSError("no network here")

socket.getaddrinfo = refuse
socket.socket.connect = lambda self, address: refuse(address)
start = threading.Thread.start
threading.Thread.start = lambda self: (started.append(self.name), start(self))[1]
"""


def test_nothing_phones_home_and_stdout_is_left_alone(tmp_path: Path, store: str) -> None:
    code = WATCHED + textwrap.dedent("""
    from zoo.training.tracking import Tracker
    tracker = Tracker(experiment="home", run_name="r", folder=Path("run"))
    tracker.metrics({"loss": 1.0}, step=1)
    # No close: the end of the process has to do.
    import atexit
    atexit._run_exitfuncs()
    import mlflow.telemetry
    from mlflow.telemetry.utils import _IS_IN_CI_ENV_OR_TESTING
    assert not _IS_IN_CI_ENV_OR_TESTING, "MLflow is silent of itself here: this proves nothing"
    assert mlflow.telemetry.get_telemetry_client() is None
    print(tracker.run_id, asked, started, file=sys.stderr)
    """)
    # A user's own "off" or "1" must not switch it on.
    process = run_python(
        code,
        folder=tmp_path,
        MLFLOW_TRACKING_URI=store,
        MLFLOW_DISABLE_TELEMETRY="false",
        DO_NOT_TRACK="1",
        AI_AGENT="some",
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0 and out == "", err
    run_id, rest = err.strip().split(" ", 1)
    assert rest == "[] ['zoo-tracking']"
    assert history(store, run_id, "loss") == [(1, 1.0)]


class Server:
    """An `mlflow server` on loopback that can be killed and started again on the same store."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = folder
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = ["server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        arguments += ["--backend-store-uri", f"sqlite:///{self.folder / 'mlflow.db'}"]
        arguments += ["--artifacts-destination", str(self.folder / "artifacts")]
        off = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *arguments],
            cwd=self.folder,
            env=os.environ | off,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_until(self.answers, seconds=90)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store: str) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    shutil.copy(store.removeprefix("sqlite:///"), folder / "mlflow.db")
    running = Server(folder)
    yield running
    running.kill()


def test_a_server_that_dies_half_way_and_comes_back(
    server: Server,
    run_folder: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.start()
    tracker = Tracker(experiment="dies", run_name="r", folder=run_folder, uri=server.uri)
    with tracker:
        tracker.params({"lr": 0.1})
        tracker.metrics({"loss": 3.0}, step=1)
        run_id = tracker.run_id
        wait_until(lambda: history(server.uri, run_id, "loss") == [(1, 3.0)])
        server.kill()
        tracker.metrics({"loss": 2.0, "bad": float("inf")}, step=2)
        wait_until(lambda: tracker.unsent is not None)
        tracker.metrics({"loss": 1.0}, step=3)
        tracker.tags({"late": "yes"})
        tracker.artifact(run_folder / "checkpoint")
        log_model(tracker, run_folder)
    out, err = capfd.readouterr()
    assert out == "" and len(err.splitlines()) == 1
    assert server.uri in err and str(run_folder / SPOOL) in err and "connection refused" in err
    assert f"python -m zoo.training.replay {run_folder}" in err
    with pytest.raises(UnavailableError, match="connection refused"):
        replay(run_folder)
    assert tracker.unsent == run_folder / SPOOL

    # A second run meets no server at first, and finds one later without being told.
    monkeypatch.setattr(tracking, "_RETRY_SECONDS", 0.1)
    with Tracker(experiment="b", run_name="r", folder=tmp_path / "b", uri=server.uri) as second:
        second.metrics({"loss": 2.0}, step=1)
        wait_until(lambda: second.unsent is not None)
        assert second.run_id is None
        server.start()
        second.metrics({"loss": 1.0}, step=2)
        wait_until(lambda: second.run_id is not None)
        second.metrics({"loss": 0.5}, step=3)
    assert second.unsent is None
    assert history(server.uri, second.run_id, "loss") == [(1, 2.0), (2, 1.0), (3, 0.5)]
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2 and "does not answer" in lines[0] and "answers again" in lines[1]

    # The first run's folder may have moved by the time that its log is sent.
    moved = run_folder.rename(tmp_path / "moved")
    assert replaying.main([str(moved)]) == 0
    assert capfd.readouterr().out == f"sent to MLflow run {run_id}\n"
    run = client(server.uri).get_run(run_id)
    assert run.info.status == "FINISHED" and run.data.tags["late"] == "yes"
    assert history(server.uri, run_id, "loss") == [(1, 3.0), (2, 2.0), (3, 1.0)]
    assert [file.path for file in client(server.uri).list_artifacts(run_id)] == ["checkpoint"]
    assert len(run.outputs.model_outputs) == 1
    assert list(moved.glob("mlflow-spool*")) == []
    assert replaying.main([str(moved)]) == RequestError.exit_code


def test_a_server_that_never_answers_holds_up_nothing(tmp_path: Path) -> None:
    code = """
    import sys, time
    from pathlib import Path
    from zoo.training.tracking import Tracker

    start = time.monotonic()
    tracker = Tracker(experiment="hung", run_name="r", folder=Path("run"))
    for step in range(5000):
        tracker.metrics({"loss": 1.0}, step=step)
    tracker.close(patience=0.5)
    print(time.monotonic() - start)
    """
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        start = time.monotonic()
        process = run_python(
            code,
            folder=tmp_path,
            MLFLOW_TRACKING_URI=f"http://user:secret@127.0.0.1:{deaf.getsockname()[1]}",
            # Far longer than anything here may take: it would show as a hanging exit.
            MLFLOW_HTTP_REQUEST_TIMEOUT="300",
        )
        out, err = process.communicate(timeout=120)
        assert time.monotonic() - start < 100
    assert process.returncode == 0 and float(out) < 60, err
    assert len(err.splitlines()) == 1 and "does not answer" in err and "secret" not in err
    lines = (tmp_path / "run" / SPOOL).read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["run", *["metrics"] * 5000, "status"]
    assert "secret" not in lines[0]


def test_no_place_for_a_store_or_a_spool(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("not a folder")
    with Tracker(
        experiment="e",
        run_name="r",
        folder=tmp_path / "file" / "run",
        uri=f"sqlite:///{tmp_path / 'file' / 'mlflow.db'}",
    ) as tracker:
        # Once before there is anything to keep, and once after.
        assert tracker.run_id is None
        tracker.metrics({"loss": 1.0}, step=1)
        time.sleep(0.2)
        tracker.metrics({"loss": 1.0}, step=2)
    [line] = capfd.readouterr().err.splitlines()
    assert "can't be kept either" in line and str(tmp_path / "file") in line


def test_the_untracked_run_has_the_same_methods() -> None:
    names = [name for name in vars(Tracking) if not name.startswith("_")] + ["__exit__"]
    assert {"params", "metrics", "tags", "artifact", "model", "dataset", "close"} < set(names)
    for name in names:
        for kind in (Tracker, NoTracker):
            wanted, found = getattr(Tracking, name), getattr(kind, name)
            if callable(wanted):
                assert inspect.signature(wanted) == inspect.signature(found), (kind, name)
    with NoTracker() as nothing:
        nothing.metrics({"loss": 1.0}, step=1)
        assert nothing.run_id is None and nothing.unsent is None
