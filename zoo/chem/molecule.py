"""What every reader yields: one molecule a row, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

GIVEN = "given geometry"
ETKDG = "ETKDGv3"
RANDOM = "random coordinates"

# Two nuclei nearer than this (Å) are one written twice: the shortest bond, H-H, is 0.74 Å long.
SAME_PLACE = 0.1

_ROWS = 256  # of the distance matrix at a time, so that memory stays linear in the atoms

_NO_NUMBERS: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
_NO_POSITIONS: NDArray[np.float64] = np.zeros((0, 3))


@dataclass(frozen=True, slots=True)
class Problem:
    """One line of the validation report.

    `row` counts the input's rows from 0, `line` a text file's lines from 1; None where it isn't
    about one row, or the line isn't known.
    """

    row: int | None
    line: int | None
    column: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Molecule:
    """A row of the input: a geometry, or a `problem` and empty arrays.

    row: place in the input, from 0; line: of the file, from 1, where known
    numbers: int32 [n] atomic numbers; positions: float64 [n, 3] in Å
    how: where the geometry comes from: `GIVEN`, `ETKDG`, `RANDOM`, or "" if there is none
    columns: the input's own columns
    column, value: what the geometry was read from, such as "smiles" and the SMILES
    smiles: the whole SMILES, where rows were read for their bonds and have no geometry
    """

    row: int
    line: int | None = None
    numbers: NDArray[np.int32] = field(default_factory=lambda: _NO_NUMBERS)
    positions: NDArray[np.float64] = field(default_factory=lambda: _NO_POSITIONS)
    how: str = ""
    columns: Mapping[str, Any] = field(default_factory=dict)
    column: str = ""
    value: str = ""
    smiles: str = ""
    warnings: tuple[str, ...] = ()
    problem: Problem | None = None

    @property
    def valid(self) -> bool:
        return self.problem is None

    @property
    def reason(self) -> str:
        """Why the row is invalid; empty if it is valid."""
        return self.problem.reason if self.problem else ""


def refused(molecule: Molecule, *, column: str, value: str, reason: str) -> Molecule:
    """The same row without a geometry, and with the reason."""
    problem = Problem(molecule.row, molecule.line, column, shorten(value), reason)
    return replace(
        molecule,
        numbers=_NO_NUMBERS,
        positions=_NO_POSITIONS,
        how="",
        smiles="",
        warnings=(),
        problem=problem,
    )


def with_geometry(
    molecule: Molecule,
    *,
    numbers: ArrayLike,
    positions: ArrayLike,
    how: str,
    column: str,
    value: str = "",
    warnings: tuple[str, ...] = (),
) -> Molecule:
    """The row with its atoms (numbers [n], positions [n, 3] in Å), or refused if no model could
    take them. `column` and `value` say in the report where they came from; without a value it is
    the formula.
    """
    z = np.asarray(numbers)
    r = np.asarray(positions, dtype=np.float64)
    reason = geometry_problem(z, r)
    if reason:
        value = value or (formula(z) if z.size and z.min() > 0 and z.max() <= 118 else "")
        return refused(molecule, column=column, value=value, reason=reason)
    return replace(
        molecule,
        numbers=z.astype(np.int32),
        positions=r.copy(),
        how=how,
        column=column,
        value=shorten(value),
        warnings=molecule.warnings + warnings,
    )


def geometry_problem(numbers: NDArray[Any], positions: NDArray[np.float64]) -> str:
    """Why no model can take these atoms (numbers [n], positions [n, 3] in Å), or ""."""
    if numbers.size == 0:
        return "a molecule without atoms"
    if numbers.min() < 1 or numbers.max() > 118:
        at = int(np.argmax((numbers < 1) | (numbers > 118)))
        return f"atom {at + 1} is not an element (atomic number {int(numbers[at])})"
    finite = np.isfinite(positions).all(axis=1)
    if not finite.all():
        at = int(np.argmin(finite))
        where = " ".join(f"{x:g}" for x in positions[at])
        return f"the position of atom {at + 1} is not finite ({where})"
    if len(numbers) > 1:
        distances, neighbours = nearest(positions)
        first = int(distances.argmin())
        if distances[first] < SAME_PLACE:
            one, other = sorted((first + 1, int(neighbours[first]) + 1))
            apart = f"{distances[first]:.3f} Å apart"
            return f"atoms {one} and {other} are at the same place ({apart})"
    return ""


def nearest(positions: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """For each of `positions` [n, 3] (Å), n > 1: how far its nearest neighbour is, and which."""
    count = len(positions)
    squares = np.empty(count)
    neighbours = np.empty(count, dtype=np.intp)
    for start in range(0, count, _ROWS):
        rows = slice(start, min(start + _ROWS, count))
        difference = positions[rows, None, :] - positions[None, :, :]
        block = np.einsum("ijk,ijk->ij", difference, difference)
        block[np.arange(len(block)), np.arange(rows.start, rows.stop)] = np.inf
        neighbours[rows] = block.argmin(axis=1)
        squares[rows] = block.min(axis=1)
    return np.sqrt(squares), neighbours


def formula(numbers: Iterable[Any]) -> str:
    """The sum formula in Hill's order, such as C2H6O."""
    from ase.formula import Formula

    return str(Formula.from_list(symbols(numbers)).format("hill"))


def symbols(numbers: Iterable[Any]) -> list[str]:
    """The element symbols of atomic numbers."""
    from ase.data import chemical_symbols

    return [str(chemical_symbols[int(z)]) for z in numbers]


def shorten(value: object, *, to: int = 200) -> str:
    """A cell's text on one line, cut where it would fill the report."""
    text = " ".join(str(value).split())
    return text if len(text) <= to else f"{text[: to - 4]} ..."
