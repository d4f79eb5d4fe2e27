"""A run that is killed or stopped and resumed ends with the bits of one that never was."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TINY, history, strict_json, tiny, zoo_command

import zoo
from zoo.artifact import read_state
from zoo.errors import RequestError, StoppedError, WeightsError
from zoo.files import sha256_file
from zoo.recipes import run as running
from zoo.recipes.run import run

pytestmark = pytest.mark.usefixtures("cache")

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(autouse=True)
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_plots", lambda *_: [])


def best(folder: Path) -> str:
    return sha256_file(folder / "checkpoints" / "best" / "weights.safetensors")


@pytest.mark.parametrize("name", ["schnet-qm9", "gin-esol"])
def test_runs_killed_anywhere_end_with_the_same_weights(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    chosen = random.Random(seed)
    # Between checkpoints and at them, within epochs and at their ends.
    accumulate = "train.accumulate=2"  # packs side by side
    config = tiny("train.epochs=3", "train.checkpoint_steps=3", accumulate, name=name)
    steps = sorted(chosen.sample(range(1, 18), 5))
    moments = [[chosen.uniform(0.1, 0.9) for _ in range(4)] for _ in range(3)]
    with capsys.disabled():
        print(f"\nkilled after steps {steps} and at random moments (seed {seed})", file=sys.stderr)
    plan = {"config": config.model_dump(mode="json"), "steps": steps, "moments": moments}
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "killed_runs.py"), str(tmp_path), json.dumps(plan)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["end"] == 0, done.stderr
    for step in steps:
        assert found[f"step {step}"]["ends"] == [-signal.SIGKILL, 0], done.stderr
        assert found[f"step {step}"]["sha256"] == found["unbroken"], f"killed after step {step}"
    for number in range(len(moments)):
        *killed, end = found[f"hunted {number}"]["ends"]
        # A run that is done sooner than its moment is killed in vain.
        assert set(killed) <= {0, -signal.SIGKILL} and end == 0, done.stderr
        assert found[f"hunted {number}"]["sha256"] == found["unbroken"], f"killed at {moments}"
    whole = history(tmp_path / "unbroken")
    assert history(tmp_path / f"step-{steps[0]}") == whole
    assert not list(tmp_path.glob("*/checkpoints/*.partial-*"))


def test_sigterm_saves_and_exits_143_and_resume_finishes(tmp_path: Path) -> None:
    unbroken = run(config=tiny(), folder=tmp_path / "unbroken")
    folder = tmp_path / "stopped"
    # A hook of Python's own sends the signal when the first checkpoint is there.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, threading, time\n"
        "def wait():\n"
        f"    while not os.path.exists({str(folder / 'checkpoints' / 'last')!r}):\n"
        "        time.sleep(0.001)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "if os.environ.pop('STOP_SOON', ''):\n"
        "    threading.Thread(target=wait, daemon=True).start()\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    process = zoo_command(
        *("run", "schnet-qm9", "--preset", "smoke", *TINY, "--folder", str(folder), "--json"),
        folder=tmp_path,
        PYTHONPATH=path,
        STOP_SOON="1",
    )
    out, err = process.communicate(timeout=300)
    assert process.returncode == 143, err
    assert strict_json(out)["exit_code"] == 143
    assert f"zoo resume {folder}" in err and "Traceback" not in err
    _, state = read_state(folder / "checkpoints" / "last")
    assert 1 <= state["progress"]["step"] < 14 and not state["progress"]["finished"]
    assert not (folder / "result.json").exists()

    process = zoo_command("resume", str(folder), "--json", folder=tmp_path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert best(folder) == best(tmp_path / "unbroken")
    resumed = strict_json(out)
    assert resumed["metrics"] == unbroken["metrics"] and resumed["steps"] == 14
    assert resumed == strict_json((folder / "result.json").read_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_at_any_step_saves_it(tmp_path: Path, number: signal.Signals) -> None:
    def stop(step: int) -> None:
        if step == 3:
            os.kill(os.getpid(), number)

    config = tiny("train.checkpoint_steps=500", "data.limit=64")
    unbroken = tmp_path / "unbroken"
    run(config=config, folder=unbroken)
    folder = tmp_path / "stopped"
    before = signal.getsignal(number)
    with pytest.raises(StoppedError) as error:
        run(config=config, folder=folder, after_step=stop)
    assert signal.getsignal(number) is before
    assert str(error.value).split("\n") == [
        f"stopped by {number.name} after saving",
        f"continue with: zoo resume {folder}",
    ]
    # The signal came when step 3 was done, so step 4 was the last to be taken.
    assert read_state(folder / "checkpoints" / "last")[1]["progress"]["step"] == 4
    zoo.resume(folder)
    assert best(folder) == best(unbroken) and history(folder) == history(unbroken)


def test_a_stop_in_the_last_step_of_an_epoch_loses_no_epoch(tmp_path: Path) -> None:
    config = tiny("data.limit=64", "train.checkpoint_steps=500")
    unbroken = tmp_path / "unbroken"
    per_epoch = run(config=config, folder=unbroken)["steps"] // 2
    folder = tmp_path / "stopped"
    with pytest.raises(StoppedError):
        run(
            config=config,
            folder=folder,
            after_step=lambda step: (
                os.kill(os.getpid(), signal.SIGTERM) if step == per_epoch else None
            ),
        )
    assert len(history(folder)) == 1
    zoo.resume(folder)
    assert best(folder) == best(unbroken) and history(folder) == history(unbroken)


@pytest.mark.parametrize(("molecules", "packs"), [(50, 7), (60, 8)])
def test_a_checkpoint_due_at_the_end_of_an_epoch_knows_of_the_epoch(
    tmp_path: Path, molecules: int, packs: int
) -> None:
    def train(folder: Path, *, stop_at: int = 0, every: int = 500) -> dict[str, Any]:
        def after_step(step: int) -> None:
            if step == stop_at:
                raise KeyboardInterrupt

        settings = (f"train.checkpoint_steps={every}", f"data.limit={molecules}")
        resume = folder.exists()
        return run(config=tiny(*settings), folder=folder, resume=resume, after_step=after_step)

    # Two packs a step: where their number is odd, the last step of an epoch has one.
    per_epoch = train(tmp_path / "unbroken")["steps"] // 2
    assert per_epoch == -(-packs // 2)
    folder = tmp_path / "stopped"
    for at in (per_epoch, 2 * per_epoch):
        with pytest.raises(KeyboardInterrupt):
            train(folder, stop_at=at, every=per_epoch)
    zoo.resume(folder)
    assert history(folder) == history(tmp_path / "unbroken")
    assert best(folder) == best(tmp_path / "unbroken")


def test_a_stop_in_the_very_last_step_finishes(tmp_path: Path) -> None:
    def stop(step: int) -> None:
        if step == 14:
            os.kill(os.getpid(), signal.SIGTERM)

    assert run(config=tiny(), folder=tmp_path, after_step=stop)["steps"] == 14


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    def stop(step: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(config=tiny(), folder=tmp_path, after_step=stop)


def test_early_stopping_and_a_plateau_survive_a_resumption(tmp_path: Path) -> None:
    config = tiny(
        *("train.schedule=plateau", "train.plateau_epochs=1", "train.patience=3"),
        *("train.epochs=8", "data.limit=16", "train.lr=1e-9", "train.warmup_steps=0"),
    )
    unbroken, folder = tmp_path / "unbroken", tmp_path / "broken"
    run(config=config, folder=unbroken)

    def stop(step: int) -> None:
        if step in (2, 3):
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(config=config, folder=folder, resume=folder.exists(), after_step=stop)
    zoo.resume(folder)
    assert history(folder) == history(unbroken) and best(folder) == best(unbroken)


def test_a_run_that_has_no_checkpoint_yet_begins_anew(tmp_path: Path) -> None:
    def stop(step: int) -> None:
        raise KeyboardInterrupt

    config = tiny("train.checkpoint_steps=500", "data.limit=16")
    with pytest.raises(KeyboardInterrupt):
        run(config=config, folder=tmp_path, after_step=stop)
    # Killed between its first two checkpoints, best and last; and while writing one.
    (tmp_path / "checkpoints" / "best").mkdir(parents=True)
    (tmp_path / "checkpoints" / "last.partial-1").mkdir()
    assert zoo.resume(tmp_path)["epochs"] == 2
    assert (tmp_path / "checkpoints" / "best" / "weights.safetensors").exists()


def test_a_damaged_last_checkpoint_is_refused_by_name(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    (folder / "result.json").unlink()
    state = folder / "checkpoints" / "last" / "state.safetensors"
    data = bytearray(state.read_bytes())
    data[-5] ^= 1
    state.write_bytes(data)
    with pytest.raises(WeightsError, match=r"last/state\.safetensors is damaged"):
        zoo.resume(folder)
    state.unlink()
    with pytest.raises(WeightsError, match="is missing"):
        zoo.resume(folder)


def test_a_run_killed_before_its_result_gets_one(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    stored = strict_json((folder / "result.json").read_text())
    (folder / "result.json").unlink()
    result = zoo.resume(folder)
    assert result["metrics"] == stored["metrics"] and result["steps"] == stored["steps"]
    assert strict_json((folder / "result.json").read_text()) == result


def test_another_number_of_threads_warns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(step: int) -> None:
        raise KeyboardInterrupt

    threads = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        run(config=tiny("data.limit=64"), folder=tmp_path, after_step=stop)
    try:
        torch.set_num_threads(threads + 1)
        zoo.resume(tmp_path)
    finally:
        torch.set_num_threads(threads)
    said = capsys.readouterr().err
    assert f"had {threads} threads and now has {threads + 1}" in said


def test_a_checkpoint_of_another_recipe_is_refused(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    (folder / "result.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    config["model"]["arguments"]["features"] = 16
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(RequestError, match=r"were changed since \(another arguments\)"):
        zoo.resume(folder)
    config["model"]["arguments"]["features"] = 32
    config["data"]["limit"] = 50
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(RequestError, match="were changed since"):
        zoo.resume(folder)
