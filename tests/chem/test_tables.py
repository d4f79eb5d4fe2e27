"""Tables as people save them."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from zoo.chem.tables import open_table, smiles_column, table_rows, unique_names
from zoo.errors import DataError, RequestError, UnavailableError


def read(path: Path) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    table = open_table(path)
    return table.names, [row.cells for row in table_rows(table)]


def written(folder: Path, data: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


PLAIN = "smiles,y\nCCO,1\nCCN,2\n"
EXPECTED = (("smiles", "y"), [("CCO", "1"), ("CCN", "2")])


@pytest.mark.parametrize(
    "data",
    [
        PLAIN.encode(),
        b"\xef\xbb\xbf" + PLAIN.encode(),  # byte-order mark, as Excel writes
        PLAIN.encode("utf-16"),
        PLAIN.replace("\n", "\r\n").encode(),
        PLAIN.replace("\n", "\r").encode(),
        PLAIN.replace(",", ";").encode(),
        PLAIN.replace(",", "\t").encode(),
        PLAIN.replace(",", "|").encode(),
        b"sep=;\n" + PLAIN.replace(",", ";").encode(),
        PLAIN.strip().encode(),  # no line end at the end
        b"\n\n" + PLAIN.replace("\n", "\n\n").encode() + b"\n\n",
        b'"smiles","y"\n"CCO","1"\n"CCN","2"\n',
        b" smiles , y\nCCO,1\nCCN,2\n",
        b"smiles,y\nCCO,1,,\nCCN,2,\n",  # empty cells to the right, as spreadsheets leave them
    ],
)
def test_reads_the_same_table(tmp_path: Path, data: bytes) -> None:
    assert read(written(tmp_path, data)) == EXPECTED


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv"])  # the content decides, not the name
def test_reads_gzip(tmp_path: Path, name: str) -> None:
    assert read(written(tmp_path, gzip.compress(PLAIN.encode()), name)) == EXPECTED


def test_tsv_with_more_commas_than_tabs(tmp_path: Path) -> None:
    path = written(tmp_path, "smiles\ta, b, c\nCCO\t1,5\n", "t.tsv")
    assert read(path) == (("smiles", "a, b, c"), [("CCO", "1,5")])


def test_semicolons_with_commas_in_the_header(tmp_path: Path) -> None:
    path = written(tmp_path, "name, trade;smiles\nx;CCO\ny;CCN\n")
    assert read(path) == (("name, trade", "smiles"), [("x", "CCO"), ("y", "CCN")])


def test_quoted_cells_keep_commas_quotes_and_line_breaks(tmp_path: Path) -> None:
    path = written(tmp_path, 'smiles,note\nCCO,"a, ""b""\nc"\nCCN,d\n')
    table = open_table(path)
    rows = list(table_rows(table))
    assert [row.cells for row in rows] == [("CCO", 'a, "b"\nc'), ("CCN", "d")]
    assert [row.line for row in rows] == [2, 4]


def test_latin1(tmp_path: Path) -> None:
    path = written(tmp_path, "smiles,näme,µ\nCCO,Köln,1\n".encode("latin-1"))
    assert read(path) == (("smiles", "näme", "µ"), [("CCO", "Köln", "1")])


def test_a_latin1_cell_far_down_a_utf8_file(tmp_path: Path) -> None:
    data = "smiles,name\n" + "CCO,größe\n" * 5000
    path = written(tmp_path, data.encode() + "CCO,größe\n".encode("latin-1"))
    _, rows = read(path)
    assert {cells[1] for cells in rows} == {"größe"}
    assert len(rows) == 5001


def test_a_quote_never_closed_costs_one_row(tmp_path: Path) -> None:
    rows = [f"C{'C' * (n % 5)},{n}" for n in range(1000)]
    rows[500] = '"CCO,500'
    path = written(tmp_path, "smiles,y\n" + "\n".join(rows) + "\n")
    table = open_table(path)
    found = list(table_rows(table))
    assert len(found) == 1000
    assert [n for n, row in enumerate(found) if row.reason] == [500]
    assert found[500].line == 502
    assert "not closed" in found[500].reason
    assert found[501].cells == ("CC", "501")
    assert [row.line for row in found] == list(range(2, 1002))


@pytest.mark.parametrize("place", [0, 7, 9])
def test_a_quote_never_closed_near_either_end(tmp_path: Path, place: int) -> None:
    rows = [f"CC,{n}" for n in range(10)]
    rows[place] = f'"CC,{place}'
    table = open_table(written(tmp_path, "smiles,y\n" + "\n".join(rows)))
    assert [bool(row.reason) for row in table_rows(table)] == [n == place for n in range(10)]


def test_a_quote_never_closed_before_quoted_rows(tmp_path: Path) -> None:
    table = open_table(written(tmp_path, 'smiles,y\n"CCO,1\n"CC,C",2\n"CCN",3\n'))
    rows = list(table_rows(table))
    assert [bool(row.reason) for row in rows] == [True, False, False]
    assert rows[1].cells == ("CC,C", "2")


def test_text_after_a_closing_quote_is_read_as_others_do(tmp_path: Path) -> None:
    table = open_table(written(tmp_path, 'smiles,y\n"CC"O,1\nCCN,5" pipe\n'))
    rows = list(table_rows(table))
    assert [row.cells for row in rows] == [("CCO", "1"), ("CCN", '5" pipe')]
    assert not any(row.reason for row in rows)


def test_a_cell_of_a_megabyte_costs_one_row(tmp_path: Path) -> None:
    table = open_table(written(tmp_path, f"smiles,y\n{'C' * 1_000_000},1\nCCO,2\n"))
    rows = list(table_rows(table))
    assert [bool(row.reason) for row in rows] == [True, False]


def test_too_many_and_too_few_cells(tmp_path: Path) -> None:
    table = open_table(written(tmp_path, "smiles,y\nCCO,1,2\nCCN\n"))
    many, few = table_rows(table)
    assert many.reason == "3 cells where the header has 2"
    assert few.reason == ""
    assert few.cells == ("CCN", "")
    assert "1 cells where the header has 2" in few.warning


def test_an_empty_quoted_cell_is_a_row_and_a_blank_line_is_none(tmp_path: Path) -> None:
    path = written(tmp_path, 'smiles\nCCO\n""\n   \n\nCCN\n')
    assert read(path) == (("smiles",), [("CCO",), ("",), ("CCN",)])


def test_a_header_without_rows_is_a_table_of_none(tmp_path: Path) -> None:
    assert read(written(tmp_path, "smiles,y\n")) == (("smiles", "y"), [])


@pytest.mark.parametrize("data", [b"", b"\n\r\n  \n", gzip.compress(b"")])
def test_an_empty_file(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DataError, match=r"t\.csv is empty"):
        open_table(written(tmp_path, data))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"PK\x03\x04" + bytes(100), "spreadsheet"),
        (b"\x89PNG\r\n\0\0", "not a text file"),
        (gzip.compress(PLAIN.encode() * 1000)[:-20], "truncated gzip"),
        (b"\x1f\x8b" + b"nonsense" * 10, "damaged"),
    ],
)
def test_what_is_no_table(tmp_path: Path, data: bytes, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read(written(tmp_path, data))


def test_a_gzip_cut_short_far_down_raises_while_reading(tmp_path: Path) -> None:
    text = "smiles,y\n" + "".join(f"CCO,{n * 7919 % 100003}\n" for n in range(50_000))
    data = gzip.compress(text.encode())
    table = open_table(written(tmp_path, data[: len(data) // 2], "t.csv.gz"))
    with pytest.raises(DataError, match="truncated gzip"):
        list(table_rows(table))


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no such file"):
        open_table(tmp_path / "t.csv")
    with pytest.raises((RequestError, UnavailableError), match="folder"):
        open_table(tmp_path)


def test_columns_that_appear_twice_get_names_of_their_own(tmp_path: Path) -> None:
    table = open_table(written(tmp_path, "smiles,y,y,y.1,y\nCCO,1,2,3,4\n"))
    assert table.names == ("smiles", "y", "y.2", "y.1", "y.3")
    assert table.doubles == {"y.2": "y", "y.3": "y"}
    assert [problem.column for problem in table.problems] == ["y", "y"]
    assert all(problem.row is None and problem.line == 1 for problem in table.problems)
    assert next(iter(table_rows(table))).cells == ("CCO", "1", "2", "3", "4")


def test_nameless_columns() -> None:
    assert unique_names(["", "smiles", " "])[0] == ("Unnamed: 0", "smiles", "Unnamed: 2")


def test_the_column_of_smiles() -> None:
    def found(*names: str, asked: str | None = None) -> str:
        return smiles_column(names, asked=asked, where="t.csv")

    assert found("id", "smiles") == "smiles"
    assert found("SMILES", "smiles") == "smiles"
    assert found("id", "SMILES", "canonical_smiles") == "SMILES"
    assert found("id", "canonical_smiles") == "canonical_smiles"
    assert found("mol", "smiles", asked="mol") == "mol"
    with pytest.raises(RequestError, match=r"no column 'SMILE'.*nearest: 'SMILES'\)\n.*'id', 'SMI"):
        found("id", "SMILES", asked="SMILE")
    with pytest.raises(RequestError, match=r"no column named 'smiles'(.|\n)*'id', 'mol'"):
        found("id", "mol")
    with pytest.raises(RequestError, match="several columns"):
        found("a_smiles", "b_smiles")


def test_a_long_table_takes_no_memory(tmp_path: Path) -> None:
    path = written(tmp_path, "smiles,y\n" + "CCCCCCCCCCCO,1.2345678\n" * 100_000)
    table = open_table(path)
    tracemalloc.start()
    count = sum(1 for _ in table_rows(table))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 100_000
    assert peak < 1_000_000
