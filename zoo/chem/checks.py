"""Whether a molecule is of the kind that a model was trained on, and energies of the right unit.

Of an artifact's spec these read `elements`, `ranges`, `atom_refs`, `scaling`, `properties` and
`extra["geometry"]`, the level of theory of the training geometries. The keys of `ranges`, each with
[low, high] over the training molecules, are what `measure` gives, and `per_atom/<property>`, the
energy per atom in the property's unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoo.artifact import Spec
from zoo.chem.conformers import geometry_warning
from zoo.chem.molecule import GIVEN, Molecule, formula, nearest, refused, symbols

# Of a range's ends; float32 and float64 copies of one training molecule must not warn.
_SLACK = 1e-3

# In eV, by CODATA 2018.
_HARTREE = 27.211386245988
_UNITS = {
    "eV": 1.0,
    "Hartree": _HARTREE,
    "Rydberg": _HARTREE / 2,
    "kcal/mol": _HARTREE / 627.5094740631,
    "kJ/mol": _HARTREE / 2625.4996394799,
    "meV": 1e-3,
    "mHartree": _HARTREE / 1000,
}

# Methods differ by a percent or two in total energies per atom, units by a factor of two or more.
_SAME_TOTAL = 0.1
_SAME_ATOMISATION = 0.4


def measure(numbers: NDArray[Any], positions: NDArray[Any]) -> dict[str, float]:
    """What is compared with the training data. atoms: how many; min_distance: the shortest one (Å);
    isolation: how far the loneliest atom is from its nearest neighbour (Å).
    """
    measured = {"atoms": float(len(numbers))}
    if len(numbers) > 1:
        distances, _ = nearest(np.asarray(positions, dtype=np.float64))
        measured["min_distance"] = float(distances.min())
        measured["isolation"] = float(distances.max())
    return measured


def spans(molecules: Iterable[tuple[NDArray[Any], NDArray[Any]]]) -> dict[str, list[float]]:
    """The `ranges` of training molecules, each (numbers [n], positions [n, 3] in Å)."""
    found: dict[str, list[float]] = {}
    for numbers, positions in molecules:
        for key, value in measure(numbers, positions).items():
            low, high = found.get(key, (value, value))
            found[key] = [min(low, value), max(high, value)]
    return found


def check_rows(molecules: Iterable[Molecule], *, spec: Spec) -> Iterator[Molecule]:
    """`check_molecule` for each row."""
    return (check_molecule(molecule, spec=spec) for molecule in molecules)


def check_molecule(molecule: Molecule, *, spec: Spec) -> Molecule:
    """The row, refused if it holds an element that the model never saw, else with a warning for
    each way in which it is far from the training data.
    """
    if not molecule.valid:
        return molecule
    strange = unknown_elements(molecule.numbers, known=spec.elements)
    if strange:
        return refused(
            molecule,
            column=molecule.column,
            value=molecule.value or formula(molecule.numbers),
            reason=element_reason(strange, known=spec.elements),
        )
    warnings = list(molecule.warnings)
    if molecule.how != GIVEN:
        level = spec.extra.get("geometry")
        warnings.append(geometry_warning(how=molecule.how, level=level))
    measured = measure(molecule.numbers, molecule.positions)
    warnings += _outside(measured, ranges=spec.ranges)
    return replace(molecule, warnings=tuple(warnings))


def unknown_elements(numbers: NDArray[Any], *, known: Sequence[str]) -> list[str]:
    """Elements that aren't among the known ones; none if those aren't given."""
    if not known:
        return []
    return [symbol for symbol in symbols(np.unique(numbers)) if symbol not in known]


def element_reason(strange: Sequence[str], *, known: Sequence[str]) -> str:
    """Why a molecule with strange elements is refused."""
    return f"holds {', '.join(strange)}, which the model never saw; it knows {', '.join(known)}"


def check_energy_units(
    energies: ArrayLike,
    atoms: Sequence[Any],
    spec: Spec,
    *,
    name: str | None = None,
) -> str | None:
    """A warning with both numbers if energies are far from what the spec expects, else None.

    energies: [m], total energies in the unit of the property `name` (by default the first);
    atoms: for each its ase.Atoms or atomic numbers. The median per atom is compared. None also
    where the spec holds no reference to compare with.
    """
    prop = next((p for p in spec.properties if name in (None, p.name)), None)
    values = np.asarray(energies, dtype=np.float64).ravel()
    known = np.isfinite(values)
    if prop is None or not known.any():
        return None
    numbers = [np.asarray(getattr(one, "numbers", one)) for one in atoms]
    counts = np.array([max(len(one), 1) for one in numbers])
    given = float(np.median(values[known] / counts[known]))
    references = _references(numbers, counts, spec=spec, name=prop.name)
    if references is None or _near(given, references.total, within=_SAME_TOTAL):
        return None
    text = (
        f"energies of {given:.4g} {prop.unit} per atom, where about "
        f"{references.total:.4g} {prop.unit} per atom is expected for {prop.name}"
    )
    guess = _guess(given, references, unit=prop.unit)
    return f"{text}: {guess}" if guess else text


class _References(NamedTuple):
    """Expected energies per atom: total, and atomisation energy where it is known."""

    total: float
    atomisation: float | None


def _references(
    numbers: Sequence[NDArray[Any]], counts: NDArray[Any], *, spec: Spec, name: str
) -> _References | None:
    refs = spec.atom_refs.get(name)
    if refs:
        totals = [
            math.fsum(refs.get(symbol, math.nan) for symbol in symbols(one)) for one in numbers
        ]
        lone = np.array(totals) / counts
        lone = lone[np.isfinite(lone)]
        if lone.size:
            scaling = spec.scaling.get(name)
            bond = scaling.mean if scaling is not None and scaling.per_atom else None
            return _References(float(np.median(lone)) + (bond or 0.0), bond)
    span = spec.ranges.get(f"per_atom/{name}")
    return _References((span[0] + span[1]) / 2, None) if span else None


def _guess(given: float, references: _References, *, unit: str) -> str:
    """What the energies look like: another unit, or atomisation energies."""
    if unit not in _UNITS:
        return ""
    for other, size in _UNITS.items():
        if other != unit and _near(
            given * size / _UNITS[unit], references.total, within=_SAME_TOTAL
        ):
            return f"they look like {other}, and times {size / _UNITS[unit]:.6g} they are {unit}"
    if not references.atomisation:
        return ""
    for other, size in _UNITS.items():
        if _near(given * size / _UNITS[unit], references.atomisation, within=_SAME_ATOMISATION):
            return f"they look like atomisation energies in {other}, not total energies in {unit}"
    return ""


def _near(value: float, expected: float, *, within: float) -> bool:
    return abs(value - expected) <= within * abs(expected)


def _outside(measured: Mapping[str, float], *, ranges: Mapping[str, Sequence[float]]) -> list[str]:
    texts = {
        "atoms": ("{:.0f} atoms", "have {:.0f} to {:.0f}"),
        "min_distance": ("the shortest distance is {:.2f} Å", "have {:.2f} to {:.2f} Å"),
        "isolation": ("an atom is {:.2f} Å from any other", "have at most {1:.2f} Å"),
    }
    warnings = []
    for key, (what, usual) in texts.items():
        if key not in measured or key not in ranges:
            continue
        low, high = ranges[key]
        value = measured[key]
        too_low = key != "isolation" and value < low - _SLACK * abs(low)
        if too_low or value > high + _SLACK * abs(high):
            warnings.append(
                f"{what.format(value)}, where the training molecules {usual.format(low, high)}"
            )
    return warnings
