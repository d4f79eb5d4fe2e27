"""Predictions as tables: nothing lost, nothing out of order, a unit in every name."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from ase import Atoms
from ase.build import molecule
from ase.io import write
from torch_geometric.data import Batch, Data, InMemoryDataset

import zoo
from zoo.chem import read as reading
from zoo.chem.conformers import Conformer
from zoo.errors import DataError, RequestError, UnavailableError
from zoo.recipes import predictions
from zoo.recipes.energy_model import EnergyModel
from zoo.recipes.predictions import predict_file
from zoo.training.memory import PeakMemory

NAMES = ["CH4", "H2O", "NH3", "CH3CH2OH", "C2H6", "CO2", "HCN"]
COLUMN = "U0 [eV]"
ADDED = [COLUMN, "valid", "reason", "warning"]


@pytest.fixture(scope="module")
def model(trained: Path) -> EnergyModel:
    return zoo.load(trained)


@pytest.fixture
def quick_conformers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every SMILES is a water molecule, at once; but for those that begin with "bad"."""
    asked: list[str] = []

    def embed(smiles: Any, **_: Any) -> Conformer:
        asked.append(str(smiles))
        if str(smiles).startswith("bad"):
            raise DataError("RDKit refuses this SMILES")
        water = molecule("H2O")
        return Conformer(
            numbers=water.numbers.astype(np.int32),
            positions=water.positions + len(asked) * 1e-6,
            how="ETKDGv3",
            warnings=(),
        )

    monkeypatch.setattr(reading, "embed", embed)
    return asked


def one_by_one(model: EnergyModel, atoms: list[Atoms]) -> list[float]:
    return [model.predict(a)[COLUMN].item() for a in atoms]


def test_rows_keep_their_order_whatever_packs_they_share(model: EnergyModel) -> None:
    atoms = [molecule(NAMES[n % len(NAMES)]) for n in range(60)]
    rng = np.random.default_rng(0)
    for a in atoms:
        a.rattle(0.02, rng=rng)
    frame = model.predict(atoms)
    assert list(frame.columns) == ADDED and len(frame) == 60
    assert frame["valid"].all() and (frame["reason"] == "").all()
    assert frame[COLUMN].dtype == np.float64
    assert frame[COLUMN].tolist() == pytest.approx(one_by_one(model, atoms), abs=1e-3)
    assert frame[COLUMN].nunique() == 60


def test_energies_are_totals_in_the_cards_unit(model: EnergyModel) -> None:
    [property_] = model.spec.properties
    assert (property_.name, property_.unit) == ("U0", "eV") and "total" in property_.reference
    # Mostly the atoms' shares; these weights know little more.
    refs = model.spec.atom_refs["U0"]
    expected = 2 * refs["C"] + 6 * refs["H"] + refs["O"]
    assert model.predict(molecule("CH3CH2OH"))[COLUMN].item() == pytest.approx(expected, abs=300)


def test_a_mixture_of_bad_and_good_keeps_row_count_and_order(
    model: EnergyModel, quick_conformers: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "in.csv"
    path.write_text("id,smiles\na,O\nb,bad1\nc,\nd,O\ne,bad2\n")
    frame = model.predict(path)
    assert list(frame.columns) == ["id", "smiles", *ADDED]
    assert frame["id"].tolist() == list("abcde")
    assert frame["valid"].tolist() == [True, False, False, True, False]
    assert frame[COLUMN].isna().tolist() == [False, True, True, False, True]
    assert frame["reason"].tolist() == ["", *frame["reason"][1:3], "", frame["reason"][4]]
    assert "RDKit refuses" in frame["reason"][1] and frame["reason"][2] == "an empty cell"
    assert "ETKDGv3" in frame["warning"][0] and "DFT" in frame["warning"][0]
    skipped = model.predict(path, on_error="skip")
    assert skipped["id"].tolist() == ["a", "d"] and skipped["valid"].all()
    with pytest.raises(DataError) as error:
        model.predict(path, on_error="raise")
    assert "row 1, line 3, column 'smiles': 'bad1'" in str(error.value)
    with pytest.raises(RequestError, match="unknown on-error policy 'drop'"):
        model.predict(path, on_error="drop")


def test_an_element_never_seen_is_refused_with_a_reason(model: EnergyModel) -> None:
    frame = model.predict([molecule("H2O"), molecule("SiH4"), molecule("CH4")])
    assert frame["valid"].tolist() == [True, False, True]
    assert "holds Si, which the model never saw" in frame["reason"][1]


def test_a_file_comes_with_a_report_of_what_could_not_be_used(
    model: EnergyModel, quick_conformers: list[str], tmp_path: Path
) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "deep" / "out.csv"
    source.write_text("smiles,id\nO,1\nbad,2\nO,3\n")
    report = predict_file(model=model, source=source, out=out)
    assert (report.rows, report.refused) == (3, 1)
    frame = pd.read_csv(out, keep_default_na=False, na_values={COLUMN: [""]})
    assert list(frame.columns) == ["smiles", "id", *ADDED]
    assert frame["id"].tolist() == [1, 2, 3] and frame[COLUMN].isna().tolist() == [0, 1, 0]
    written = pd.read_csv(tmp_path / "deep" / "out.report.csv")
    assert written.to_dict("records") == [
        {
            "row": 1,
            "line": 3,
            "column": "smiles",
            "value": "bad",
            "reason": "RDKit refuses this SMILES",
        }
    ]
    # A later run without problems leaves no report about this one.
    source.write_text("smiles,id\nO,1\n")
    predict_file(model=model, source=source, out=out)
    assert {path.name for path in out.parent.iterdir()} == {"out.csv"}


def test_an_error_leaves_an_older_output_as_it_was(
    model: EnergyModel, quick_conformers: list[str], tmp_path: Path
) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("smiles\nO\nbad\n")
    out.write_text("precious")
    with pytest.raises(DataError):
        predict_file(model=model, source=source, out=out, on_error="raise")
    assert out.read_text() == "precious"
    assert {path.name for path in tmp_path.iterdir()} == {"in.csv", "out.csv"}


def test_the_input_is_never_overwritten(
    model: EnergyModel, quick_conformers: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "in.csv"
    source.write_text("smiles\nO\n")
    (tmp_path / "link.csv").symlink_to(source)
    for out in (source, tmp_path / "link.csv"):
        with pytest.raises(RequestError, match="is the input: name another file"):
            predict_file(model=model, source=str(source), out=out)
    assert source.read_text() == "smiles\nO\n"


def test_where_it_cannot_write_it_says_so(model: EnergyModel, tmp_path: Path) -> None:
    for name in ("out.txt", "out", "out.csv.gz"):
        with pytest.raises(RequestError, match=r"should end in \.csv or \.parquet"):
            predict_file(model=model, source=molecule("H2O"), out=tmp_path / name)
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="cannot write .*file/out.csv"):
        predict_file(model=model, source=molecule("H2O"), out=tmp_path / "file" / "out.csv")
    with pytest.raises(RequestError, match="no such file"):
        predict_file(model=model, source="absent.csv", out=tmp_path / "out.csv")
    assert {path.name for path in tmp_path.iterdir()} == {"file"}


def test_parquet_holds_the_same(
    model: EnergyModel, quick_conformers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zoo.recipes import predictions

    monkeypatch.setattr(predictions, "ROWS", 4)
    source = tmp_path / "in.csv"
    rows = [f"{'bad' if n % 5 == 3 else 'O'},{n}" for n in range(11)]
    source.write_text("\n".join(["smiles,id", *rows]))
    predict_file(model=model, source=source, out=tmp_path / "out.parquet")
    frame = pd.read_parquet(tmp_path / "out.parquet")
    assert list(frame.columns) == ["smiles", "id", *ADDED] and len(frame) == 11
    assert frame["id"].tolist() == [str(n) for n in range(11)]
    assert frame["valid"].tolist() == [n % 5 != 3 for n in range(11)]
    assert frame["valid"].dtype == bool and frame[COLUMN].dtype == np.float64
    assert (tmp_path / "out.report.csv").exists()
    # A chunk without a single warning, or all bad, changes no column's type.
    source.write_text("\n".join(["smiles,id", *["bad,1"] * 4, "O,2"]))
    predict_file(model=model, source=source, out=tmp_path / "out.parquet")
    assert pd.read_parquet(tmp_path / "out.parquet")["valid"].sum() == 1


def test_the_inputs_own_columns_are_kept_apart_from_ours(
    model: EnergyModel, quick_conformers: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "in.csv"
    path.write_text("smiles,valid,valid (input),U0 [eV],reason\nO,yes,no,-7,none\n")
    frame = model.predict(path)
    assert frame.columns.is_unique and list(frame.columns[-4:]) == ADDED
    assert frame.iloc[0, :5].tolist() == ["O", "yes", "no", "-7", "none"]
    assert frame["valid"].tolist() == [True] and frame["valid (input)"].tolist() == ["no"]
    # And once more, as someone does who predicts from predictions.
    frame.to_csv(tmp_path / "again.csv", index=False)
    again = model.predict(tmp_path / "again.csv")
    assert again.columns.is_unique and list(again.columns[-4:]) == ADDED
    assert again.shape == (1, frame.shape[1] + 4)


def test_molecules_larger_than_the_trained_packs(model: EnergyModel) -> None:
    shape = model.spec.batch_shape
    units = -(-shape.nodes // 3) + 5
    grid = np.stack(np.unravel_index(np.arange(units), (8, 8, 8)), 1) * 3.5
    waters = [molecule("H2O") for _ in range(units)]
    for water, place in zip(waters, grid, strict=True):
        water.translate(place)
    large = sum(waters[1:], waters[0])
    assert len(large) > shape.nodes
    frame = model.predict([molecule("H2O"), large, molecule("CH4")])
    assert frame["valid"].all() and np.isfinite(frame[COLUMN]).all()
    assert f"{len(large)} atoms, where the training molecules have" in frame["warning"][1]
    alone = one_by_one(model, [molecule("H2O"), molecule("CH4")])
    assert frame[COLUMN][[0, 2]].tolist() == pytest.approx(alone, abs=1e-3)


def test_one_molecule_or_none(model: EnergyModel, tmp_path: Path) -> None:
    assert model.predict(Atoms("H", [[0, 0, 0]])).shape == (1, 4)
    assert model.predict(molecule("H2O"))["valid"].tolist() == [True]
    nothing = model.predict([])
    assert list(nothing.columns) == ADDED and len(nothing) == 0
    (tmp_path / "empty.csv").write_text("id,smiles\n")
    empty = model.predict(tmp_path / "empty.csv")
    assert list(empty.columns) == ["id", "smiles", *ADDED] and len(empty) == 0
    for name in ("out.csv", "out.parquet"):
        predict_file(model=model, source=tmp_path / "empty.csv", out=tmp_path / name)
    assert (tmp_path / "out.csv").read_text().strip() == ",".join(["id", "smiles", *ADDED])
    assert len(pd.read_parquet(tmp_path / "out.parquet")) == 0
    (tmp_path / "nothing.csv").touch()
    with pytest.raises(DataError, match=r"nothing\.csv is empty"):
        model.predict(tmp_path / "nothing.csv")
    assert model.embed([]).shape == (0, 32)
    assert model.predict([Atoms()])["reason"].tolist() == ["a molecule without atoms"]


def test_files_of_geometries(model: EnergyModel, tmp_path: Path) -> None:
    atoms = [molecule(name) for name in NAMES]
    expected = one_by_one(model, atoms)
    write(tmp_path / "in.extxyz", atoms)
    assert model.predict(tmp_path / "in.extxyz")[COLUMN].tolist() == pytest.approx(
        expected, abs=1e-3
    )
    with gzip.open(tmp_path / "in.xyz.gz", "wt") as file:
        for a in atoms:
            write(file, a, format="xyz")
    again = model.predict(str(tmp_path / "in.xyz.gz"))
    assert again[COLUMN].tolist() == pytest.approx(expected, abs=1e-2)


def test_pyg_data_and_batches(model: EnergyModel) -> None:
    atoms = [molecule(name) for name in NAMES]
    graphs = [
        Data(
            z=torch.from_numpy(a.numbers.astype(np.int64)),
            pos=torch.from_numpy(a.positions.astype(np.float32)),
        )
        for a in atoms
    ]
    values = one_by_one(model, atoms)
    expected = pytest.approx(values, abs=1e-2)
    assert model.predict(graphs)[COLUMN].tolist() == expected
    assert model.predict(tuple(graphs))[COLUMN].tolist() == expected
    batch = Batch.from_data_list(graphs)
    assert model.predict(batch)[COLUMN].tolist() == expected
    assert model.predict([batch, graphs[0]])[COLUMN].tolist()[:-1] == expected
    assert model.predict(graphs[0])[COLUMN].item() == pytest.approx(values[0], abs=1e-2)
    assert model.embed(batch).shape == (7, 32)

    class Mine(InMemoryDataset):
        def __init__(self) -> None:
            super().__init__()
            self.data, self.slices = self.collate(graphs)

    assert model.predict(Mine())[COLUMN].tolist() == expected
    assert model.predict(Mine()[:2])[COLUMN].tolist() == pytest.approx(values[:2], abs=1e-2)
    with pytest.raises(RequestError, match="PyG graphs need atomic numbers `z` and positions"):
        model.predict(Data(x=torch.zeros(3, 2)))
    with pytest.raises(RequestError, match="PyG graphs need"):
        model.predict([graphs[0], Data(z=torch.ones(3))])


@pytest.mark.parametrize("source", [5, None, {"smiles": ["C"]}, b"C", [1, 2], [[molecule("H2O")]]])
def test_what_is_no_molecule_is_refused(model: EnergyModel, source: Any) -> None:
    with pytest.raises(RequestError) as error:
        model.predict(source)
    assert len(str(error.value).split("\n")) <= 3


def test_a_long_file_takes_no_more_memory(
    model: EnergyModel, quick_conformers: list[str], tmp_path: Path
) -> None:
    def write_rows(count: int) -> Path:
        path = tmp_path / f"{count}.csv"
        with path.open("w") as file:
            file.write("smiles,text\n")
            file.writelines(f"O,{'x' * 2000}{n}\n" for n in range(count))
        return path

    out = tmp_path / "out.csv"
    predict_file(model=model, source=write_rows(5_000), out=out)
    long = write_rows(20_000)
    with PeakMemory(interval=0.02) as memory:
        report = predict_file(model=model, source=long, out=out)
    assert report.rows == 20_000
    assert memory.above_start_mb < 25, "the text alone is 40 MB"
    with out.open() as file:
        assert sum(1 for _ in file) == 20_001


def test_a_number_that_is_none_is_not_valid(model: EnergyModel) -> None:
    broken = model.double()
    with torch.no_grad():
        broken.module.output.bias.fill_(torch.nan)
    frame = broken.predict([molecule("H2O"), Atoms("Xe")])
    assert frame[COLUMN].isna().all() and not frame["valid"].any()
    assert frame["reason"][0] == "the model gives no finite number" != frame["reason"][1]


def test_what_a_dead_process_left_half_written_goes(model: EnergyModel, tmp_path: Path) -> None:
    left = tmp_path / ".out.csv.partial-999999"
    left.touch()
    predict_file(model=model, source=molecule("H2O"), out=tmp_path / "out.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.parametrize("source", ["", "  ", ".", "./here"])
def test_a_folder_or_nothing_is_no_smiles(
    model: EnergyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "CO").touch()
    with pytest.raises(RequestError):
        model.predict(source)
    assert model.predict("CO")["valid"].all()


def test_a_long_prediction_says_how_far_it_is(
    model: EnergyModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(predictions, "SAID_EVERY", 0.0)
    monkeypatch.setattr(predictions, "ROWS", 2)
    predict_file(model=model, source=[molecule("H2O")] * 5, out=tmp_path / "out.csv")
    said = capsys.readouterr().err.splitlines()
    assert said == ["2 rows predicted", "4 rows predicted", "5 rows predicted"]
