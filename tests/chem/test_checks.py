"""Warnings for what is far from the training data, and for energies of another unit."""

from __future__ import annotations

from dataclasses import replace

import ase.build
import numpy as np
import pytest

from zoo.artifact import Scaling, Spec
from zoo.chem.checks import check_energy_units, check_molecule, check_rows, measure, spans
from zoo.chem.molecule import ETKDG, Molecule
from zoo.chem.read import read_molecules

HARTREE = 27.211386245988
# Lone atoms and a mean atomisation energy near QM9's, in eV.
REFS = {"H": -13.61, "C": -1029.86, "N": -1485.30, "O": -2042.61, "F": -2713.49}
MEAN = -4.24


def spec(**changes: object) -> Spec:
    return Spec.model_validate(
        {
            "entry": "schnet-test",
            "task": "energy",
            "architecture": "schnet",
            "arguments": {},
            "batch_shape": {"nodes": 8, "edges": 8, "graphs": 2},
            "properties": [{"name": "U0", "unit": "eV", "reference": "atomisation"}],
            "atom_refs": {"U0": REFS},
            "scaling": {"U0": {"mean": MEAN, "std": 10.0, "per_atom": True}},
            "elements": list(REFS),
            "ranges": {"atoms": [3, 29], "min_distance": [0.95, 1.2], "isolation": [1.0, 1.6]},
            "extra": {"geometry": "DFT (B3LYP/6-31G(2df,p))"},
        }
        | changes
    )


def row(name: str, *, stretch: float = 1.0) -> Molecule:
    atoms = ase.build.molecule(name)
    atoms.positions *= stretch
    (molecule,) = read_molecules(atoms)
    return molecule


def test_a_molecule_like_the_training_data_has_no_warning() -> None:
    assert check_molecule(row("CH3CH2OH"), spec=spec()).warnings == ()


def test_an_element_never_seen_is_refused_by_name() -> None:
    rows = [row("CH3CH2OH"), row("SiH4"), *read_molecules(["CCl", "CC(C"])]
    checked = list(check_rows(rows, spec=spec()))
    assert [molecule.valid for molecule in checked] == [True, False, False, False]
    assert checked[1].reason == "holds Si, which the model never saw; it knows H, C, N, O, F"
    assert checked[1].problem is not None
    assert (checked[1].problem.column, checked[1].problem.value) == ("geometry", "H4Si")
    assert checked[2].problem is not None
    assert (checked[2].problem.column, checked[2].problem.value) == ("smiles", "CCl")
    assert "refuses" in checked[3].reason  # the first reason stays
    assert check_molecule(row("SiH4"), spec=spec(elements=[])).valid


@pytest.mark.parametrize(
    ("molecule", "says"),
    [
        (row("H2"), "2 atoms, where the training molecules have 3 to 29"),
        (row("CH3CH2OH", stretch=0.8), "the shortest distance is 0.78 Å"),
        (row("CH3CH2OH", stretch=1.5), "the shortest distance is 1.46 Å"),
        (row("CH3CH2OH", stretch=1.5), "an atom is 1.65 Å from any other"),
    ],
)
def test_size_and_distances_outside_the_range(molecule: Molecule, says: str) -> None:
    checked = check_molecule(molecule, spec=spec())
    assert checked.valid
    assert any(says in warning for warning in checked.warnings), checked.warnings
    assert check_molecule(molecule, spec=spec(ranges={})).warnings == ()


def test_a_made_up_geometry_is_said_after_the_readers_own_warnings() -> None:
    made = replace(row("CH3CH2OH"), how=ETKDG, warnings=("first",))
    assert check_molecule(made, spec=spec()).warnings == (
        "first",
        "geometry made up (ETKDGv3); the model expects one relaxed with DFT (B3LYP/6-31G(2df,p))",
    )
    assert "like those it was trained on" in check_molecule(made, spec=spec(extra={})).warnings[1]


def test_spans_are_what_checks_compare_with() -> None:
    molecules = [row("CH3CH2OH"), row("H2O"), row("H")]
    ranges = spans((m.numbers, m.positions.astype(np.float32)) for m in molecules)
    assert ranges["atoms"] == [1, 9]
    for molecule in molecules:
        assert check_molecule(molecule, spec=spec(ranges=ranges)).warnings == ()
    assert measure(molecules[2].numbers, molecules[2].positions) == {"atoms": 1.0}


MOLECULES = [ase.build.molecule(name) for name in ("CH3CH2OH", "CH4", "NH3", "C6H6")]
LONE = np.array([sum(REFS[symbol] for symbol in atoms.symbols) for atoms in MOLECULES])
BOND = np.array([MEAN * len(atoms) for atoms in MOLECULES])


@pytest.mark.parametrize(
    ("energies", "says"),
    [
        (LONE + BOND, None),
        (1.02 * (LONE + BOND), None),  # another functional
        ((LONE + BOND) / HARTREE, "look like Hartree, and times 27.2114 they are eV"),
        ((LONE + BOND) / HARTREE * 2, "look like Rydberg"),
        ((LONE + BOND) * 23.06055, "look like kcal/mol"),
        ((LONE + BOND) * 96.48533, "look like kJ/mol"),
        (BOND, "look like atomisation energies in eV, not total"),
        (BOND * 23.06055, "look like atomisation energies in kcal/mol"),
        (BOND / HARTREE, "look like atomisation energies in Hartree"),
        (-(LONE + BOND), "is expected for U0"),
        (np.zeros(4), "energies of 0 eV per atom"),
        (np.full(4, np.nan), None),
        (np.append((LONE + BOND)[:3], np.nan), None),
    ],
)
def test_units_of_energies(energies: np.ndarray, says: str | None) -> None:
    warning = check_energy_units(energies, MOLECULES, spec())
    if says is None:
        assert warning is None
    else:
        assert warning is not None
        assert says in warning
        assert len(warning.splitlines()) == 1


def test_both_numbers_stand_in_the_warning() -> None:
    numbers = [atoms.numbers for atoms in MOLECULES[:1]]
    warning = check_energy_units([-154.9], numbers, spec())
    assert warning is not None
    assert "-17.21 eV per atom" in warning
    assert f"{(LONE[0] + BOND[0]) / 9:.4g} eV per atom" in warning


def test_a_range_serves_where_there_are_no_atom_references() -> None:
    ranges = {"per_atom/U0": [-520.0, -420.0]}
    other = spec(atom_refs={}, scaling={}, ranges=ranges)
    assert check_energy_units(LONE + BOND, MOLECULES, other) is None
    assert "Hartree" in str(check_energy_units((LONE + BOND) / HARTREE, MOLECULES, other))
    assert check_energy_units(LONE, MOLECULES, spec(atom_refs={}, ranges={})) is None


def test_an_unknown_property_or_unit_says_no_more_than_it_knows() -> None:
    assert check_energy_units(LONE, MOLECULES, spec(), name="gap") is None
    odd = spec(properties=[{"name": "U0", "unit": "furlong"}])
    assert str(check_energy_units(LONE / HARTREE, MOLECULES, odd)).endswith("expected for U0")


def test_a_scaling_that_is_not_per_atom_is_not_added() -> None:
    other = spec(scaling={"U0": Scaling(mean=-75.0, std=10.0, per_atom=False).model_dump()})
    assert check_energy_units(LONE + BOND, MOLECULES, other) is None
