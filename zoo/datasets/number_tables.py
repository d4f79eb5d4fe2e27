"""Tables of numbers without a header: comma-separated, gzipped or not."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.errors import DataError

_INT32 = np.iinfo(np.int32)


def read_integers(
    path: Path, *, columns: int, low: int = 0, below: Sequence[int] | None = None
) -> np.ndarray:
    """Whole numbers from `low` on, each column's less than its `below`: int32 [rows, columns].

    DataError names the line of another thing.
    """
    table = _read(path, skipinitialspace=True)
    if table.empty:
        return np.zeros((0, columns), np.int32)
    _check_width(path, found=table.shape[1], expected=columns)
    values = table.to_numpy()
    if values.dtype.kind != "i":
        cells = _read(path, skipinitialspace=True, dtype=str, keep_default_na=False)
        rows = cells.to_numpy().tolist()
        bad = next(n for n, row in enumerate(rows) if not all(map(_whole, row)))
        raise DataError(f"{path}, line {bad + 1}: {rows[bad]} are not whole numbers")
    limits = np.array([_INT32.max] * columns if below is None else below)
    outside = ((values < low) | (values >= limits)).any(axis=1)
    if outside.any():
        bad = int(outside.argmax())
        raise DataError(
            f"{path}, line {bad + 1}: {values[bad].tolist()} is not within {low} to "
            f"{(limits - 1).tolist()}"
        )
    whole: np.ndarray = values.astype(np.int32)
    return whole


def read_floats(path: Path, *, columns: int | None = None) -> np.ndarray:
    """Numbers, NaN where a cell is empty: float32 [rows, columns], any number of columns if None.

    DataError for anything else.
    """
    table = _read(path, dtype=np.float32, skipinitialspace=True, skip_blank_lines=False)
    if columns is not None:
        _check_width(path, found=table.shape[1], expected=columns)
    return np.ascontiguousarray(table.to_numpy(np.float32))


def _check_width(path: Path, *, found: int, expected: int) -> None:
    if found != expected:
        raise DataError(f"{path} has {found} columns where {expected} should be")


def _whole(cell: str) -> bool:
    return cell.strip().removeprefix("-").isdecimal()


def _read(path: Path, **options: Any) -> Any:
    import pandas as pd

    try:
        return pd.read_csv(path, header=None, **options)
    except pd.errors.EmptyDataError:
        return pd.DataFrame()
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}") from error
