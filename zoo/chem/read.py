"""Molecules from whatever a person has: Atoms, SMILES, tables and files, as one stream of rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from zoo.chem import sources
from zoo.chem.conformers import check_request, embed
from zoo.chem.molecule import Molecule, Problem
from zoo.chem.report import Policy, check_policy, enforce, error_of
from zoo.chem.rows import Conform, is_a, is_item
from zoo.chem.sources import Source
from zoo.errors import RequestError

_FILES: dict[str, Callable[..., Source]] = {
    ".csv": sources.table_file,
    ".tsv": sources.table_file,
    ".smi": sources.smiles_file,
    ".smiles": sources.smiles_file,
    ".sdf": sources.sdf_file,
    ".sd": sources.sdf_file,
    ".mol": sources.sdf_file,
    ".xyz": sources.xyz_file,
    ".extxyz": sources.xyz_file,
}


@dataclass(frozen=True, slots=True)
class Molecules:
    """The rows of an input, in its order, each a `Molecule`. It can be gone through again, and
    reads as it goes: a file of any size takes the memory of one row.

    where: the input in words, for messages
    count: how many rows, where that is known without reading
    problems: what is wrong with the input as a whole (a column that appears twice)
    """

    where: str
    count: int | None
    problems: tuple[Problem, ...]
    on_error: Policy
    _rows: Callable[[], Iterator[Molecule]] = field(repr=False)
    _names: Callable[[], Iterable[str]] = field(repr=False)

    def __iter__(self) -> Iterator[Molecule]:
        return enforce(self._rows(), on_error=self.on_error, where=self.where)

    @property
    def names(self) -> tuple[str, ...]:
        """The input's own columns. Of an SDF or xyz file this reads the whole, without chemistry,
        since each record may bring another.
        """
        return tuple(dict.fromkeys(self._names()))


def read_molecules(
    source: Any,
    *,
    smiles: str | None = None,
    on_error: Policy = "nan",
    geometry: bool = True,
    conformer_seconds: float = 10.0,
    seed: int = 0,
) -> Molecules:
    """Read molecules from one or several of ase.Atoms, SMILES or RDKit Mols, from a pandas
    DataFrame or Series, or from a file: .csv .tsv .smi .sdf .mol .xyz .extxyz, each also .gz.

    A row without a geometry gets one (conformers.py), within `conformer_seconds`; or, without
    `geometry`, each has a SMILES, unread as yet, and none has a geometry. A row that can't
    be used says why; `on_error` = "raise" stops at it (DataError), "skip" leaves it out, "nan"
    keeps its place. `smiles` names the column with SMILES; by default the one called so. A text
    is a file if it ends like one or if there is one, else a SMILES.

    RequestError: no such file or column, or nothing that molecules can be read from.
    """
    check_policy(on_error)
    check_request(seed=seed, seconds=conformer_seconds)
    conform = partial(embed, seed=seed, seconds=conformer_seconds) if geometry else None
    found = _open(source, smiles=smiles, conform=conform)
    if on_error == "raise" and found.problems:
        raise error_of(found.problems[0], where=found.where)
    return Molecules(
        where=found.where,
        count=found.count,
        problems=found.problems,
        on_error=on_error,
        _rows=found.rows,
        _names=found.names,
    )


def _open(source: Any, *, smiles: str | None, conform: Conform) -> Source:
    path = _as_path(source)
    if path is not None:
        kind = _FILES[_suffix(path)]
        if kind is sources.table_file:
            return kind(path, smiles=smiles, conform=conform)
        _no_column(smiles, where=str(path))
        return kind(path, conform=conform)
    if is_a(source, "pandas", "DataFrame"):
        return sources.frame(source, smiles=smiles, conform=conform)
    _no_column(smiles, where="the input")
    if is_item(source):
        return sources.items([source], conform=conform)
    if isinstance(source, Iterable) and not isinstance(source, bytes | dict):
        return sources.items(list(source), conform=conform)
    raise RequestError(
        f"cannot read molecules from {type(source).__name__}\n"
        "give ase.Atoms, SMILES, a pandas DataFrame, or a file: " + _known()
    )


def _as_path(source: Any) -> Path | None:
    """The file that is meant, or None. RequestError for a file of a kind that isn't read here."""
    if not isinstance(source, str | os.PathLike):
        return None
    path = Path(source).expanduser()
    if _suffix(path) in _FILES:
        # A SMILES holds no dot before such letters, so this is a file, there or not.
        if not path.exists():
            raise RequestError(f"no such file: {path}")
        return path
    if isinstance(source, str) and not source.strip():
        raise RequestError("there is nothing to read molecules from: the input is empty")
    if not isinstance(source, str) or (path.exists() and not _is_smiles(source)):
        raise RequestError(
            f"cannot read molecules from {path}: its name should end in one of {_known()}"
        )
    return None


def _is_smiles(text: str) -> bool:
    """Whether a text that is also a file's name could be a molecule: `CO`, and no `.` or `./x`."""
    from rdkit import Chem

    from zoo.chem.rdkit_log import caught

    with caught():
        mol = Chem.MolFromSmiles(text)
    return mol is not None and mol.GetNumAtoms() > 0


def _suffix(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    return f".{name.rpartition('.')[2]}" if "." in name else ""


def _known() -> str:
    return f"{' '.join(_FILES)} (or with .gz)"


def _no_column(smiles: str | None, *, where: str) -> None:
    if smiles is not None:
        raise RequestError(
            f"--smiles (smiles=) names a column of a table, and {where} is none: {smiles!r}"
        )
