"""The rows of each kind of input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.chem import blocks, tables
from zoo.chem.molecule import Molecule, Problem, refused, shorten
from zoo.chem.rows import (
    Conform,
    from_atoms,
    from_mol,
    from_smiles,
    is_a,
    is_item,
    is_missing,
)
from zoo.chem.textfile import open_text
from zoo.errors import RequestError


@dataclass(frozen=True, slots=True)
class Source:
    """An input that was opened: its rows and its own columns, read when called for."""

    where: str
    rows: Callable[[], Iterator[Molecule]]
    names: Callable[[], Iterable[str]]
    count: int | None = None
    problems: tuple[Problem, ...] = ()


def table_file(path: Path, *, smiles: str | None, conform: Conform) -> Source:
    """A CSV or TSV file with a column of SMILES."""
    table = tables.open_table(path)
    column = tables.smiles_column(table.names, asked=smiles, where=str(path))

    def rows() -> Iterator[Molecule]:
        for number, row in enumerate(tables.table_rows(table)):
            columns = dict(zip(table.names, row.cells, strict=True))
            molecule = Molecule(
                row=number,
                line=row.line,
                columns=columns,
                warnings=(row.warning,) if row.warning else (),
            )
            if row.reason:
                value = table.separator.join(row.cells)
                yield refused(molecule, column=column, value=value, reason=row.reason)
            else:
                yield _from_columns(molecule, column, doubles=table.doubles, conform=conform)

    return Source(str(path), rows, lambda: table.names, problems=table.problems)


def frame(data: Any, *, smiles: str | None, conform: Conform) -> Source:
    """A pandas DataFrame with a column of SMILES."""
    names, doubles = tables.unique_names([str(name) for name in data.columns])
    column = tables.smiles_column(names, asked=smiles, where="the DataFrame")

    def rows() -> Iterator[Molecule]:
        for number, cells in enumerate(data.itertuples(index=False, name=None)):
            molecule = Molecule(row=number, columns=dict(zip(names, cells, strict=True)))
            yield _from_columns(molecule, column, doubles=doubles, conform=conform)

    problems = tables.double_problems(doubles, line=None)
    return Source("the DataFrame", rows, lambda: names, count=len(data), problems=problems)


def smiles_file(path: Path, *, conform: Conform) -> Source:
    """A .smi file: a SMILES a line, then perhaps a name."""

    def lines() -> Iterator[tuple[int, list[str]]]:
        with open_text(path) as stream:
            first = True
            for number, line in enumerate(stream, start=1):
                cells = line.split(None, 1)
                if cells and not (first and cells[0].casefold() == "smiles"):
                    yield number, [cell.strip() for cell in cells]
                first = first and not cells

    def names() -> Iterator[str]:
        yield "smiles"
        if any(len(cells) > 1 for _, cells in lines()):
            yield "name"

    def rows() -> Iterator[Molecule]:
        for number, (line, cells) in enumerate(lines()):
            columns = dict(zip(("smiles", "name"), cells, strict=False))
            yield from_smiles(
                Molecule(row=number, line=line, columns=columns),
                cells[0],
                column="smiles",
                conform=conform,
            )

    _touch(path)
    return Source(str(path), rows, names)


def sdf_file(path: Path, *, conform: Conform) -> Source:
    """An SDF or mol file."""

    def rows() -> Iterator[Molecule]:
        for number, block in enumerate(blocks.sdf_blocks(path)):
            columns = blocks.sdf_columns(block.text)
            molecule = Molecule(row=number, line=block.line, columns=columns)
            mol, reason = blocks.sdf_mol(block.text)
            if reason:
                value = columns.get("name", "")
                yield refused(molecule, column="mol block", value=value, reason=reason)
            else:
                yield from_mol(molecule, mol, column="mol block", conform=conform)

    def names() -> Iterator[str]:
        for block in blocks.sdf_blocks(path):
            yield from blocks.sdf_columns(block.text)

    _touch(path)
    return Source(str(path), rows, names)


def xyz_file(path: Path, *, conform: Conform) -> Source:
    """An xyz or extended xyz file. (No conformer is ever made: it holds geometries.)"""

    def rows() -> Iterator[Molecule]:
        for number, block in enumerate(blocks.xyz_blocks(path)):
            columns = blocks.xyz_columns(block.text) if not block.reason else {}
            molecule = Molecule(row=number, line=block.line, columns=columns)
            try:
                if block.reason:
                    raise ValueError(block.reason)
                atoms = blocks.xyz_frame(block.text)
            except ValueError as error:
                value = block.text.split("\n")[0]
                yield refused(molecule, column="geometry", value=value, reason=str(error))
            else:
                where = (atoms.numbers, atoms.positions, atoms.periodic)
                yield from_atoms(molecule, *where, conform=conform)

    def names() -> Iterator[str]:
        for block in blocks.xyz_blocks(path):
            if not block.reason:
                yield from blocks.xyz_columns(block.text)

    _touch(path)
    return Source(str(path), rows, names)


def items(values: Sequence[Any], *, conform: Conform) -> Source:
    """A list of ase.Atoms, SMILES or RDKit Mols, in any mixture; None is an empty cell."""
    for number, value in enumerate(values):
        if not is_item(value) and not is_missing(value):
            raise RequestError(
                f"item {number} of the input is a {type(value).__name__}; "
                "an ase.Atoms, a SMILES or an RDKit Mol is needed"
            )

    def rows() -> Iterator[Molecule]:
        for number, value in enumerate(values):
            molecule = Molecule(row=number, columns=_item_columns(value))
            if is_a(value, "ase", "Atoms"):
                periodic = bool(value.pbc.any())
                where = (value.numbers, value.positions, periodic)
                yield from_atoms(molecule, *where, conform=conform)
            elif is_a(value, "rdkit.Chem", "Mol"):
                yield from_mol(molecule, value, column="mol", conform=conform)
            else:
                yield from_smiles(molecule, value, column="smiles", conform=conform)

    def names() -> Iterator[str]:
        for value in values:
            yield from _item_columns(value)

    return Source("the input", rows, names, count=len(values))


def _item_columns(value: Any) -> Mapping[str, Any]:
    if is_a(value, "ase", "Atoms"):
        return blocks.scalars(value.info)
    if is_a(value, "rdkit.Chem", "Mol"):
        return blocks.scalars(value.GetPropsAsDict())
    return {"smiles": value}


def _from_columns(
    molecule: Molecule, column: str, *, doubles: Mapping[str, str], conform: Conform
) -> Molecule:
    cell = molecule.columns[column]
    for copy, name in doubles.items():
        other = molecule.columns[copy]
        if name == column and other != cell and not (is_missing(other) and is_missing(cell)):
            reason = f"two columns are called {column!r}, and here they differ"
            value = f"{shorten(cell, to=90)} | {shorten(other, to=90)}"
            return refused(molecule, column=column, value=value, reason=reason)
    return from_smiles(molecule, cell, column=column, conform=conform)


def _touch(path: Path) -> None:
    """Raise now, not at the first row, if the file isn't there or isn't text."""
    with open_text(path):
        pass
