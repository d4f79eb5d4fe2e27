"""What `zoo.load` returns: files that were tampered with, the calculator, embeddings, new heads."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ase.build import molecule
from ase.optimize import BFGS
from tiny import untrained

import zoo
from zoo.artifact import read_weights, write_weights
from zoo.errors import DataError, RequestError, WeightsError
from zoo.recipes.energy_model import EnergyModel


@pytest.fixture(scope="module")
def model(trained: Path) -> EnergyModel:
    return zoo.load(trained)


@pytest.fixture
def weights(trained: Path, tmp_path: Path) -> Path:
    return Path(
        shutil.copy(
            trained / "checkpoints" / "best" / "weights.safetensors", tmp_path / "w.safetensors"
        )
    )


def test_a_model_loads_by_file_checkpoint_and_run(trained: Path, weights: Path) -> None:
    water = molecule("H2O")
    checkpoint = trained / "checkpoints" / "best"
    places = [trained, checkpoint, checkpoint / "weights.safetensors", weights]
    models = [zoo.load(place) for place in [*places, *map(str, places)]]
    assert len({m.predict(water)["U0 [eV]"].item() for m in models}) == 1
    assert len({m.sha256 for m in models}) == 1 and len(models[0].sha256) == 64
    said = repr(models[0])
    assert "schnet-qm9.U0" in said and "U0 [eV]" in said and "H C N O F" in said
    assert not models[0].module.training


def test_a_run_without_a_best_checkpoint_gives_its_last(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    shutil.rmtree(run / "checkpoints" / "best")
    assert zoo.load(run).spec == zoo.load(trained).spec


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("schnet-qm8", "nearest: 'schnet-qm9'"),
        ("SchNet-QM9", "nearest: 'schnet-qm9'"),
        ("schnet-qm9.U1", "unknown tag of schnet-qm9 'U1'; nearest: 'U"),
        ("schnet-qm9.", "unknown tag"),
        ("", "unknown entry ''"),
        ("./absent", "no weight file, checkpoint or run at"),
        ("absent.safetensors", "no weight file, checkpoint or run at"),
        ("~/absent.safetensors", "no weight file, checkpoint or run at /"),
    ],
)
def test_a_name_that_is_nothing_says_so(name: str, says: str) -> None:
    with pytest.raises(RequestError) as error:
        zoo.load(name)
    assert says in str(error.value) and len(str(error.value).split("\n")) <= 3


def test_a_folder_called_as_an_entry_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    name = untrained()
    (tmp_path / name).mkdir()
    with pytest.raises(RequestError, match="has no trained weights yet"):
        zoo.load(name)
    with pytest.raises(RequestError, match="is no checkpoint and no run"):
        zoo.load(f"./{name}")
    shutil.copytree(trained, "mine")
    assert zoo.load("mine").spec.entry == "schnet-qm9.U0"


def test_a_truncated_file_is_refused(weights: Path) -> None:
    data = weights.read_bytes()
    for size in (0, 4, 100, len(data) // 2, len(data) - 1):
        weights.write_bytes(data[:size])
        with pytest.raises(WeightsError) as error:
            zoo.load(weights)
        assert str(weights) in str(error.value) and len(str(error.value).split("\n")) <= 3
    weights.write_bytes(data + b"x")
    with pytest.raises(WeightsError):
        zoo.load(weights)


def test_a_pickle_is_refused_unread(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "boom",))

    torch.save({"weights": Bomb()}, tmp_path / "w.safetensors")
    with pytest.raises(WeightsError, match="is a pickle"):
        zoo.load(tmp_path / "w.safetensors")
    assert not (tmp_path / "boom").exists()


def test_a_checkpoint_with_one_bit_changed_is_refused(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    path = run / "checkpoints" / "best" / "weights.safetensors"
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(WeightsError, match=r"weights\.safetensors is damaged: its sha256"):
        zoo.load(run)


def _without_scaling(spec: dict[str, Any]) -> None:
    spec["scaling"] = {}


def _odd_element(spec: dict[str, Any]) -> None:
    spec["elements"] = ["Xq"]


def _odd_arguments(spec: dict[str, Any]) -> None:
    spec["arguments"]["cutoff"] = -1


def _more_arguments(spec: dict[str, Any]) -> None:
    spec["arguments"]["shell"] = "rm"


def _other_width(spec: dict[str, Any]) -> None:
    spec["arguments"]["features"] = 64


def _no_property(spec: dict[str, Any]) -> None:
    spec["properties"] = []


def _other_task(spec: dict[str, Any]) -> None:
    spec["task"] = "forecast"


def _other_architecture(spec: dict[str, Any]) -> None:
    spec["architecture"] = "gin"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_without_scaling, "no scaling of U0"),
        (_odd_element, "'Xq' is no element"),
        (_odd_arguments, "arguments.cutoff"),
        (_more_arguments, "arguments.shell"),
        (_other_width, "its tensors are not those of the schnet"),
        (_no_property, "0 properties"),
        (_other_task, "for the task 'forecast'"),
        (_other_architecture, "gin"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(
    weights: Path, change: Callable[[dict[str, Any]], None], says: str
) -> None:
    spec, tensors = read_weights(weights)
    plain = json.loads(spec.model_dump_json())
    change(plain)
    write_weights(path=weights, tensors=tensors, spec=type(spec).model_validate(plain))
    with pytest.raises(WeightsError) as error:
        zoo.load(weights)
    assert says in str(error.value) and len(str(error.value).split("\n")) <= 3
    with pytest.raises((WeightsError, RequestError)):
        zoo.evaluate(weights)


def test_forces_are_the_negative_gradient(model: EnergyModel) -> None:
    double = model.double()
    ethanol = molecule("CH3CH2OH")
    ethanol.rattle(0.1, seed=3)
    ethanol.calc = double.calculator()
    forces = ethanol.get_forces()
    energy = ethanol.get_potential_energy()
    assert energy == pytest.approx(double.predict(ethanol)["U0 [eV]"].item(), abs=1e-6)
    assert energy == pytest.approx(model.predict(ethanol)["U0 [eV]"].item(), abs=1e-2)
    step = 1e-4
    numeric = np.zeros_like(forces)
    for atom in range(len(ethanol)):
        for axis in range(3):
            energies = []
            for sign in (1, -1):
                moved = ethanol.copy()
                moved.positions[atom, axis] += sign * step
                energies.append(double.energy_and_forces(moved.numbers, moved.positions)[0])
            numeric[atom, axis] = (energies[1] - energies[0]) / (2 * step)
    assert np.abs(forces - numeric).max() <= 1e-4 * np.abs(forces).max()
    # No net force, no torque: the energy knows distances alone.
    assert np.abs(forces.sum(0)).max() < 1e-8 * np.abs(forces).max() * len(ethanol)


def test_ase_relaxes_a_distorted_ethanol(model: EnergyModel) -> None:
    ethanol = molecule("CH3CH2OH")
    ethanol.rattle(0.05, seed=1)
    ethanol.calc = model.double().calculator()
    before = ethanol.get_potential_energy()
    start = np.abs(ethanol.get_forces()).max()
    relaxed = BFGS(ethanol, logfile=None)
    relaxed.run(fmax=0.05 * start, steps=100)
    assert ethanol.get_potential_energy() < before
    assert np.abs(ethanol.get_forces()).max() < 0.5 * start
    # It stayed in one piece.
    distances = ethanol.get_all_distances() + 10 * np.eye(len(ethanol))
    assert distances.min(0).max() < 3.0


def test_the_calculator_refuses_what_the_model_never_saw(model: EnergyModel) -> None:
    for atoms, says in (
        (molecule("SiH4"), "never saw Si"),
        (molecule("H2O", cell=[9, 9, 9], pbc=True), "periodic"),
    ):
        atoms.calc = model.calculator()
        with pytest.raises(DataError, match=says):
            atoms.get_potential_energy()
    lone = molecule("CH4")[[0]]
    lone.calc = model.calculator()
    assert np.abs(lone.get_forces()).max() == 0


def test_a_move_or_a_turn_changes_nothing(model: EnergyModel) -> None:
    double = model.double()
    ethanol = molecule("CH3CH2OH")
    moved = ethanol.copy()
    moved.rotate(77, (1, 2, 3))
    moved.translate((50, -3, 8))
    swapped = ethanol[np.random.default_rng(0).permutation(len(ethanol))]
    values = [double.predict(a)["U0 [eV]"].item() for a in (ethanol, moved, swapped)]
    assert values[1:] == pytest.approx([values[0]] * 2, abs=1e-8)


def test_embeddings_are_a_row_a_molecule(model: EnergyModel) -> None:
    atoms = [molecule(name) for name in ("CH4", "H2O", "CH3CH2OH")]
    together = model.embed(atoms)
    assert together.shape == (3, 32) and np.isfinite(together).all()
    for row, a in zip(together, atoms, strict=True):
        assert row == pytest.approx(model.embed(a)[0], abs=1e-5)
    with pytest.raises(DataError, match="never saw"):
        model.embed([molecule("CH4"), molecule("SiH4")])


def test_a_new_head_keeps_the_body(model: EnergyModel) -> None:
    new = model.reset_head(outputs=3, seed=1)
    old, fresh = model.module.state_dict(), new.module.state_dict()
    heads = {"hidden.weight", "hidden.bias", "output.weight", "output.bias"}
    assert all(torch.equal(old[k], fresh[k]) for k in old if k not in heads)
    assert not torch.equal(old["hidden.weight"], fresh["hidden.weight"])
    assert fresh["output.weight"].shape == (3, 16)
    assert torch.equal(
        fresh["output.weight"], model.reset_head(outputs=3, seed=1).module.output.weight
    )
    atoms = [molecule("CH4"), molecule("H2O")]
    assert new.embed(atoms) == pytest.approx(model.embed(atoms))
    with pytest.raises(RequestError, match="a new one with 3 outputs"):
        new.predict(atoms)
    with pytest.raises(RequestError, match="a new one with 3 outputs"):
        new.energy_and_forces(atoms[0].numbers, atoms[0].positions)


def test_predicting_changes_no_state_of_the_user(model: EnergyModel) -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    model.predict(molecule("H2O"))
    model.embed(molecule("H2O"))
    model.reset_head()
    model.double()
    assert torch.equal(torch.rand(2), expected)
    assert torch.is_grad_enabled() and all(p.grad is None for p in model.module.parameters())


def test_a_file_that_is_called_like_a_shipped_one_and_is_another_warns(
    weights: Path, tmp_path: Path
) -> None:
    path = weights.rename(tmp_path / "schnet-qm9.U0.safetensors")
    with pytest.warns(UserWarning, match="is another file"):
        zoo.load(path)
    shipped = zoo.fetch("schnet-qm9")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        zoo.load(shipped)
