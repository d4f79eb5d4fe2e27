"""MoleculeNet's tables: a CSV with a column of SMILES and columns of labels, some of them empty."""

from __future__ import annotations

import csv
import hashlib
import io
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zoo import hub
from zoo.errors import DataError, RequestError

SMILES = "smiles"


def table_in(folder: Path, *, filename: str) -> Path:
    """The table in a folder, as it is or gzipped. RequestError if there is none."""
    plain = folder / filename.removesuffix(".gz")
    for path in (plain, plain.with_name(f"{plain.name}.gz")):
        if path.exists():
            return path
    raise RequestError(f"{folder} holds no {plain.name}, gzipped or not")


def content_sha256(path: Path) -> str:
    """The sha256 of a table's bytes, unzipped. DataError if it can't be unzipped."""
    try:
        with hub.open_raw(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}") from error


def read_table(path: Path, *, labels: Sequence[str], binary: bool) -> tuple[list[str], np.ndarray]:
    """The SMILES and the labels (float32 [rows, T] in the order of `labels`, NaN where a cell is
    empty). DataError names the line of a row that isn't as it should be.
    """
    smiles: list[str] = []
    y: list[list[float]] = []
    for line, cells in _rows(path, [SMILES, *labels]):
        smiles.append(cells[0])
        values = [_number(cell) for cell in cells[1:]]
        for name, cell, value in zip(labels, cells[1:], values, strict=True):
            if value is None or (binary and value not in (0, 1) and value == value):
                what = "neither 0 nor 1" if binary else "not a number"
                raise DataError(f"{path}, line {line}: {name} is {what}: {cell!r}")
        y.append(values)  # type: ignore[arg-type]  # none is None
    if not smiles:
        raise DataError(f"{path} holds no molecules")
    return smiles, np.array(y, np.float32)


def read_smiles(path: Path) -> list[str]:
    """The SMILES of every row."""
    return [cells[0] for _, cells in _rows(path, [SMILES])]


def _number(cell: str) -> float | None:
    """NaN for an empty cell, None for what isn't a finite number."""
    if not cell.strip():
        return float("nan")
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _rows(path: Path, columns: Sequence[str]) -> list[tuple[int, list[str]]]:
    """The line where each row ends, and its cells of these columns."""
    try:
        with hub.open_raw(path) as raw, io.TextIOWrapper(raw, "utf-8", newline="") as text:
            reader = csv.reader(text, strict=True)
            header = next(reader, [])
            missing = [name for name in columns if header.count(name) != 1]
            if missing:
                raise DataError(
                    f"{path}, line 1: a column {missing[0]!r} is expected, once\n"
                    f"it has {', '.join(header[:8])}{', ...' if len(header) > 8 else ''}"
                )
            places = [header.index(name) for name in columns]
            rows = []
            for cells in reader:
                if len(cells) == len(header):
                    rows.append((reader.line_num, [cells[place] for place in places]))
                elif cells:
                    raise DataError(
                        f"{path}, line {reader.line_num}: {len(cells)} cells, the header has "
                        f"{len(header)}"
                    )
            return rows
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged: {error}") from error
