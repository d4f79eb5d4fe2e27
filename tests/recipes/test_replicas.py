"""Data-parallel copies: the losses of one process, errors as one text, signals passed on."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny import TINY, history, strict_json, tiny

from zoo.errors import DataError, StoppedError, ZooError
from zoo.recipes.run import run
from zoo.training import replicas

pytestmark = pytest.mark.usefixtures("cache")


def kill_parent(step: int, *, at: int) -> None:
    """SIGTERM to the process that started the replicas, as a scheduler sends it."""
    if step == at and replicas.rank() == 1:
        os.kill(os.getppid(), signal.SIGTERM)


def fail(kind: str) -> None:
    """What goes wrong in the second of two replicas while the first waits for it."""
    if replicas.rank() == 1:
        if kind == "data":
            raise DataError("row 7 is bad\nmend it")
        if kind == "bug":
            raise IndexError("no\nsuch thing")
        os.kill(os.getpid(), signal.SIGKILL)
    replicas.wait_for_all()


def check_collectives(folder: Path) -> None:
    """In two replicas: what each sees of the other."""
    rank = replicas.rank()
    assert replicas.count() == 2 and torch.get_num_threads() >= 1
    assert replicas.agree(f"from {rank}") == "from 0"
    assert replicas.gather(torch.arange(rank + 1)).tolist() == [0, 0, 1]
    assert replicas.any_true(rank == 1) is True and replicas.any_true(False) is False
    assert float(replicas.total(torch.tensor(float(rank + 1)))) == 3.0
    replicas.wait_for_all()
    (folder / str(rank)).touch()


def test_without_replicas_everything_is_the_identity() -> None:
    assert (replicas.rank(), replicas.count()) == (0, 1)
    assert replicas.agree("x") == "x" and replicas.any_true(True) is True
    values = torch.arange(3)
    assert replicas.gather(values) is values and replicas.total(values) is values
    module = torch.nn.Linear(1, 1)
    assert replicas.wrap(module) is module


def test_two_replicas_see_each_other(tmp_path: Path) -> None:
    replicas.spawn(check_collectives, tmp_path, replicas=2)
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}


def test_two_replicas_give_the_losses_of_one_process_and_resume(tmp_path: Path) -> None:
    one = run(config=tiny("train.accumulate=2"), folder=tmp_path / "one")
    config = tiny("train.accumulate=1", "train.replicas=2")
    # Stopped on the way: a scheduler's SIGTERM reaches the first process alone.
    folder = tmp_path / "two"
    with pytest.raises(StoppedError, match=r"after saving\ncontinue with: zoo resume"):
        run(config=config, folder=folder, after_step=functools.partial(kill_parent, at=5))
    assert not (folder / "result.json").exists()
    two = run(config=config, folder=folder, resume=True)
    assert (two["replicas"], two["steps"]) == (2, one["steps"])
    for ours, other in zip(history(folder), history(tmp_path / "one"), strict=True):
        assert ours == pytest.approx(other, rel=1e-6)
    for split in ("valid", "test"):
        assert two["metrics"][split] == pytest.approx(one["metrics"][split], rel=1e-5)
    assert two["packing_efficiency"] == one["packing_efficiency"]
    assert (folder / "plots" / "parity.png").exists()


def test_an_error_in_a_replica_is_raised_as_it_is() -> None:
    with pytest.raises(DataError) as found:
        replicas.spawn(fail, "data", replicas=2)
    assert str(found.value) == "row 7 is bad\nmend it"


def test_what_a_replica_dies_of_is_said() -> None:
    with pytest.raises(ZooError) as found:
        replicas.spawn(fail, "bug", replicas=2)
    assert 2 <= len(str(found.value).split("\n")) <= 3
    assert "replica" in str(found.value) and "ZOO_DEBUG=1" in str(found.value)
    assert "such thing" in str(found.value.__cause__) or "peer" in str(found.value.__cause__)
    with pytest.raises(ZooError, match=r"replica \d (ended with SIGKILL|failed: .*[Cc]onnection)"):
        replicas.spawn(fail, "killed", replicas=2)


@pytest.mark.slow
def test_torchrun_trains_in_one_folder_with_one_voice(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"),
            *("-m", "zoo.cli", "run", "schnet-qm9", "--preset", "smoke", *TINY, "--json"),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    result = strict_json(done.stdout)
    assert result["replicas"] == 2
    [folder] = (tmp_path / "runs").iterdir()
    assert (tmp_path / result["folder"]).samefile(folder)
