"""The made-up set: plausible molecules, the same for a seed, written whole."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
from rdkit import Chem

from zoo.datasets import qm9, qm9_raw, qm9_synthetic, synthetic
from zoo.datasets.qm9_synthetic import inchi, molecule, number_text, smiles, synthetic_folder
from zoo.errors import RequestError, UnavailableError

MOLECULES = [molecule(seed=1, number=k) for k in range(60)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    synthetic._TEMPORARY.clear()
    return tmp_path / "cache"


def distances(one):
    return np.linalg.norm(one.pos[:, None] - one.pos, axis=2)


def test_sizes_and_elements_are_like_qm9s():
    sizes = [len(one.symbols) for one in MOLECULES]
    assert min(sizes) >= 3 and max(sizes) <= 29
    assert np.mean(sizes) == pytest.approx(18, abs=1.5) and 2 < np.std(sizes) < 4
    heavy = [sum(symbol != "H" for symbol in one.symbols) for one in MOLECULES]
    assert min(heavy) >= 1 and max(heavy) <= 9
    assert {symbol for one in MOLECULES for symbol in one.symbols} >= {"H", "C", "N", "O"}


def test_bonds_are_plausible_and_nothing_overlaps():
    for one in MOLECULES:
        apart = distances(one)
        bonds = [(atom, parent) for atom, parent in enumerate(one.parents) if parent >= 0]
        for bond in bonds:
            assert 0.949 < apart[bond] < 1.6
        near = np.argwhere(np.triu(apart < 1.49, 1))
        assert {(int(j), int(i)) for i, j in near} <= set(bonds)
        valence = [1 if parent >= 0 else 0 for parent in one.parents]
        for _, parent in bonds:
            valence[parent] += 1
        limits = {"H": 1, "C": 4, "N": 3, "O": 2, "F": 1}
        assert all(v <= limits[s] for v, s in zip(valence, one.symbols, strict=True))


def test_structures_are_written_out_as_they_are():
    for one in MOLECULES[:20]:
        read = Chem.AddHs(Chem.MolFromSmiles(smiles(one)))
        assert sorted(atom.GetSymbol() for atom in read.GetAtoms()) == sorted(one.symbols)
        assert inchi(one).startswith("InChI=1S/C")


def test_properties_are_smooth_and_know_nothing_of_the_frame():
    rng = np.random.default_rng(0)
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    for one in MOLECULES[:10]:
        kind = np.array([list(qm9_raw.ELEMENTS).index(symbol) for symbol in one.symbols])
        charges, values = qm9_synthetic._properties(kind, one.pos)
        assert abs(charges.sum()) < 1e-12 and np.isfinite(values).all()
        _, moved = qm9_synthetic._properties(kind, one.pos @ turn + 5)
        assert np.allclose(values, moved, rtol=0, atol=2e-4)  # orbitals are rounded
        step = 1e-4 * rng.normal(size=one.pos.shape)
        _, ahead = qm9_synthetic._properties(kind, one.pos + step)
        _, behind = qm9_synthetic._properties(kind, one.pos - step)
        energies = np.array([behind[10], values[10], ahead[10]])
        assert abs(np.diff(energies)).max() < 5e-3  # Hartree
        assert abs(np.diff(energies, 2)).max() < 1e-5


def test_energies_are_related_as_they_should_be():
    for one in MOLECULES:
        # Past the rotational constants: mu alpha homo lumo gap r2 zpve U0 U H G cv.
        numbers = dict(zip(qm9_raw.COLUMNS, map(float, one.properties[3:]), strict=True))
        assert numbers["gap"] == pytest.approx(numbers["lumo"] - numbers["homo"], abs=1e-4)
        assert numbers["U0"] < numbers["U"] < numbers["H"] > numbers["G"]
        atoms = sum(qm9_raw.ATOM_ENERGIES["U0"][symbol] for symbol in one.symbols)
        assert -10 < numbers["U0"] - atoms < 0
        assert min(numbers[name] for name in ("mu", "alpha", "r2", "zpve", "cv")) > 0


def test_a_molecule_is_its_seed_and_number(tmp_path):
    for place, seed, size in (("a", 1, 5), ("b", 1, 9), ("c", 2, 5)):
        qm9.synthesize(path=tmp_path / place, seed=seed, size=size)
    small, large, other = (
        {
            row.split(",")[1]: row
            for path in (tmp_path / place).iterdir()
            for row in path.read_text().splitlines()[1:]
        }
        for place in "abc"
    )
    assert len(small) == 5 and len(large) == 9
    assert small == {number: large[number] for number in small}
    assert all(small[number] != other[number] for number in small)


def test_molecules_lie_in_no_order_in_three_files(tmp_path):
    qm9.synthesize(path=tmp_path / "a", seed=0, size=30)
    files = sorted((tmp_path / "a").iterdir())
    assert [path.name for path in files] == [f"qm9_part{k}.csv" for k in (1, 2, 3)]
    numbers = [
        int(row.split(",")[1]) for path in files for row in path.read_text().splitlines()[1:]
    ]
    assert sorted(numbers) == list(range(1, 31)) != numbers


def test_too_few_and_a_disk_that_refuses(tmp_path):
    with pytest.raises(RequestError, match="at least 3 molecules, not 2"):
        qm9.synthesize(path=tmp_path / "a", seed=0, size=2)
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match=f"cannot write {tmp_path / 'file' / 'a'}"):
        qm9.synthesize(path=tmp_path / "file" / "a", seed=0, size=3)


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [
        (0.0, 4, "0."),
        (13.21, 2, "13.21"),
        (-40.4789300, 6, "-40.47893"),
        (2.1997e-6, 10, "2.1997E-6"),
    ],
)
def test_numbers_are_written_as_the_raw_files_do(value, places, text):
    assert number_text(value, places) == text


def test_the_folder_is_made_once(cache, monkeypatch):
    folder = synthetic_folder(seed=0, size=6)
    assert folder.parent == cache / "synthetic"
    assert len(qm9.load(folder=folder)) == 6
    monkeypatch.setattr(qm9_synthetic, "molecule", None)
    assert synthetic_folder(seed=0, size=6) == folder
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_processes_at_once_make_the_same_folder(cache):
    code = "from zoo.datasets import qm9; print(qm9.synthetic_folder(seed=0, size=60))"
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in both]
    assert outputs[0] == outputs[1]
    (folder,) = (cache / "synthetic").iterdir()
    assert outputs[0].strip() == str(folder) and len(list(folder.iterdir())) == 3


def test_another_process_being_first_is_no_error(cache, monkeypatch):
    folder = synthetic_folder(seed=0, size=6)
    aside = folder.with_name("aside")
    folder.rename(aside)

    def slow(**arguments):
        aside.rename(folder)  # meanwhile
        return qm9_synthetic_molecule(**arguments)

    qm9_synthetic_molecule = qm9_synthetic.molecule
    calls = iter([slow])
    monkeypatch.setattr(
        qm9_synthetic, "molecule", lambda **a: next(calls, qm9_synthetic_molecule)(**a)
    )
    before = {path.name: path.stat().st_mtime_ns for path in aside.iterdir()}
    assert synthetic_folder(seed=0, size=6) == folder
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "file" / "cache"))
    folder = synthetic_folder(seed=0, size=6)
    assert tmp_path not in folder.parents and len(list(folder.iterdir())) == 3
    assert synthetic_folder(seed=0, size=6) == folder
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the store can't be kept either, and says so
        assert len(qm9.load(folder=folder)) == 6


def test_a_temporary_folder_goes_with_its_process(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code = "from zoo.datasets import qm9; print(qm9.synthetic_folder(seed=0, size=3))"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.startswith(str(tmp_path / "qm9-synthetic-"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
