"""The ASE calculator, around a harmonic toy whose forces are known."""

from __future__ import annotations

import pickle
import subprocess
import sys

import ase.build
import ase.io
import numpy as np
import pytest
from ase.calculators.calculator import PropertyNotImplementedError
from ase.calculators.fd import calculate_numerical_forces
from ase.optimize import BFGS

from zoo.chem.calculator import ZooCalculator, calculator
from zoo.errors import DataError

ELEMENTS = ["H", "C", "O"]
ETHANOL = ase.build.molecule("CH3CH2OH")
LENGTHS = ETHANOL.get_all_distances()


class Springs:
    """Springs between all atoms of ethanol: E = sum k/2 (r - r0)^2, k = 1 eV/Å²; counts calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, numbers: np.ndarray, positions: np.ndarray) -> tuple[float, np.ndarray]:
        self.calls += 1
        assert numbers.dtype == np.int32
        assert positions.dtype == np.float64
        apart = positions[:, None] - positions[None, :]
        distances = np.linalg.norm(apart, axis=-1)
        stretch = distances - LENGTHS[: len(numbers), : len(numbers)]
        np.fill_diagonal(distances, 1.0)
        forces = -(stretch / distances)[..., None] * apart
        return 0.25 * float((stretch**2).sum()), forces.sum(axis=1)


def distorted() -> ase.Atoms:
    atoms = ETHANOL.copy()
    atoms.positions += np.random.default_rng(0).normal(scale=0.1, size=atoms.positions.shape)
    return atoms


def with_springs(atoms: ase.Atoms) -> Springs:
    springs = Springs()
    atoms.calc = calculator(energy_and_forces=springs, elements=ELEMENTS, label="schnet-test.U0")
    return springs


def test_forces_agree_with_finite_differences() -> None:
    atoms = distorted()
    with_springs(atoms)
    np.testing.assert_allclose(
        atoms.get_forces(), calculate_numerical_forces(atoms, eps=1e-4), rtol=1e-6, atol=1e-8
    )


def test_a_distorted_ethanol_relaxes() -> None:
    atoms = distorted()
    with_springs(atoms)
    assert atoms.get_potential_energy() > 0.01
    assert BFGS(atoms, logfile=None).run(fmax=1e-4, steps=200)
    np.testing.assert_allclose(atoms.get_all_distances(), LENGTHS, atol=1e-3)


def test_it_computes_anew_only_on_a_change() -> None:
    atoms = distorted()
    springs = with_springs(atoms)
    energy = atoms.get_potential_energy()
    atoms.get_forces()
    assert atoms.get_potential_energy(force_consistent=True) == energy
    atoms.set_cell([9, 9, 9])
    atoms.set_initial_charges([0.1] * 9)
    assert atoms.get_potential_energy() == energy
    assert springs.calls == 1
    atoms.positions[0, 0] += 0.01
    assert atoms.get_potential_energy() != energy
    assert springs.calls == 2


def test_what_the_model_does_to_its_arrays_stays_with_it() -> None:
    atoms = ETHANOL.copy()
    shared = np.zeros((9, 3))

    def rude(numbers: np.ndarray, positions: np.ndarray) -> tuple[float, np.ndarray]:
        positions[:] = 0
        numbers[:] = 0
        return 1.0, shared

    atoms.calc = calculator(energy_and_forces=rude, elements=ELEMENTS, label="rude")
    forces = atoms.get_forces()
    shared += 1
    np.testing.assert_array_equal(forces, 0)
    np.testing.assert_array_equal(atoms.get_forces(), 0)
    np.testing.assert_array_equal(atoms.positions, ETHANOL.positions)


@pytest.mark.parametrize(
    ("atoms", "says"),
    [
        (ase.build.molecule("SiH4"), r"schnet-test.U0 never saw Si \(in .*\)\nit knows H, C, O"),
        (ase.Atoms("H2", [[0, 0, 0], [0, 0, 0.7]], pbc=True, cell=[9, 9, 9]), "periodic"),
        (ase.Atoms("H2", [[0, 0, 0], [0, 0, 0.7]], pbc=[0, 0, 1], cell=[9, 9, 9]), "periodic"),
        (ase.Atoms(), "without atoms"),
        (ase.Atoms("H2"), "at the same place"),
        (ase.Atoms("H2", [[0, 0, 0], [0, 0, np.nan]]), "not finite"),
        (ase.Atoms("XH", [[0, 0, 0], [0, 0, 1]]), "not an element"),
    ],
)
def test_atoms_that_it_refuses_again_and_again(atoms: ase.Atoms, says: str) -> None:
    springs = with_springs(atoms)
    for _ in range(2):
        with pytest.raises(DataError, match=says):
            atoms.get_potential_energy()
    assert springs.calls == 0


@pytest.mark.parametrize("energy", [np.nan, np.inf, 0.0])
def test_a_result_that_is_not_finite_is_an_error(energy: float) -> None:
    atoms = ETHANOL.copy()
    forces = np.full((9, 3), np.nan if energy == 0.0 else 0.0)
    atoms.calc = calculator(
        energy_and_forces=lambda z, r: (energy, forces), elements=ELEMENTS, label="broken"
    )
    with pytest.raises(DataError, match="broken gives an energy or a force that isn't finite"):
        atoms.get_potential_energy()


def test_no_known_elements_means_all() -> None:
    atoms = ase.build.molecule("SiH4")
    atoms.calc = calculator(energy_and_forces=lambda z, r: (1.0, 0 * r), elements=[], label="any")
    assert atoms.get_potential_energy() == 1.0


def test_what_it_does_not_have_is_refused_as_ase_does() -> None:
    atoms = ETHANOL.copy()
    with_springs(atoms)
    with pytest.raises(PropertyNotImplementedError):
        atoms.get_dipole_moment()


def test_its_name_goes_into_files(tmp_path: object) -> None:
    atoms = distorted()
    with_springs(atoms)
    atoms.get_forces()
    assert atoms.calc.name == "schnet-test.U0"
    ase.io.write(f"{tmp_path}/t.traj", atoms)
    back = ase.io.read(f"{tmp_path}/t.traj")
    assert back.calc.name == "schnet-test.U0"
    np.testing.assert_array_equal(back.get_forces(), atoms.get_forces())


def test_the_class_can_be_named_and_pickled() -> None:
    calc = calculator(energy_and_forces=Springs(), elements=ELEMENTS, label="x")
    assert isinstance(calc, ZooCalculator)
    assert pickle.loads(pickle.dumps(calc)).elements == tuple(ELEMENTS)
    with pytest.raises(ImportError):
        from zoo.chem.calculator import Nothing  # noqa: F401


@pytest.mark.parametrize(
    "module", ["calculator", "read", "conformers", "report", "checks", "molecule"]
)
def test_importing_is_light(module: str) -> None:
    code = (
        f"import sys, zoo.chem.{module}\n"
        "print([m for m in ('ase', 'rdkit', 'pandas', 'scipy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("[]\n", "")
