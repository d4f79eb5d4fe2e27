"""Conformers with real RDKit: what is made, what is refused, and a time limit that holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from rdkit import Chem

from zoo.chem import conformers
from zoo.chem.conformers import embed, geometry_warning
from zoo.chem.molecule import ETKDG, RANDOM, nearest
from zoo.chem.worker import make_conformer
from zoo.errors import DataError, RequestError, UnavailableError

# RDKit's own timeout of 2 s returned after 111 s for this one.
ENDLESS = "N[C@@H](C)C(=O)" * 200 + "O"
# Neither ETKDGv3 nor random coordinates find one (rdkit issue 1292).
IMPOSSIBLE = "C1[C@H]2[C@@H]3O[C@@H]3[C@@H]1[C@@]13O[C@@]21[C@@H]1C[C@H]3[C@@H]2O[C@@H]21"


def test_ethanol_is_a_plausible_geometry_with_its_hydrogens() -> None:
    made = embed("CCO")
    assert made.numbers.dtype == np.int32
    assert sorted(made.numbers) == [1] * 6 + [6, 6, 8]
    assert made.positions.dtype == np.float64
    assert made.positions.shape == (9, 3)
    distances, _ = nearest(made.positions)
    assert 0.9 < distances.min() < 1.0  # O-H
    assert distances.max() < 1.2  # each has a hydrogen beside it
    assert made.how == ETKDG
    assert made.warnings == ()


def test_extended_smiles_are_read() -> None:
    assert len(embed("C[C@H](O)F |o1:1|").numbers) == 9


def test_same_seed_same_geometry_and_another_seed_another() -> None:
    first, again, other = embed("CCCCO", seed=3), embed("CCCCO", seed=3), embed("CCCCO", seed=4)
    np.testing.assert_array_equal(first.positions, again.positions)
    assert not np.allclose(first.positions, other.positions)


def test_a_mol_keeps_its_order_of_atoms() -> None:
    mol = Chem.MolFromSmiles("OCC")
    assert list(embed(mol).numbers[:3]) == [8, 6, 6]


def test_random_coordinates_come_second() -> None:
    made = embed("[Xe](F)(F)(F)F")
    assert made.how == RANDOM
    assert any("not optimised" in warning for warning in made.warnings)


def test_uff_where_mmff_has_no_parameters() -> None:
    assert any("UFF" in warning for warning in embed("B1OCCO1").warnings)


@pytest.mark.parametrize(
    ("smiles", "says"),
    [
        ("[NH4+]", "net charge +1"),
        ("[CH3]", "1 unpaired electron,"),
        ("C.O", "2 separate fragments"),
    ],
)
def test_warns_of_what_a_geometry_does_not_show(smiles: str, says: str) -> None:
    assert any(says in warning for warning in embed(smiles).warnings)


@pytest.mark.parametrize(
    ("smiles", "says"),
    [
        ("CC(C", r"RDKit refuses this SMILES: extra open parentheses around position 3"),
        ("C1CC", "unclosed ring"),
        ("xyz", "syntax error around position 1"),
        ("c1cccc1", "kekulize"),
        ("C(C)(C)(C)(C)C", "Explicit valence"),
        ("", "an empty SMILES"),
        (" ", "an empty SMILES"),
        ("*C", "dummy atom"),
        ("C" * 2000, "6,002 atoms are too many"),
        ("CC O", "a space"),
        ("C\nC", "line break"),
        ("C\0C", "control character"),
    ],
)
def test_refuses_with_the_reason(smiles: str, says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        embed(smiles)
    assert len(str(caught.value).splitlines()) == 1


def test_a_molecule_that_takes_for_ever_is_stopped_and_the_next_one_works() -> None:
    embed("C")  # the start of the process is not on the clock
    start = time.monotonic()
    with pytest.raises(DataError, match="no conformer within 1 s"):
        embed(ENDLESS, seconds=1.0)
    assert time.monotonic() - start < 10  # a laden machine; without the limit it takes minutes
    assert embed("CCO").how == ETKDG


def test_both_ways_failing_is_a_clear_failure() -> None:
    answer = make_conformer({"smiles": IMPOSSIBLE, "seed": 0, "seconds": 60.0})
    assert "neither with ETKDGv3 nor from random coordinates" in answer["reason"]


def test_a_crash_of_the_process_costs_one_molecule() -> None:
    embed("C")
    worker = conformers._worker
    assert worker is not None
    threading.Timer(0.3, worker.process.kill).start()
    with pytest.raises(DataError, match="crashed on this molecule"):
        embed(ENDLESS, seconds=60.0)
    assert embed("CCO").how == ETKDG


def test_one_that_died_between_two_molecules_is_replaced() -> None:
    embed("C")
    worker = conformers._worker
    assert worker is not None
    worker.process.kill()
    worker.process.wait()
    assert embed("CCO").how == ETKDG


def test_threads_at_once_get_their_own_answers() -> None:
    names = ["C", "CC", "CCC", "CCCC"] * 5
    found: dict[int, int] = {}

    def work(place: int) -> None:
        found[place] = len(embed(names[place]).numbers)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {place: 3 * len(name) + 2 for place, name in enumerate(names)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_starts_its_own_process() -> None:
    embed("C")
    child = os.fork()
    if child == 0:
        os._exit(0 if len(embed("CC").numbers) == 8 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(embed("CCC").numbers) == 11


def test_an_unguarded_script_works_and_prints_nothing_of_rdkit(tmp_path: object) -> None:
    # multiprocessing's spawn would run such a script a second time.
    script = f"{tmp_path}/script.py"
    with open(script, "w") as file:
        file.write(
            "from zoo.chem.conformers import embed\n"
            "from zoo.errors import DataError\n"
            "try:\n    embed('CC(C')\nexcept DataError:\n    print(len(embed('CCO').numbers))\n"
        )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "9\n", "")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
def test_the_process_ends_with_its_parent() -> None:
    code = (
        "from zoo.chem import conformers\nconformers.embed('C')\n"
        "print(conformers._worker.process.pid, flush=True)\nimport os, signal\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert _gone(int(done.stdout))


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_limit_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(RequestError, match="time limit"):
        embed("C", seconds=seconds)


@pytest.mark.parametrize("seed", [-1, 2**31])
def test_a_seed_that_rdkit_would_not_take_is_refused(seed: int) -> None:
    with pytest.raises(RequestError, match="seed"):
        embed("C", seed=seed)


def test_no_python_to_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformers, "_worker", None)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(UnavailableError, match="/no/such/python"):
        embed("C")


def test_no_rdkit_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    broken = f"{tmp_path}/rdkit"
    os.mkdir(broken)
    with open(f"{broken}/__init__.py", "w") as file:
        file.write("raise ImportError('no rdkit for this machine')\n")
    monkeypatch.setattr(conformers, "_worker", None)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(UnavailableError, match="no rdkit for this machine"):
        embed("C")


def test_the_warning_names_how_and_the_level() -> None:
    text = geometry_warning(how=ETKDG, level="DFT (B3LYP/6-31G(2df,p))")
    assert "ETKDGv3" in text
    assert "DFT (B3LYP/6-31G(2df,p))" in text


def _gone(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        with open(f"/proc/{pid}/stat") as stat:  # a zombie that nobody reaps is gone too
            if stat.read().rpartition(")")[2].split()[0] == "Z":
                return True
        time.sleep(0.1)
    return False
