"""A model as an ASE calculator. The class is made when first asked for: importing this is light."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.chem.molecule import geometry_problem
from zoo.errors import DataError

EnergyAndForces = Callable[
    [NDArray[np.int32], NDArray[np.float64]], tuple[float, NDArray[np.floating[Any]]]
]


def calculator(*, energy_and_forces: EnergyAndForces, elements: Sequence[str], label: str) -> Any:
    """An ase Calculator (`ZooCalculator`) around a model.

    energy_and_forces: (numbers int32 [n], positions float64 [n, 3] in Å) -> (energy in eV, forces
    [n, 3] in eV/Å); elements: the symbols that the model knows, all if empty; label: its name.
    """
    return _calculator_class()(energy_and_forces=energy_and_forces, elements=elements, label=label)


def __getattr__(name: str) -> Any:
    if name == "ZooCalculator":
        return _calculator_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def _calculator_class() -> Any:
    from ase.calculators.calculator import Calculator, all_changes

    class ZooCalculator(Calculator):  # type: ignore[misc,unused-ignore]
        """Energy and forces of a molecule by itself, anew only when atoms or positions changed.

        DataError for an element that the model never saw, a periodic structure, no atoms, atoms at
        the same place, and a result that isn't finite.
        """

        implemented_properties = ["energy", "free_energy", "forces"]  # noqa: RUF012
        # None of these reaches the model.
        ignored_changes = {"cell", "initial_charges", "initial_magmoms"}  # noqa: RUF012

        def __init__(
            self, *, energy_and_forces: EnergyAndForces, elements: Sequence[str], label: str
        ) -> None:
            self.model = label
            self.elements = tuple(elements)
            self._energy_and_forces = energy_and_forces
            super().__init__()  # type: ignore[no-untyped-call,unused-ignore]

        def _get_name(self) -> str:  # what ASE writes into files and databases as `calculator`
            return self.model

        def calculate(
            self,
            atoms: Any = None,
            properties: Sequence[str] = ("energy",),
            system_changes: Sequence[str] = tuple(all_changes),
        ) -> None:
            if atoms is not None:
                self.atoms = atoms.copy()
            own: Any = self.atoms
            _check(own, elements=self.elements, label=self.model)
            numbers = own.numbers.astype(np.int32)
            energy, forces = self._energy_and_forces(numbers, own.positions.copy())
            forces = np.array(forces, dtype=np.float64).reshape(len(numbers), 3)
            if not (np.isfinite(energy) and np.isfinite(forces).all()):
                raise DataError(
                    f"{self.model} gives an energy or a force that isn't finite for "
                    f"{own.get_chemical_formula()}: a geometry far from its training data?"
                )
            self.results = {
                "energy": float(energy),
                "free_energy": float(energy),
                "forces": forces,
            }

    # So that pickle and help find it where it is asked for.
    ZooCalculator.__qualname__ = "ZooCalculator"
    return ZooCalculator


def _check(atoms: Any, *, elements: Sequence[str], label: str) -> None:
    if atoms.pbc.any():
        raise DataError(
            f"{label} takes molecules by themselves, and these atoms are periodic "
            f"(pbc {atoms.pbc.tolist()})\nif the box has no meaning: atoms.pbc = False"
        )
    problem = geometry_problem(atoms.numbers, atoms.positions)
    if problem:
        raise DataError(f"{label} cannot take these atoms: {problem}")
    strange = sorted(set(atoms.symbols) - set(elements)) if elements else []
    if strange:
        raise DataError(
            f"{label} never saw {', '.join(strange)} (in {atoms.get_chemical_formula()})\n"
            f"it knows {', '.join(elements)}"
        )
