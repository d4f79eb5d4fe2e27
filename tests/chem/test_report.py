"""The validation report: whole or absent, and nothing lost from it."""

from __future__ import annotations

import csv
import errno
import os
from pathlib import Path

import pytest

from zoo.chem.molecule import Molecule, Problem, refused
from zoo.chem.read import read_molecules
from zoo.chem.report import Report, enforce, report_path
from zoo.errors import DataError, RequestError, UnavailableError

PROBLEM = Problem(4, 6, "smiles", 'C,"(', 'a reason, "quoted"')


def lines(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("out", "report"),
    [
        ("out.csv", "out.report.csv"),
        ("out.csv.gz", "out.report.csv"),
        ("a.b/out.parquet", "a.b/out.report.csv"),
        ("out", "out.report.csv"),
        ("out.v2", "out.v2.report.csv"),
        (".csv", ".csv.report.csv"),
    ],
)
def test_where_it_stands(out: str, report: str) -> None:
    assert report_path(out) == Path(report)


def test_each_refused_row_stands_in_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "out.report.csv"
    with Report(path) as report:
        rows = list(enforce(read_molecules(["C", "CC(C", ""]), on_error="nan", report=report))
    assert len(rows) == 3
    found = lines(path)
    assert [(r["row"], r["line"], r["column"], r["value"]) for r in found] == [
        ("1", "", "smiles", "CC(C"),
        ("2", "", "smiles", ""),
    ]
    assert "extra open parentheses" in found[0]["reason"]
    assert report.summary() == f"2 of 3 rows could not be used; see {path}"
    assert os.listdir(path.parent) == ["out.report.csv"]


def test_anything_can_be_written_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    with Report(path) as report:
        report.add(PROBLEM)
        report.add(Problem(None, None, "y", "", "µ"))
    first, second = lines(path)
    assert first == {
        "row": "4",
        "line": "6",
        "column": "smiles",
        "value": 'C,"(',
        "reason": 'a reason, "quoted"',
    }
    assert second["row"] == ""
    assert second["reason"] == "µ"


def test_without_a_problem_there_is_no_file_and_an_old_one_goes(tmp_path: Path) -> None:
    path = tmp_path / "out.report.csv"
    path.write_text("of an earlier run")
    with Report(path) as report:
        report.count(Molecule(row=0))
        report.count(Molecule(row=1))
    assert not path.exists()
    assert report.summary() == "all 2 rows could be read"


def test_after_an_exception_nothing_half_written_stays(tmp_path: Path) -> None:
    path = tmp_path / "out.report.csv"
    path.write_text("of an earlier run")
    with pytest.raises(KeyError), Report(path) as report:
        report.add(PROBLEM)
        raise KeyError
    assert path.read_text() == "of an earlier run"
    assert os.listdir(tmp_path) == ["out.report.csv"]


def test_a_disk_that_refuses_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with (
        pytest.raises(UnavailableError, match=r"file/out\.report\.csv"),
        Report(blocked / "out.report.csv") as report,
    ):
        report.add(PROBLEM)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.report.csv"
    os.symlink("/dev/full", tmp_path / f".out.report.csv.partial-{os.getpid()}")
    with pytest.raises(UnavailableError, match=os.strerror(errno.ENOSPC)), Report(path) as report:
        report.add(PROBLEM)
    assert os.listdir(tmp_path) == []


def test_with_no_path_it_counts(tmp_path: Path) -> None:
    with Report() as report:
        rows = [Molecule(row=0), refused(Molecule(row=1), column="a", value="b", reason="c")]
        for row in enforce(rows, on_error="skip", report=report):
            assert row.row == 0
        report.add(Problem(None, None, "y", "", "the column appears again"))
    assert (report.rows, report.refused, report.problems) == (2, 1, 2)
    assert report.summary() == "1 of 2 rows could not be used, 1 column is in doubt"
    assert os.listdir(tmp_path) == []


def test_raise_names_file_row_line_and_column() -> None:
    row = Molecule(row=4, line=6, problem=PROBLEM)
    with pytest.raises(DataError) as caught:
        list(enforce([row], on_error="raise", where="t.csv"))
    what, where, do = str(caught.value).splitlines()
    assert what == 'a reason, "quoted"'
    assert where == "t.csv, row 4, line 6, column 'smiles': 'C,\"('"
    assert "--on-error skip" in do


def test_a_policy_that_is_none() -> None:
    with pytest.raises(RequestError, match="known: raise, skip, nan"):
        list(enforce([], on_error="ignore"))  # type: ignore[arg-type]
