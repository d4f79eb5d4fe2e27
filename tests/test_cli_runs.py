"""Commands that train, evaluate and predict: their text, their JSON, their exit codes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
from ase.build import molecule
from ase.io import write
from tiny import TINY, strict_json, untrained, zoo_command

import zoo
from zoo import cli
from zoo.recipes import run as running

pytestmark = pytest.mark.usefixtures("cache")


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Run `zoo ...` in this process; whatever it writes to the descriptors is seen."""
    monkeypatch.setenv("OMP_WAIT_POLICY", os.environ.get("OMP_WAIT_POLICY", "PASSIVE"))
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # main() sets it
    monkeypatch.setattr(running, "_plots", lambda *_: [])

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["zoo", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            cli.main()
        return Done(int(exit_info.value.code or 0), *capfd.readouterr())  # type: ignore[arg-type]

    return run


def test_run_resume_and_evaluate(command: Callable[..., Done], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    arguments = ("run", "schnet-qm9", *TINY, "data.limit=16", "--preset", "smoke")
    done = command(*arguments, "--seed", 3, "--folder", folder)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("schnet-qm9.U0 valid: mae ") and " eV" in lines[0]
    assert lines[-1] == f"weights: {folder / 'checkpoints' / 'best'}"
    assert "made-up molecules 16 train, 9 valid" in done.err and "epoch 2/2: train loss" in done.err
    # At its end it says where things are.
    assert f"checkpoint: {folder / 'checkpoints' / 'best'}" in done.err

    again = command(*arguments, "--folder", folder, "--json")
    assert again.code == 2 and "holds a run already" in strict_json(again.out)["error"]
    resumed = command("resume", folder, "--json")
    assert resumed.code == 0
    result = strict_json(resumed.out)
    assert result["seed"] == 3 and result == strict_json((folder / "result.json").read_text())

    evaluated = command("evaluate", folder, "--split", "valid", "--json")
    assert evaluated.code == 0
    assert strict_json(evaluated.out)["metrics"]["valid"] == pytest.approx(
        result["metrics"]["valid"]
    )
    text = command("evaluate", folder)
    assert text.out.startswith("schnet-qm9.U0 test: mae ") and text.err == ""


def test_json_holds_no_nan(
    command: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, trained: Path
) -> None:
    value = {"a": float("nan"), "b": [float("-inf"), 1.5, True, None], "c": Path("x"), 5: (1,)}
    monkeypatch.setattr(zoo, "resume", lambda folder: value)
    done = command("resume", trained, "--json")
    assert strict_json(done.out) == {"a": None, "b": [None, 1.5, True, None], "c": "x", "5": [1]}


def test_a_copied_recipe_runs_by_its_path(
    command: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command("cp", "schnet-qm9.mu", "mine", "--json")
    path = Path(strict_json(done.out)["file"])
    assert done.code == 0 and path == Path("mine/schnet-qm9.yaml")
    # What was copied is the recipe of all tags: the one that was asked for is named.
    assert strict_json(done.out)["run"] == f"zoo run {path}:mu"
    assert command("cp", "schnet-qm9", "other").out.endswith("zoo run other/schnet-qm9.yaml\n")
    path.write_text(path.read_text().replace("entry: schnet-qm9", "entry: mine"))
    done = command("run", path, *TINY, "data.limit=16", "--preset", "smoke", "--json")
    assert done.code == 0
    result = strict_json(done.out)
    assert result["entry"] == "mine.U0" and result["folder"].startswith("runs/mine.U0-s0-")
    assert Path(result["checkpoint"], "weights.safetensors").exists()
    # A run of a recipe that no registry knows is evaluated as it was trained.
    evaluated = strict_json(command("evaluate", result["folder"], "--json").out)
    assert evaluated["metrics"]["test"] == pytest.approx(result["metrics"]["test"])


def test_a_copy_into_a_file_or_over_one_is_refused(
    command: Callable[..., Done], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    done = command("cp", "schnet-qm9", tmp_path / "file")
    assert done.code in (1, 2) and "file" in done.err and len(done.err.splitlines()) <= 3
    assert command("cp", "nothing", tmp_path).code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_predict_prints_a_table_or_json(
    command: Callable[..., Done], trained: Path, tmp_path: Path
) -> None:
    path = tmp_path / "in.extxyz"
    write(path, [molecule("H2O"), molecule("SiH4"), molecule("CH4")])
    done = command("predict", trained, path)
    assert done.code == 0 and done.err == ""
    head, *rows = done.out.splitlines()
    assert head.split() == ["U0", "[eV]", "valid", "reason"]
    assert "never saw" in rows[1] and rows[2].split()[1] == "True"
    assert all(row.startswith("warning: ") for row in rows[3:])
    found = strict_json(command("predict", trained, path, "--json").out)["predictions"]
    assert [row["valid"] for row in found] == [True, False, True]
    assert found[1]["U0 [eV]"] is None and found[0]["U0 [eV]"] < 0
    skipped = strict_json(command("predict", trained, path, "--on-error", "skip", "--json").out)
    assert len(skipped["predictions"]) == 2
    raised = command("predict", trained, path, "--on-error", "raise", "--json")
    assert raised.code == 1 and "row 1" in strict_json(raised.out)["error"]


def test_predict_writes_a_file_and_a_report(
    command: Callable[..., Done], trained: Path, tmp_path: Path
) -> None:
    path, out = tmp_path / "in.extxyz", tmp_path / "out.csv"
    write(path, [molecule("H2O"), molecule("SiH4")])
    done = command("predict", trained, path, "-o", out)
    assert done.code == 0
    assert done.out == (
        f"{out}: 1 of 2 rows could not be used; see {tmp_path / 'out.report.csv'}\n"
    )
    assert pd.read_csv(out)["valid"].tolist() == [True, False]
    summary = strict_json(command("predict", trained, path, "--out", out, "--json").out)
    assert summary == {
        "file": str(out),
        "rows": 2,
        "invalid": 1,
        "report": str(tmp_path / "out.report.csv"),
    }
    assert command("predict", trained, path, "-o", tmp_path / "out.xlsx").code == 2
    assert command("predict", trained, path, "-o", path.with_suffix(".csv")).code == 0


def test_predict_from_smiles_warns_of_the_geometry(
    command: Callable[..., Done], trained: Path
) -> None:
    done = command("predict", trained, "CO")
    assert done.code == 0 and "warning: " in done.out and "DFT" in done.out
    found = strict_json(command("predict", trained, "C1CC", "--json").out)["predictions"]
    assert found[0]["valid"] is False and found[0]["reason"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("predict", "{run}", "absent.csv"), "no such file: absent.csv"),
        (("predict", "{run}", "in.csv", "--smiles", "smile"), "nearest: 'smiles'"),
        (("predict", "{run}", "in.csv", "--on-error", "ignore"), "unknown on-error policy"),
        (("predict", "{run}", "in.csv", "--seconds", "-1"), "seconds"),
        (("predict", "{run}", "in.csv", "--seed", "-1"), "seed"),
        (("predict", "{run}", "in.csv", "-o", "in.csv"), "in.csv is the input"),
        (("predict", "in.csv", "in.csv"), "in.csv"),
        (("evaluate", "{run}", "train.epoch=1"), "unknown key 'train.epoch'"),
        (("evaluate", "in.csv"), "in.csv"),
        (("resume", "in.csv"), "no run at in.csv"),
        (("resume", "{run}/checkpoints"), "no run at"),
        (("run", "in.csv"), "unknown entry 'in.csv'"),
        (("run", "schnet-qm9", "--replicas", "0"), "train.replicas"),
        (("run", "schnet-qm9", "--seed", "-1"), "train.seed"),
        (("run", "schnet-qm9", "--seed", "x"), "--seed"),
        (("run", "schnet-qm9", "data.folder=."), "no raw files of QM9"),
        (("fetch", untrained()), "has no trained weights yet"),
        (("fetch", "schnet-qm9", "--all"), "name one entry, or give --all"),
        (("config", "schnet-qm9", "--preset", "fast"), "unknown preset 'fast'"),
        (("trian", "schnet-qm9"), "No such command 'trian'"),
        (("show",), "Missing argument"),
        (("run", "schnet-qm9", "--preset"), "requires an argument"),
    ],
)
def test_a_wrong_request_exits_2_and_leaves_nothing(
    command: Callable[..., Done],
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_text("id,smiles\n1,C\n")

    def trained_after_all(**_: object) -> None:
        raise AssertionError("this was to be refused, and would train for hours")

    monkeypatch.setattr(running, "train", trained_after_all)
    filled = [argument.format(run=trained) for argument in arguments]
    done = command(*filled)
    assert (done.code, done.out) == (2, ""), done.err
    assert says in done.err and done.err.startswith("error: ")
    assert 1 <= len(done.err.splitlines()) <= 3 and "Traceback" not in done.err
    with_json = command(*filled, "--json")
    assert with_json.code == 2
    if says != "requires an argument":  # there --json is the argument
        found = strict_json(with_json.out)
        assert says in found["error"] and found["exit_code"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_work_that_fails_exits_1(
    command: Callable[..., Done],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trained: Path,
) -> None:
    from zoo.recipes.energy import EnergyTask

    built = EnergyTask.__init__

    def spoilt(self: EnergyTask, **given: object) -> None:
        built(self, **given)  # type: ignore[arg-type]
        self.data.labels.scaled[self.data.splits["train"]] = float("inf")

    monkeypatch.setattr(EnergyTask, "__init__", spoilt)
    arguments = ("run", "schnet-qm9", *TINY, "--preset", "smoke", "--folder", tmp_path / "run")
    done = command(*arguments, "--json")
    assert done.code == 1
    assert "the batch holds graphs" in strict_json(done.out)["error"]
    last = done.err[done.err.index("error: ") :]
    assert 1 <= len(last.splitlines()) <= 3

    def broken(name: object) -> None:
        raise IndexError("list index out of range\nand more")

    monkeypatch.setattr(zoo, "load", broken)
    done = command("predict", trained, "C")
    assert done.code == 1
    assert done.err.splitlines() == [
        "error: unexpected IndexError: list index out of range",
        "ZOO_DEBUG=1 shows where it came from",
    ]
    monkeypatch.setenv("ZOO_DEBUG", "1")
    done = command("predict", trained, "C", "--json")
    assert done.code == 1 and "in broken" in done.err and "Traceback" in done.err
    assert strict_json(done.out)["exit_code"] == 1


def test_a_damaged_weight_file_exits_1(
    command: Callable[..., Done], trained: Path, tmp_path: Path
) -> None:
    path = tmp_path / "w.safetensors"
    data = (trained / "checkpoints" / "best" / "weights.safetensors").read_bytes()
    path.write_bytes(data[: len(data) // 2])
    done = command("predict", path, "C")
    assert done.code == 1 and str(path) in done.err and done.out == ""


def test_an_interrupt_exits_130(
    command: Callable[..., Done], trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(name: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo, "load", stop)
    done = command("predict", trained, "C")
    assert (done.code, done.out, done.err) == (130, "", "stopped\n")


def test_help_and_version(command: Callable[..., Done]) -> None:
    done = command("--help")
    assert done.code == 0
    verbs = [
        "ls",
        "show",
        "config",
        "cp",
        "fetch",
        "run",
        "resume",
        "evaluate",
        "predict",
        "doctor",
        "bench",
    ]
    assert all(f"\n  {verb} " in done.out for verb in verbs)
    for verb in verbs:
        page = command(verb, "-h")
        assert (page.code == 0 and page.err == "" and "--json" in page.out) or verb == "bench"
    assert command("--version").out == f"gnn-zoo {zoo.__version__}\n"


def test_predictions_need_no_network_and_no_cache(trained: Path, tmp_path: Path) -> None:
    """In a process whose sockets are shut, with a cache that can't be written."""
    weights = shutil.copy(trained / "checkpoints/best/weights.safetensors", tmp_path)
    (tmp_path / "cache").touch()
    write(tmp_path / "in.xyz", molecule("CH3CH2OH"))
    code = (
        "import socket, sys\n"
        "def shut(*_, **__): raise AssertionError('a socket was opened')\n"
        "socket.socket.connect = socket.create_connection = socket.getaddrinfo = shut\n"
        f"sys.argv = ['zoo', 'predict', {str(weights)!r}, 'in.xyz', '--json']\n"
        "from zoo.cli import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "ZOO_OFFLINE": "1", "ZOO_CACHE": str(tmp_path / "cache")},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert strict_json(done.stdout)["predictions"][0]["valid"] is True


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    process = zoo_command(
        *("run", "schnet-qm9", *TINY, "data.limit=16", "--preset", "smoke", "--folder", "run"),
        folder=tmp_path,
        ZOO_CACHE=str(tmp_path / "cache"),
    )
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    [warning] = [line for line in err.splitlines() if "warning" in line.lower()]
    assert warning.startswith(f"warning: cannot write {tmp_path / 'cache'}")


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    process = zoo_command("ls", folder=tmp_path)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=60) in (0, 1)
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.parametrize("when", ["signal.getsignal(signal.SIGTERM)", "os.path.exists(FOLDER)"])
def test_sigterm_before_the_first_step_is_told_and_loses_nothing(
    tmp_path: Path, cache: Path, when: str
) -> None:
    """From where the command listens, while it imports and reads, a stop is noted and told."""
    folder = tmp_path / "run"
    # A hook of Python's own sends the signal as soon as its condition holds.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, threading, time\n"
        f"FOLDER = {str(folder)!r}\n"
        "def wait():\n"
        f"    while not {when}:\n"
        "        time.sleep(0.001)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "if os.environ.pop('STOP_SOON', ''):\n"
        "    threading.Thread(target=wait, daemon=True).start()\n"
    )
    process = zoo_command(
        *("run", "schnet-qm9", "--preset", "smoke", *TINY, "train.epochs=200"),
        *("--folder", str(folder), "--json"),
        folder=tmp_path,
        PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
        STOP_SOON="1",
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143, err
    assert strict_json(out)["exit_code"] == 143 and "stopped by SIGTERM" in err


def test_sigterm_ends_a_prediction_and_leaves_nothing_half_written(
    trained: Path, tmp_path: Path
) -> None:
    table = tmp_path / "in.csv"
    table.write_text("smiles\n" + "CCCCCCCCO\n" * 20_000)
    process = zoo_command(
        *("predict", str(trained), str(table), "-o", str(tmp_path / "out.csv"), "--json"),
        folder=tmp_path,
    )
    until = time.monotonic() + 60
    while not list(tmp_path.glob(".out.csv.partial-*")) and time.monotonic() < until:
        time.sleep(0.05)
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert strict_json(out) == {"error": "stopped by SIGTERM", "exit_code": 143}
    assert [p.name for p in tmp_path.iterdir()] == ["in.csv"]


def test_a_terminal_without_the_letters_is_no_failure(tmp_path: Path) -> None:
    process = zoo_command(
        "show", "schnet-qm9", folder=tmp_path, PYTHONIOENCODING="ascii", LC_ALL="C"
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Sch\\xfctt" in out
