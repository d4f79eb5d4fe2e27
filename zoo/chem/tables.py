"""CSV and its cousins, row by row: any separator, quoted cells, a broken row that stays one row."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from zoo.chem.molecule import Problem
from zoo.chem.textfile import open_text
from zoo.errors import DataError, RequestError, nearest

# A quoted cell may hold line breaks, but one that is never closed must not swallow the file.
_LONGEST_ROW = 100
_SEPARATORS = ",\t;|"
_SEP_HINT = re.compile(r"^sep=(.)$")


@dataclass(frozen=True, slots=True)
class Table:
    """The head of a table: `names` are its columns, made unique; `doubles` maps a renamed column to
    the one it repeats.
    """

    path: Path
    separator: str
    names: tuple[str, ...]
    doubles: dict[str, str]
    head_line: int

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Columns that appear twice, for the report."""
        return double_problems(self.doubles, line=self.head_line)


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row's cells, one per column; `reason` if the row can't be split into them."""

    line: int
    cells: tuple[str, ...]
    reason: str = ""
    warning: str = ""


def open_table(path: Path) -> Table:
    """Read a table's head. Errors of `open_text`; DataError if there is no header."""
    with open_text(path) as stream:
        sample = list(islice((line.strip("\r\n") for line in stream if line.strip()), 6))
    hint = _SEP_HINT.match(sample[0]) if sample else None
    if path.name.lower().removesuffix(".gz").endswith(".tsv") and "\t" in "".join(sample[:1]):
        separator = "\t"
    else:
        separator = hint[1] if hint else _sniff(sample)
    for line, cells, _ in _records(path, separator):
        if hint and len(cells) <= 2 and "".join(cells).strip().startswith("sep="):
            continue
        names, doubles = unique_names(cells)
        return Table(path, separator, names, doubles, line)
    raise DataError(f"{path} has no header line")


def table_rows(table: Table) -> Iterator[TableRow]:
    """The rows below the head, in order; lines that are wholly blank are none, as in pandas."""
    width = len(table.names)
    for line, cells, broken in _records(table.path, table.separator):
        if line <= table.head_line:
            continue
        padded = tuple(cells[:width]) + ("",) * (width - len(cells))
        if broken and len(cells) != width:
            yield TableRow(line, padded, reason="a quoted cell is not closed, or is too long")
        elif any(cell.strip() for cell in cells[width:]):
            reason = f"{len(cells)} cells where the header has {width}"
            yield TableRow(line, padded, reason=reason)
        elif len(cells) < width:
            warning = f"{len(cells)} cells where the header has {width}: the rest taken as empty"
            yield TableRow(line, padded, warning=warning)
        else:
            yield TableRow(line, padded)


def unique_names(names: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Column names made unique, as pandas would (`a`, `a.1`), and what each renamed one repeats."""
    taken = {name.strip() for name in names}
    unique: list[str] = []
    doubles: dict[str, str] = {}
    for place, raw in enumerate(names):
        name = raw.strip() or f"Unnamed: {place}"
        new, count = name, 0
        while new in unique or (count and new in taken):
            count += 1
            new = f"{name}.{count}"
        if count:
            doubles[new] = name
        unique.append(new)
    return tuple(unique), doubles


def double_problems(doubles: dict[str, str], *, line: int | None) -> tuple[Problem, ...]:
    """One line of the report for each column that appears again."""
    return tuple(
        Problem(None, line, name, "", f"the column appears again; its copy is called {new!r}")
        for new, name in doubles.items()
    )


def smiles_column(names: Sequence[str], *, asked: str | None, where: str) -> str:
    """The column with the SMILES: the one asked for, or one named so. RequestError with the columns
    there are.
    """
    if asked is not None:
        return find_column(asked, names=names, where=where)
    for fits in (
        lambda name: name == "smiles",
        lambda name: name.casefold() == "smiles",
        lambda name: "smiles" in name.casefold(),
    ):
        found = [name for name in names if fits(name)]
        if len(found) == 1:
            return found[0]
        if found:
            break
    what = "several columns could hold" if found else "no column named 'smiles' to hold"
    raise RequestError(
        f"{what} the SMILES in {where}: name it with --smiles COLUMN (smiles=)\n"
        f"its columns: {_listed(names)}"
    )


def find_column(name: str, *, names: Sequence[str], where: str) -> str:
    """`name`, if there is such a column. RequestError names the nearest and the others."""
    if name in names:
        return name
    near = nearest(name=name, known=names)
    also = f" (nearest: {near!r})" if near else ""
    raise RequestError(f"no column {name!r} in {where}{also}\nits columns: {_listed(names)}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:30])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > 30 else shown


def _sniff(sample: list[str]) -> str:
    """The separator of the first lines: one that all hold equally often before one that the header
    alone holds ("name, trade;smiles"); a comma if there is none.
    """
    bare = [re.sub(r'"[^"]*"', "", line) for line in sample] or [""]

    def score(separator: str) -> tuple[bool, int]:
        counts = [line.count(separator) for line in bare]
        return counts[0] > 0 and len(set(counts)) == 1, counts[0]

    return max(_SEPARATORS, key=score)


class _Lines:
    """Physical lines for csv.reader, with those of the row at hand kept to be read again."""

    def __init__(self, stream: Iterator[str]) -> None:
        self._stream = stream
        self._again: list[str] = []
        self.number = 0
        self.taken: list[str] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if len(self.taken) == _LONGEST_ROW:
            raise csv.Error("a quoted cell is not closed")
        line = self._again.pop() if self._again else next(self._stream)
        self.number += 1
        self.taken.append(line)
        return line

    def back_to_first(self) -> str:
        """Give back all lines of the row but the first, which is returned."""
        first, *rest = self.taken
        self._again.extend(reversed(rest))
        self.number -= len(rest)
        return first


def _records(path: Path, separator: str) -> Iterator[tuple[int, list[str], bool]]:
    """(first line, cells, whether its quotes are broken) of each row that isn't blank."""
    with open_text(path) as stream:
        lines = _Lines(stream)
        reader = csv.reader(lines, delimiter=separator, strict=True)
        while True:
            start = lines.number + 1
            lines.taken = []
            broken = False
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error:
                # Taken by itself the line may still be one that other programs read: "a"b,c
                first = lines.back_to_first()
                reader = csv.reader(lines, delimiter=separator, strict=True)
                cells, broken = _loose(first, separator), True
            # A line of blanks has one cell, and so has an empty quoted one: "" is a row.
            blank = not cells or (len(cells) == 1 and not cells[0].strip())
            if broken or not blank or (cells and '"' in lines.taken[0]):
                yield start, cells, broken


def _loose(line: str, separator: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=separator))
    except csv.Error:
        return []
