"""The validation report: each row that could not be used, on disk beside the output."""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, get_args

from zoo.chem.molecule import Molecule, Problem
from zoo.errors import DataError, unknown
from zoo.files import disk

Policy = Literal["raise", "skip", "nan"]

FIELDS = ("row", "line", "column", "value", "reason")

_SUFFIXES = (".csv", ".tsv", ".parquet", ".json")


def report_path(out: str | Path) -> Path:
    """Where the report of an output stands: `out.csv`, `out.parquet` and `out` have
    `out.report.csv`.
    """
    path = Path(out)
    stem = path.name.removesuffix(".gz")
    for suffix in _SUFFIXES:
        if stem.lower().endswith(suffix) and len(stem) > len(suffix):
            stem = stem[: -len(suffix)]
            break
    return path.with_name(f"{stem}.report.csv")


class Report:
    """Collects problems as they come and writes them to `path`; with no path it only counts.

    A context manager: the file appears whole at the end, and not at all after an exception or when
    there was no problem (then an older one of the same name goes, since it would be about another
    run). Errors are UnavailableError that names the path.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        self.rows = 0
        self.refused = 0
        self.doubts = 0
        self.problems = 0
        self._file: IO[str] | None = None
        self._writer: Any = None

    def add(self, problem: Problem, *, refuses: bool = False) -> None:
        """Note a problem, which `refuses` its row or leaves it in use; it is on its way to the
        disk, not kept.
        """
        self.problems += 1
        self.refused += refuses
        self.doubts += problem.row is not None and not refuses
        if self.path is None:
            return
        with disk(self.path):
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._partial.open("w", encoding="utf-8", newline="")
                self._writer = csv.writer(self._file)
                self._writer.writerow(FIELDS)
            row = "" if problem.row is None else problem.row
            line = "" if problem.line is None else problem.line
            self._writer.writerow((row, line, problem.column, problem.value, problem.reason))

    def count(self, molecule: Molecule) -> None:
        """Count a row, and note its problem if it has one."""
        self.rows += 1
        if molecule.problem is not None:
            self.add(molecule.problem, refuses=True)

    def summary(self) -> str:
        """A line for people: how many rows could not be used, and where to see why."""
        if not self.problems:
            return f"all {self.rows:,} rows could be read" if self.rows != 1 else "1 row read"
        see = f"; see {self.path}" if self.path is not None else ""
        text = f"{self.refused:,} of {self.rows:,} rows could not be used"
        if self.doubts:
            text += (
                f", {self.doubts:,} cells are in doubt"
                if self.doubts > 1
                else ", 1 cell is in doubt"
            )
        others = self.problems - self.refused - self.doubts
        if others:
            text += f", {others:,} columns are in doubt" if others > 1 else ", 1 column is in doubt"
        return text + see

    def __enter__(self) -> Report:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.path is None:
            return
        try:
            if kind is not None:
                with contextlib.suppress(OSError):  # the exception at hand says more
                    if self._file is not None:
                        self._file.close()
                return
            with disk(self.path):
                if self._file is not None:
                    self._file.close()
                    os.replace(self._partial, self.path)
                else:
                    self.path.unlink(missing_ok=True)
        finally:
            self._file = None
            with contextlib.suppress(OSError):
                self._partial.unlink()

    @property
    def _partial(self) -> Path:
        assert self.path is not None
        return self.path.with_name(f".{self.path.name}.partial-{os.getpid()}")


def check_policy(policy: str) -> None:
    """RequestError unless the policy is one of raise, skip, nan."""
    if policy not in get_args(Policy):
        raise unknown(kind="on-error policy", name=policy, known=get_args(Policy))


def enforce(
    molecules: Iterable[Molecule],
    *,
    on_error: Policy,
    where: str = "the input",
    report: Report | None = None,
) -> Iterator[Molecule]:
    """Pass rows on, invalid ones by the policy: "raise" ends with a DataError that names the row,
    "skip" leaves them out, "nan" keeps them. All are counted in the report.
    """
    check_policy(on_error)
    for molecule in molecules:
        if report is not None:
            report.count(molecule)
        if molecule.problem is not None:
            if on_error == "raise":
                raise error_of(molecule.problem, where=where)
            if on_error == "skip":
                continue
        yield molecule


def error_of(problem: Problem, *, where: str) -> DataError:
    """The problem as an error: what, where, what to do."""
    place = [where]
    if problem.row is not None:
        place.append(f"row {problem.row}")
    if problem.line is not None:
        place.append(f"line {problem.line}")
    if problem.column:
        place.append(f"column {problem.column!r}")
    value = f": {problem.value!r}" if problem.value else ""
    return DataError(
        f"{problem.reason}\n{', '.join(place)}{value}\n"
        "mend the input, or go on without such rows: --on-error skip or nan"
    )
