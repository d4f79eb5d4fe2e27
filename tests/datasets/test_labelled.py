"""A person's own table as people have them: separators, encodings, gaps, texts, duplicates."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rdkit import Chem
from tables import smiles, table

from zoo.chem.report import Report
from zoo.datasets.labelled import Labelled, read_labelled
from zoo.errors import DataError, RequestError

pytestmark = pytest.mark.usefixtures("cache")

ROWS = 24
HEAD = "id,smiles,y\n"


def read(source: Any, labels: Sequence[str] = ("y",), **options: Any) -> Labelled:
    return read_labelled(source, labels=labels, workers=1, **options)


Rows = Sequence[tuple[str, str, str]]


def plain(values: Sequence[str] | None = None) -> list[tuple[str, str, str]]:
    """id, SMILES and y of some rows."""
    own = values or [f"{n / 4 - 2}" for n in range(ROWS)]
    return [(f"m{n}", s, v) for n, (s, v) in enumerate(zip(smiles(len(own)), own, strict=True))]


def write(path: Path, rows: Rows, *, sep: str = ",", end: str = "\n") -> Path:
    lines = [sep.join(("id", "smiles", "y")), *(sep.join(row) for row in rows)]
    path.write_bytes((end.join(lines) + end).encode())
    return path


def expected(rows: Rows) -> list[float]:
    return [float(row[2]) for row in rows]


@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_any_separator_and_line_end(sep: str, end: str, tmp_path: Path) -> None:
    rows = plain()
    found = read(write(tmp_path / "t.csv", rows, sep=sep, end=end))
    assert found.y[:, 0].tolist() == expected(rows) and found.smiles == [r[1] for r in rows]
    assert found.rows.tolist() == list(range(ROWS)) and found.lines[0] == 2


def test_a_byte_order_mark_latin1_and_gzip(tmp_path: Path) -> None:
    text = "smiles,y (µM),name\n" + "".join(f"{s},{n},café\n" for n, s in enumerate(smiles(ROWS)))
    marked = tmp_path / "bom.csv"
    marked.write_bytes(b"\xef\xbb\xbf" + text.encode())
    latin = tmp_path / "latin.csv.gz"
    latin.write_bytes(gzip.compress(text.encode("latin-1")))
    for path in (marked, latin):
        found = read(path, ["y (µM)"])
        assert len(found) == ROWS and found.labels[0].unit == "µM"


def test_quoted_smiles_may_hold_commas_and_names_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = "".join(f'"{s}","a, b\nc",{n}\n' for n, s in enumerate(smiles(ROWS)))
    path.write_text("smiles,name,y\n" + rows)
    assert read(path).y[:, 0].tolist() == list(range(ROWS))


def test_tables_of_other_kinds_say_the_same(tmp_path: Path) -> None:
    frame = table(ROWS)
    labels = ["logS [log mol/L]", "toxic"]
    frame.to_parquet(tmp_path / "t.parquet")
    with Chem.SDWriter(str(tmp_path / "t.sdf")) as writer:
        for row in frame.to_dict("records"):
            mol = Chem.MolFromSmiles(row["smiles"])
            for name in labels:
                if row[name] == row[name]:
                    mol.SetProp(name, repr(row[name]))
            writer.write(mol)
    whole = read(frame, labels)
    for source in (tmp_path / "t.parquet", tmp_path / "t.sdf"):
        found = read(source, labels)
        assert np.array_equal(found.y, whole.y, equal_nan=True), source
        assert found.groups.tolist() == whole.groups.tolist()
    assert whole.labels[0].unit == "log mol/L" and whole.labels[1].kind == "binary"


def test_a_decimal_comma_is_understood_and_said(tmp_path: Path) -> None:
    values = [f"{n},{n % 10}5" for n in range(ROWS)]
    found = read(write(tmp_path / "t.csv", plain(values), sep=";"))
    assert found.y[3, 0] == 3.35
    assert any("comma" in note for note in found.notes)


@pytest.mark.parametrize("gap", ["", "NA", "NaN", "null", "None", "-", "?", "n/a"])
def test_gaps_are_unknown_and_never_filled(gap: str, tmp_path: Path) -> None:
    values = [gap if n % 3 == 0 else str(n) for n in range(ROWS)]
    found = read(write(tmp_path / "t.csv", plain(values)))
    assert len(found) == ROWS - 8 and found.counts.unlabelled == 8
    assert not np.isnan(found.y).any() and found.counts.cells == 0


def test_cells_that_are_no_numbers_are_reported_and_unknown(tmp_path: Path) -> None:
    values = [str(n) for n in range(ROWS)]
    values[2:5] = [">10", "1.2 mM", "abc"]
    with Report(tmp_path / "r.csv") as report:
        found = read(write(tmp_path / "t.csv", plain(values)), report=report)
    told = pd.read_csv(tmp_path / "r.csv")
    assert told["row"].tolist() == [2, 3, 4] and told["value"].tolist() == [">10", "1.2 mM", "abc"]
    assert found.counts.cells == 3 and 3 not in found.rows


@pytest.mark.parametrize(
    ("no", "yes"),
    [("inactive", "active"), ("no", "yes"), ("FALSE", "TRUE"), ("non-toxic", "toxic"), ("0", "1")],
)
def test_two_texts_are_yes_or_no(no: str, yes: str, tmp_path: Path) -> None:
    values = [yes if n % 4 == 0 else no for n in range(ROWS)]
    found = read(write(tmp_path / "t.csv", plain(values)))
    (label,) = found.labels
    assert (label.kind, label.classes) == ("binary", (no, yes)) and label.positives == 6
    assert found.y[:, 0].tolist() == [float(n % 4 == 0) for n in range(ROWS)]
    assert "(positive)" in label.stated()


def test_more_texts_are_classes_and_a_kind_can_be_told(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", plain([["low", "mid", "top"][n % 3] for n in range(ROWS)]))
    (label,) = read(path).labels
    assert label.kind == "multiclass" and sorted(label.classes) == ["low", "mid", "top"]
    numbers = write(tmp_path / "n.csv", plain([str(n % 2) for n in range(ROWS)]))
    assert read(numbers).labels[0].kind == "binary"
    assert read(numbers, kinds={"y": "regression"}).labels[0].kind == "regression"
    with pytest.raises(RequestError, match="label in kinds"):
        read(numbers, kinds={"z": "regression"})


def test_a_broken_row_ends_it_or_is_left_out(tmp_path: Path) -> None:
    rows = plain()
    rows[7] = ("m7", "C1CC(", "1")
    path = write(tmp_path / "t.csv", rows)
    with pytest.raises(DataError, match=r"1 of 24 rows can't be used[\s\S]*row 7, line 9"):
        read(path)
    with Report(tmp_path / "r.csv") as report:
        found = read(path, on_error="skip", report=report)
    assert len(found) == ROWS - 1 and 7 not in found.rows and found.counts.invalid == 1
    assert pd.read_csv(tmp_path / "r.csv")["reason"][0].startswith("RDKit refuses this SMILES")


def test_the_same_molecule_written_otherwise_is_one_group_and_may_disagree(tmp_path: Path) -> None:
    rows = [*plain(), ("again", "c1ccccc1C", "90"), ("twin", "C1CCCCC1C", rows_value())]
    with Report(tmp_path / "r.csv") as report:
        found = read(write(tmp_path / "t.csv", rows), report=report)
    assert len(found) == ROWS + 2 and found.counts.duplicates == 2
    first = found.smiles.index("Cc1ccccc1")
    assert found.groups[first] == found.groups[ROWS]
    told = pd.read_csv(tmp_path / "r.csv")
    assert found.counts.conflicting == 1 and told["row"].tolist() == [ROWS]
    assert "both kept, in one split" in told["reason"][0]


def rows_value() -> str:
    """The value that methylcyclohexane has in `plain`."""
    return plain()[1][2]


def test_the_largest_fragment_is_kept_only_when_asked(tmp_path: Path) -> None:
    rows = plain()
    rows[0] = ("salt", "CC(=O)[O-].[Na+]", "1")
    path = write(tmp_path / "t.csv", rows)
    assert read(path).smiles[0] == "CC(=O)[O-].[Na+]"
    cut = read(path, largest_fragment=True)
    assert cut.smiles[0] == "CC(=O)[O-]" and cut.store.nodes_per_graph()[0] == 4


@pytest.mark.parametrize(
    ("text", "labels", "says"),
    [
        ("", ["y"], "is empty"),
        ("smiles,y\n", ["y"], "no rows"),
        ("smiles,y\nCO,1\nCC,2\n", ["z"], r"no column 'z'[\s\S]*'smiles', 'y'"),
        ("smiles,y\nCO,1\nCC,2\n", ["Y"], "nearest: 'y'"),
        ("smiles,y\nCO,1\nCC,1\n", ["y"], "y"),
        ("smiles,y\nCO,NA\nCC,\n", ["y"], "y"),
        ("smiles,y\nCO,1\nCC,2\n", ["y", "y"], "twice"),
        ("smiles,y\nCO,1\nCC,2\n", ["smiles"], "smiles"),
        ("name,y\nCO,1\nCC,2\n", ["y"], "--smiles"),
        ("smiles,y\nXX,1\nYY,2\n", ["y"], "no molecule that RDKit can read"),
    ],
)
def test_what_cannot_be_learnt_is_refused_before_training(
    text: str, labels: list[str], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises((RequestError, DataError), match=says):
        read(path, labels, on_error="skip")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no such file"):
        read(tmp_path / "none.csv")


def test_a_second_reading_takes_the_graphs_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "t.csv", plain())
    first = read(path)
    monkeypatch.setattr("zoo.datasets.featurised._make", None)
    again = read(path)
    assert again.store.digest == first.store.digest
    assert np.array_equal(again.store.node["atom"], first.store.node["atom"])
