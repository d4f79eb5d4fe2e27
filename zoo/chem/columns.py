"""The columns that are asked for of a labelled table, whatever file it is."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from zoo.chem import blocks, tables
from zoo.chem.molecule import Problem, shorten
from zoo.chem.pool import map_chunks
from zoo.chem.rdkit_log import caught
from zoo.chem.rows import is_a, is_missing
from zoo.errors import DataError, RequestError

MOL_BLOCK = "mol block"
"""What stands for the SMILES column of an SDF file."""

# Line (from 1, or -1), the cells that are asked for, and why the row is none, if so.
_Row = tuple[int, Sequence[str], str]


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of text in which each text stands once: row i holds `texts[codes[i]]`.

    codes int32 [rows]. Most columns of labels repeat a few texts, so this is small, and what a text
    means is found out once.
    """

    codes: np.ndarray
    texts: list[str]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """A table as text, row by row; chemistry has looked at none of it but an SDF file's blocks.

    where: the table in words, for messages
    smiles_column: its name, or `MOL_BLOCK`
    smiles: the text of each row, without blanks around it
    lines: int64 [rows], the line of the file, from 1, where a row starts; -1 where there is none
    labels: by name; split: the text of each row, where a column was named for it
    refused: rows (from 0) that are none: a wrong number of cells, a mol block that RDKit refuses
    problems: columns that appear twice, and cells of labels in which two such columns differ
    """

    where: str
    smiles_column: str
    smiles: list[str]
    lines: np.ndarray
    labels: Mapping[str, Column]
    split: list[str] | None
    refused: Mapping[int, Problem]
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class _Asked:
    smiles: str | None
    labels: tuple[str, ...]
    split: str | None
    workers: int

    def check(self, names: Sequence[str], *, where: str) -> None:
        """RequestError for a label or split column that isn't there or serves twice."""
        for name in (*self.labels, *([self.split] if self.split is not None else [])):
            tables.find_column(name, names=names, where=where)


def read_columns(
    source: Any,
    *,
    smiles: str | None,
    labels: Sequence[str],
    split: str | None = None,
    workers: int = 1,
) -> Columns:
    """Read the columns that are asked for from a pandas DataFrame or a file: .csv .tsv .txt .tab
    .sdf .sd, each also .gz, or .parquet.

    `smiles` names the column with SMILES; by default the one called so. An SDF file has mol blocks
    in its place, made into SMILES by `workers` processes. RequestError: no such file or column, a
    column asked for twice, a kind of file that isn't read. DataError: empty or damaged.
    """
    names = [str(name) for name in ([labels] if isinstance(labels, str) else labels)]
    if not names:
        raise RequestError("no column of labels was named: name one or more (--labels, labels=)")
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"the label column {name!r} is named twice")
    asked = _Asked(smiles, tuple(names), split, workers)
    if is_a(source, "pandas", "DataFrame"):
        return _frame(source, asked, where="the DataFrame")
    if not isinstance(source, str | Path):
        raise RequestError(
            f"cannot read a table from {type(source).__name__}: give a file or a pandas DataFrame"
        )
    path = Path(source).expanduser()
    kind = f".{path.name.lower().removesuffix('.gz').rpartition('.')[2]}"
    if path.is_dir():
        raise RequestError(f"{path} is a folder, not a file")
    if not path.exists():
        raise RequestError(f"no such file: {path}")
    if kind not in _FILES:
        raise RequestError(
            f"cannot read a table from {path}\n"
            f"its name should end in one of {' '.join(_FILES)} (text also with .gz)"
        )
    return _FILES[kind](path, asked)


def _table(path: Path, asked: _Asked) -> Columns:
    table = tables.open_table(path)
    where = str(path)

    def rows(places: Sequence[int]) -> Iterator[_Row]:
        pick = itemgetter(*places)
        for row in tables.table_rows(table):
            # A row that ends early may be cut in the middle of a number.
            yield row.line, pick(row.cells), row.reason or row.warning.partition(":")[0]

    return _collect(asked, table.names, table.doubles, rows, where=where, line=table.head_line)


def _frame(data: Any, asked: _Asked, *, where: str) -> Columns:
    names, doubles = tables.unique_names([str(name) for name in data.columns])

    def rows(places: Sequence[int]) -> Iterator[_Row]:
        for cells in data.iloc[:, list(places)].itertuples(index=False, name=None):
            yield -1, ["" if is_missing(cell) else str(cell) for cell in cells], ""

    return _collect(asked, names, doubles, rows, where=where, line=None)


def _parquet(path: Path, asked: _Asked) -> Columns:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Only the columns that are needed, of a table that may have thousands.
        names = list(pq.read_schema(path).names)
        column = tables.smiles_column(names, asked=asked.smiles, where=str(path))
        asked.check(names, where=str(path))
        wanted = {column, *asked.labels, *([asked.split] if asked.split is not None else [])}
        data = pq.read_table(path, columns=[name for name in names if name in wanted])
    except (pa.ArrowException, OSError) as error:
        said = str(error).splitlines()[0]
        raise DataError(f"{path} is not a whole Parquet file: {said}") from error
    return _frame(data.to_pandas(), asked, where=str(path))


def _sdf(path: Path, asked: _Asked) -> Columns:
    where = str(path)
    if asked.smiles is not None:
        raise RequestError(
            f"--smiles (smiles=) names a column of a table, and {where} has mol blocks: "
            f"{asked.smiles!r}"
        )
    fields = [(block.line, blocks.sdf_columns(block.text)) for block in blocks.sdf_blocks(path)]
    names = tuple(dict.fromkeys(name for _, columns in fields for name in columns))
    asked.check(names, where=where)
    texts = (block.text for block in blocks.sdf_blocks(path))
    made = (one for some in map_chunks(_smiles_of, texts, workers=asked.workers) for one in some)

    def rows(places: Sequence[int]) -> Iterator[_Row]:
        needed = [("", *names)[place] for place in places[1:]]
        for (line, columns), (text, reason) in zip(fields, made, strict=True):
            cells = [columns.get(name, "") for name in needed]
            # Of a block that is refused the title stands in the report.
            yield line, [text if not reason else columns.get("name", ""), *cells], reason

    mol_first = _Asked(MOL_BLOCK, asked.labels, asked.split, asked.workers)
    return _collect(mol_first, (MOL_BLOCK, *names), {}, rows, where=where, line=None)


def _smiles_of(texts: Sequence[str]) -> list[tuple[str, str]]:
    """(SMILES, why there is none) of each mol block."""
    from rdkit import Chem

    found = []
    for text in texts:
        mol, reason = blocks.sdf_mol(text)
        with caught():
            smiles = "" if reason else Chem.MolToSmiles(Chem.RemoveHs(mol))
        found.append((smiles, reason))
    return found


_FILES: dict[str, Callable[[Path, _Asked], Columns]] = {
    ".csv": _table,
    ".tsv": _table,
    ".txt": _table,
    ".tab": _table,
    ".parquet": _parquet,
    ".sdf": _sdf,
    ".sd": _sdf,
}


class _Cells:
    """A `Column` as it grows."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._rows = array("i")

    def add(self, text: str) -> None:
        self._rows.append(self._codes.setdefault(text, len(self._codes)))

    def column(self) -> Column:
        return Column(codes=np.array(self._rows, np.int32), texts=list(self._codes))


def _collect(
    asked: _Asked,
    names: Sequence[str],
    doubles: Mapping[str, str],
    rows: Callable[[Sequence[int]], Iterable[_Row]],
    *,
    where: str,
    line: int | None,
) -> Columns:
    """Go through the rows once. `rows` yields the cells at the places it is given."""
    column = tables.smiles_column(names, asked=asked.smiles, where=where)
    asked.check(names, where=where)
    wanted = [column, *asked.labels, *([asked.split] if asked.split is not None else [])]
    for at, name in enumerate(wanted):
        if name in wanted[:at]:
            what = "SMILES" if name == column else "labels"
            raise RequestError(f"the column {name!r} of {where} can't serve as {what} and again")
    copies = [(at, copy) for copy, name in doubles.items() for at in _places(name, wanted)]
    places = [names.index(name) for name in (*wanted, *(copy for _, copy in copies))]
    smiles: list[str] = []
    split: list[str] | None = None if asked.split is None else []
    lines = array("q")
    labels = [_Cells() for _ in asked.labels]
    refused: dict[int, Problem] = {}
    problems = list(tables.double_problems(dict(doubles), line=line))
    problems = [problem for problem in problems if problem.column in wanted]
    for number, (at_line, given, reason) in enumerate(rows(places)):
        cells = list(given)
        place = at_line if at_line >= 0 else None
        for at, extra in enumerate(copies, start=len(wanted)):
            name = wanted[extra[0]]
            if cells[at] != cells[extra[0]] and not reason:
                value = f"{shorten(cells[extra[0]], to=90)} | {shorten(cells[at], to=90)}"
                said = f"two columns are called {name!r}, and here they differ"
                if name in asked.labels:
                    problems.append(Problem(number, place, name, value, said))
                    cells[extra[0]] = ""
                else:
                    reason, cells[0] = said, value
        if reason:
            refused[number] = Problem(number, place, column, shorten(cells[0]), reason)
        smiles.append("" if reason else cells[0].strip())
        lines.append(at_line)
        for cell, label in zip(cells[1 : len(labels) + 1], labels, strict=True):
            label.add("" if reason else cell)
        if split is not None:
            split.append(cells[len(labels) + 1].strip())
    return Columns(
        where=where,
        smiles_column=column,
        smiles=smiles,
        lines=np.array(lines, np.int64),
        labels={n: c.column() for n, c in zip(asked.labels, labels, strict=True)},
        split=split,
        refused=refused,
        problems=tuple(problems),
    )


def _places(name: str, wanted: Sequence[str]) -> list[int]:
    return [at for at, other in enumerate(wanted) if other == name]
