"""One stream of rows from every kind of input: order and count kept, each invalid row with its
reason.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import ase
import ase.build
import numpy as np
import pandas as pd
import pytest
from rdkit import Chem, rdBase
from rdkit.Chem import rdDepictor, rdDistGeom

from zoo.chem.molecule import ETKDG, GIVEN, Molecule
from zoo.chem.read import Molecules, read_molecules
from zoo.errors import DataError, RequestError

BROKEN = ["CCO", "CC(C", "", "C", "[Xx]", "*", "N"]
BROKEN_VALID = [True, False, False, True, False, False, True]


def valid(molecules: Molecules) -> list[bool]:
    return [molecule.valid for molecule in molecules]


def one(source: object) -> Molecule:
    (molecule,) = read_molecules(source)
    return molecule


def test_one_and_several_atoms() -> None:
    ethanol = ase.build.molecule("CH3CH2OH")
    ethanol.info = {"id": "a", "U0": np.float64(-4217.3), "array": np.zeros(3)}
    row = one(ethanol)
    assert row.valid
    assert (row.row, row.line, row.how) == (0, None, GIVEN)
    assert row.columns == {"id": "a", "U0": -4217.3}
    np.testing.assert_array_equal(row.numbers, ethanol.numbers)
    np.testing.assert_array_equal(row.positions, ethanol.positions)
    assert row.numbers.dtype == np.int32
    both = read_molecules([ethanol, ase.build.molecule("H2O")])
    assert [len(row.numbers) for row in both] == [9, 3]
    assert both.count == 2


def test_what_is_read_is_a_copy() -> None:
    water = ase.build.molecule("H2O")
    row = one(water)
    water.positions += 1
    assert not np.allclose(row.positions, water.positions)


def test_smiles_alone_and_in_a_list_keep_their_order() -> None:
    assert one("CCO").columns == {"smiles": "CCO"}
    rows = list(read_molecules(BROKEN))
    assert [row.row for row in rows] == list(range(7))
    assert [row.valid for row in rows] == BROKEN_VALID
    assert rows[2].reason == "an empty cell"
    assert rows[1].problem is not None
    assert (rows[1].problem.column, rows[1].problem.value) == ("smiles", "CC(C")
    assert all(row.numbers.shape == (0,) and row.positions.shape == (0, 3) for row in rows[1:3])
    assert rows[0].how == ETKDG


def test_mixtures_and_missing_items() -> None:
    mol = Chem.MolFromSmiles("CO")
    rows = read_molecules([ase.build.molecule("H2O"), "C", None, float("nan"), pd.NA, mol])
    assert [len(row.numbers) for row in rows] == [3, 5, 0, 0, 0, 6]


def test_generators_and_series() -> None:
    assert valid(read_molecules(s for s in BROKEN)) == BROKEN_VALID
    assert valid(read_molecules(pd.Series(BROKEN))) == BROKEN_VALID
    assert valid(read_molecules(np.array(BROKEN))) == BROKEN_VALID
    assert valid(read_molecules([])) == []


def test_the_stream_can_be_gone_through_again() -> None:
    molecules = read_molecules(BROKEN)
    assert valid(molecules) == valid(molecules) == BROKEN_VALID


def test_the_seed_reaches_the_conformer() -> None:
    def positions(seed: int) -> np.ndarray:
        (row,) = read_molecules("CCCO", seed=seed)
        return row.positions

    np.testing.assert_array_equal(positions(1), positions(1))
    assert not np.allclose(positions(1), positions(2))


def test_a_molecule_that_takes_for_ever_is_a_row_with_a_reason() -> None:
    endless = "N[C@@H](C)C(=O)" * 200 + "O"
    rows = list(read_molecules(["C", endless, "CC"], conformer_seconds=1.0))
    assert [row.valid for row in rows] == [True, False, True]
    assert "no conformer within 1 s" in rows[1].reason


# --- hostile Atoms


def atoms(positions: list[list[float]], symbols: str = "H2", **more: object) -> ase.Atoms:
    return ase.Atoms(symbols, positions=positions, **more)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (ase.Atoms(), "without atoms"),
        (atoms([[0, 0, 0], [0, 0, np.nan]]), r"position of atom 2 is not finite \(0 0 nan\)"),
        (atoms([[0, 0, -np.inf], [0, 0, 0]]), "position of atom 1 is not finite"),
        (atoms([[0, 0, 0], [0, 0, 0]]), "atoms 1 and 2 are at the same place"),
        (atoms([[0, 0, 0], [0, 0, 0.7]], pbc=True, cell=[9, 9, 9]), "periodic"),
        (atoms([[0, 0, 0], [0, 0, 0.7]], pbc=[0, 0, 1], cell=[9, 9, 9]), "periodic"),
        (atoms([[0, 0, 0], [0, 0, 0.7]], symbols="XH"), "atom 1 is not an element"),
    ],
)
def test_atoms_that_no_model_can_take(broken: ase.Atoms, says: str) -> None:
    rows = list(read_molecules([ase.build.molecule("H2O"), broken, ase.build.molecule("NH3")]))
    assert [row.valid for row in rows] == [True, False, True]
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(rows[1].reason)


def test_two_atoms_at_the_same_place_among_many() -> None:
    grid = np.stack(np.meshgrid(*[np.arange(9.0)] * 3), axis=-1).reshape(-1, 3)
    grid[700] = grid[3] + 0.01
    assert "atoms 4 and 701 are at the same place" in one(ase.Atoms("H729", grid)).reason


# --- tables


def table(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "T.CSV"])
def test_a_table_keeps_rows_columns_and_lines(tmp_path: Path, name: str) -> None:
    lines = "".join(f"{place},{s},x\n" for place, s in enumerate(BROKEN))
    molecules = read_molecules(str(table(tmp_path, f"id,smiles,y\n{lines}", name)))
    assert molecules.names == ("id", "smiles", "y")
    rows = list(molecules)
    assert [row.columns["id"] for row in rows] == [str(place) for place in range(7)]
    assert [row.line for row in rows] == list(range(2, 9))
    assert [row.valid for row in rows] == BROKEN_VALID
    assert rows[2].problem is not None
    assert (rows[2].problem.row, rows[2].problem.line) == (2, 4)


def test_the_column_can_be_named_and_a_missing_one_is_said(tmp_path: Path) -> None:
    path = table(tmp_path, "id,structure\n1,CCO\n")
    assert valid(read_molecules(path, smiles="structure")) == [True]
    with pytest.raises(RequestError, match=r"t\.csv(.|\n)*'id', 'structure'"):
        read_molecules(path)
    with pytest.raises(RequestError, match="no column 'smiles' in the DataFrame"):
        read_molecules(pd.DataFrame({"mol": ["C"]}), smiles="smiles")


def test_a_broken_row_of_a_table_is_a_row_with_a_reason(tmp_path: Path) -> None:
    path = table(tmp_path, 'smiles,y\nCCO,1\n"CC,2\nCC,3,4\nC\n')
    rows = list(read_molecules(path))
    assert [row.valid for row in rows] == [True, False, False, True]
    assert "not closed" in rows[1].reason
    assert "3 cells where the header has 2" in rows[2].reason
    assert "1 cells where the header has 2" in rows[3].warnings[0]


def test_a_frame_keeps_its_values() -> None:
    frame = pd.DataFrame({"y": [1.5, 2, 3], "smiles": ["C", None, np.nan]}, index=[7, 7, 9])
    molecules = read_molecules(frame)
    rows = list(molecules)
    assert (molecules.names, molecules.count) == (("y", "smiles"), 3)
    assert [row.valid for row in rows] == [True, False, False]
    assert rows[0].columns == {"y": 1.5, "smiles": "C"}
    assert rows[1].reason == rows[2].reason == "an empty cell"


def test_a_column_that_appears_twice_is_reported_and_kept() -> None:
    frame = pd.DataFrame([["C", 1, 2]], columns=["smiles", "y", "y"])
    molecules = read_molecules(frame)
    assert molecules.names == ("smiles", "y", "y.1")
    assert [problem.column for problem in molecules.problems] == ["y"]
    assert valid(molecules) == [True]
    with pytest.raises(DataError, match="column appears again"):
        read_molecules(frame, on_error="raise")


def test_two_columns_of_smiles_that_differ() -> None:
    frame = pd.DataFrame([["C", "C"], ["C", "CC"]], columns=["smiles", "smiles"])
    rows = list(read_molecules(frame))
    assert [row.valid for row in rows] == [True, False]
    assert "two columns are called 'smiles', and here they differ" in rows[1].reason


def test_smi(tmp_path: Path) -> None:
    path = table(tmp_path, "smiles name\nCCO ethyl alcohol\r\n\nCC(C\tbroken\nC\n", "t.smi.gz")
    molecules = read_molecules(path)
    rows = list(molecules)
    assert molecules.names == ("smiles", "name")
    assert [dict(row.columns) for row in rows] == [
        {"smiles": "CCO", "name": "ethyl alcohol"},
        {"smiles": "CC(C", "name": "broken"},
        {"smiles": "C"},
    ]
    assert [row.line for row in rows] == [2, 4, 5]
    assert [row.valid for row in rows] == [True, False, True]
    assert read_molecules(table(tmp_path, "C\nCC\n", "u.smi")).names == ("smiles",)


# --- SDF


def mol_block(smiles: str, *, flat: bool = False, hydrogens: bool = True) -> str:
    mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
    if flat:
        mol = Chem.RemoveHs(mol)
        rdDepictor.Compute2DCoords(mol)
    else:
        rdDistGeom.EmbedMolecule(mol, randomSeed=1)
        mol = mol if hydrogens else Chem.RemoveHs(mol)
    return Chem.MolToMolBlock(mol)


def sdf(folder: Path, *records: str, name: str = "t.sdf") -> Path:
    return table(folder, "".join(f"{record}$$$$\n" for record in records), name)


@pytest.mark.parametrize("name", ["t.sdf", "t.sdf.gz"])
def test_sdf_geometry_and_fields(tmp_path: Path, name: str) -> None:
    first = "ethanol" + mol_block("CCO") + "> <logS> (1)\n-0.1\n\n> 25 <note>\ntwo\nlines\n\n"
    second = mol_block("C") + ">  <id>\n7\n\n"
    molecules = read_molecules(sdf(tmp_path, first, second, name=name))
    assert molecules.names == ("name", "logS", "note", "id")
    rows = list(molecules)
    assert rows[0].columns == {"name": "ethanol", "logS": "-0.1", "note": "two\nlines"}
    assert rows[1].columns == {"id": "7"}
    assert [(len(row.numbers), row.how, row.warnings) for row in rows] == [
        (9, GIVEN, ()),
        (5, GIVEN, ()),
    ]
    assert [row.line for row in rows] == [1, first.count("\n") + 2]


def test_a_drawing_is_no_geometry(tmp_path: Path) -> None:
    row = one(sdf(tmp_path, mol_block("CCO", flat=True)))
    assert (len(row.numbers), row.how) == (9, ETKDG)
    assert "a drawing (2D), not a geometry" in row.warnings[0]


def test_a_drawing_flagged_as_a_geometry_is_seen_through(tmp_path: Path) -> None:
    row = one(sdf(tmp_path, mol_block("CCO", flat=True).replace("2D", "3D")))
    assert row.how == ETKDG
    assert "in one plane" in row.warnings[0]


def test_a_molecule_that_is_flat_keeps_its_geometry(tmp_path: Path) -> None:
    benzene = ase.build.molecule("C6H6")
    assert not benzene.positions[:, 2].any()
    mol = Chem.AddHs(Chem.MolFromSmiles("c1ccccc1"))
    conformer = Chem.Conformer(12)
    conformer.Set3D(True)
    for place, position in enumerate(benzene.positions):
        conformer.SetAtomPosition(place, position)
    mol.AddConformer(conformer)
    row = one(sdf(tmp_path, Chem.MolToMolBlock(mol)))
    assert row.how == GIVEN
    np.testing.assert_allclose(row.positions, benzene.positions, atol=1e-4)


def test_missing_hydrogens_are_added_with_a_warning(tmp_path: Path) -> None:
    row = one(sdf(tmp_path, mol_block("CCO", hydrogens=False)))
    assert (len(row.numbers), row.how) == (9, GIVEN)
    assert "6 hydrogens were missing" in row.warnings[0]


def test_a_charge_is_said(tmp_path: Path) -> None:
    assert "net charge +1" in one(sdf(tmp_path, mol_block("[NH4+]"))).warnings[0]


def test_hostile_records_cost_a_row_each(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    good = mol_block("CCO")
    bad = {
        good.replace("  9  8", "  9 xx"): "Cannot convert",
        "garbage\n": "refuses this mol block",
        "": "refuses this mol block",
        good.split("M  END")[0]: "unexpected blank line|refuses",
        good.replace(" C ", " Jj", 1): "Element 'Jj' not found",
        good.replace(" C ", " R#", 1): "not an element",
        good.replace("  1  2  1", "  1  2  3", 1): "Explicit valence",
        "\n\n\n  0  0  0  0  0  0  0  0  0  0999 V2000\nM  END\n": "without atoms",
        mol_block("C").replace(
            mol_block("C").split("\n")[4][:30], " " * 7 + "nan" + " " * 20
        ): "Cannot process coordinates on line 5",
    }
    path = sdf(tmp_path, good, *bad, good)
    rows = list(read_molecules(path))
    assert [row.valid for row in rows] == [True] + [False] * len(bad) + [True]
    for row, says in zip(rows[1:-1], bad.values(), strict=True):
        with pytest.raises(AssertionError, match=says):
            raise AssertionError(row.reason)
    assert capfd.readouterr().err == ""


def test_rdkit_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = sdf(tmp_path, "garbage\n", mol_block("CCO").replace("  9  8", "  9 xx"))
    assert valid(read_molecules(path)) == [False, False]
    assert capfd.readouterr().err == ""
    Chem.MolFromSmiles("xyz")
    assert "xyz" in capfd.readouterr().err  # and it may print again afterwards
    assert rdBase.rdkitVersion


def test_a_mol_file_without_an_end_mark(tmp_path: Path) -> None:
    assert len(one(table(tmp_path, mol_block("CCO"), "t.mol")).numbers) == 9


# --- xyz


def test_xyz_and_extended_xyz(tmp_path: Path) -> None:
    text = (
        "3\nwater, by hand\nO 0 0 0.12\nH 0 0.76 -0.48\n1 0 -0.76 -0.48 0.3\n"
        '2\nProperties=species:S:1:pos:R:3 energy=-31.5 id="a b" pbc="F F F"\n'
        "H 0 0 0\nH 0 0 0.74\n\n"
    )
    molecules = read_molecules(table(tmp_path, text, "t.xyz.gz"))
    rows = list(molecules)
    assert molecules.names == ("comment", "energy", "id")
    assert rows[0].columns == {"comment": "water, by hand"}
    assert rows[1].columns == {"energy": -31.5, "id": "a b"}
    assert [row.numbers.tolist() for row in rows] == [[8, 1, 1], [1, 1]]
    assert [row.line for row in rows] == [1, 6]
    assert rows[1].positions[1].tolist() == [0, 0, 0.74]


def test_what_ase_writes_is_read_back(tmp_path: Path) -> None:
    written = [ase.build.molecule(name) for name in ("CH3CH2OH", "C6H6", "H2O")]
    for suffix in ("xyz", "extxyz"):
        path = tmp_path / f"t.{suffix}"
        ase.io.write(path, written)
        for row, atoms in zip(read_molecules(path), written, strict=True):
            assert row.how == GIVEN
            np.testing.assert_array_equal(row.numbers, atoms.numbers)
            np.testing.assert_allclose(row.positions, atoms.positions, atol=1e-8)


def test_hostile_frames_cost_a_row_each(tmp_path: Path) -> None:
    good = "2\n\nH 0 0 0\nH 0 0 0.74\n"
    head = "Properties=species:S:1:pos:R:3"
    bad = {
        "3\n\nH 0 0 0\nH 0 0 0.74\n": "2 lines of atoms where 3",
        "1\n\nH 0 0 0\nH 0 0 0.74\n": "2 lines of atoms where 1",
        "2\n\nH 0 0 0\nH 0 0 x\n": "atom 2 is not 'symbol x y z'",
        "2\n\nH 0 0 0\nH 0 0\n": "atom 2 is not 'symbol x y z'",
        "2\n\nH 0 0 0\nQq 0 0 1\n": "atom 2 is not an element",
        "2\n\nH 0 0 0\nH 0 0 nan\n": "not finite",
        "0\n\n": "without atoms",
        f'2\n{head} pbc="T T T" Lattice="5 0 0 0 5 0 0 0 5"\nH 0 0 0\nH 0 0 1\n': "periodic",
        f"2\n{head}:forces:R:3\nH 0 0 0\nH 0 0 1\n": "not extended xyz",
        f'2\n{head} a="\nH 0 0 0\nZz 0 0 1\n': "not extended xyz",
        "999999999999\n\nH 0 0 0\n": "1 lines of atoms where 999999999999",
    }
    path = table(tmp_path, good + "".join(bad) + good, "t.xyz")
    rows = list(read_molecules(path))
    assert [row.valid for row in rows] == [True] + [False] * len(bad) + [True]
    for row, says in zip(rows[1:-1], bad.values(), strict=True):
        with pytest.raises(AssertionError, match=says):
            raise AssertionError(row.reason)
    assert rows[-1].line == 1 + 4 + sum(text.count("\n") for text in bad)


def test_a_file_that_begins_with_something_else(tmp_path: Path) -> None:
    rows = list(read_molecules(table(tmp_path, "hello\nworld\n2\n\nH 0 0 0\nH 0 0 1\n", "t.xyz")))
    assert [row.valid for row in rows] == [False, True]
    assert "begins with the number of its atoms" in rows[0].reason


def test_a_comment_may_be_a_number(tmp_path: Path) -> None:
    assert one(table(tmp_path, "2\n2\nH 0 0 0\nH 0 0 1\n", "t.xyz")).columns == {"comment": "2"}


# --- policies and requests


def test_policies() -> None:
    rows = list(read_molecules(BROKEN, on_error="skip"))
    assert [row.row for row in rows] == [0, 3, 6]
    stream = iter(read_molecules(BROKEN, on_error="raise"))
    assert next(stream).valid
    with pytest.raises(DataError, match=r"RDKit refuses(.|\n)*row 1, column 'smiles': 'CC\(C'"):
        next(stream)
    with pytest.raises(RequestError, match="'skipp'; nearest: 'skip'"):
        read_molecules(BROKEN, on_error="skipp")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("no/such/file.csv", "no such file: no/such/file.csv"),
        ("missing.sdf.gz", "no such file"),
        (Path("t.docx"), r"cannot read molecules from t.docx.*\.csv .*\.xyz"),
        (3, "cannot read molecules from int"),
        (b"CCO", "from bytes"),
        ({"smiles": ["C"]}, "from dict"),
        (["C", 3], "item 1 of the input is a int"),
    ],
)
def test_what_molecules_cannot_be_read_from(source: object, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        read_molecules(source)


def test_a_column_of_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="none: 'x'"):
        read_molecules(["C"], smiles="x")
    with pytest.raises(RequestError, match="none: 'x'"):
        read_molecules(table(tmp_path, "C\n", "t.smi"), smiles="x")


@pytest.mark.parametrize("name", ["t.csv", "t.smi", "t.sdf", "t.xyz", "t.sdf.gz"])
def test_an_empty_file_says_so_at_once(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="is empty"):
        read_molecules(table(tmp_path, "", name))


def test_a_smiles_that_looks_a_little_like_a_path() -> None:
    assert one("F/C=C/F").valid
    assert one("[Na+].[Cl-]").valid
    assert not one("C.C.sdx").valid
