"""Predictions from bonds: every row kept in its place, named, warned of, in constant memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem
from tables import base, smiles, table

import zoo
from zoo.chem import pool
from zoo.chem.report import Report
from zoo.errors import DataError, RequestError
from zoo.recipes import finetune_results
from zoo.recipes.predictions import predict_file
from zoo.recipes.property_model import PropertyModel

pytestmark = pytest.mark.usefixtures("cache")
COLUMN = "logS [log mol/L]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("tuned")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune_results, "save_plots", lambda *_: [])
        patch.setenv("ZOO_CACHE", str(place / "cache"))
        zoo.finetune(
            base(place),
            data=_csv(place),
            labels=[COLUMN],
            folder=place / "run",
            epochs=2,
            split="random",
            tracking=False,
            scratch=False,
            forest=False,
        )
    yield place / "run"


def _csv(place: Path) -> Path:
    table().to_csv(place / "mine.csv", index=False)
    return place / "mine.csv"


@pytest.fixture
def model(folder: Path) -> PropertyModel:
    found = zoo.load(folder)
    assert isinstance(found, PropertyModel)
    return found


def test_rows_keep_place_columns_and_say_what_is_wrong(
    model: PropertyModel, tmp_path: Path
) -> None:
    path = tmp_path / "in.csv"
    path.write_text(
        'valid;smiles;similarity\nfirst;"CCO";a\nsecond;C1CC;b\nthird;;c\nfourth;[U];d\n'
        "fifth;c1ccccc1C;e\n"
    )
    report = predict_file(model=model, source=path, out=tmp_path / "out.csv")
    found = pd.read_csv(tmp_path / "out.csv")
    assert found["valid (input)"].tolist() == ["first", "second", "third", "fourth", "fifth"]
    assert found["similarity (input)"].tolist() == list("abcde")
    assert found["valid"].tolist() == [True, False, False, False, True]
    assert found[COLUMN].notna().tolist() == found["valid"].tolist()
    told = pd.read_csv(tmp_path / "out.report.csv")
    assert told["row"].tolist() == [1, 2, 3] and told["line"].tolist() == [3, 4, 5]
    assert [r.split(":")[0] for r in told["reason"][:2]] == [
        "RDKit refuses this SMILES",
        "an empty cell",
    ]
    assert (report.rows, report.refused) == (5, 3)
    assert found["similarity"].iloc[4] == 1 and found["similarity"].iloc[1:4].isna().all()


def test_rows_may_be_left_out_or_end_it(model: PropertyModel) -> None:
    given = ["CCO", "C1CC", "CCC"]
    left = model.predict(given, on_error="skip")
    assert left["smiles"].tolist() == ["CCO", "CCC"] and left["valid"].all()
    assert left[COLUMN].tolist() == pytest.approx(model.predict(["CCO", "CCC"])[COLUMN].tolist())
    with pytest.raises(DataError, match=r"row 1[\s\S]*C1CC"):
        model.predict(given, on_error="raise")


def test_molecules_unlike_the_training_data_are_warned_of(model: PropertyModel) -> None:
    found = model.predict(["C" * 60, "CCc1ccccc1", "FC(F)(F)C(F)(F)F"])
    assert "60 atoms, where the training molecules have" in found["warning"][0]
    assert "unlike all training molecules: similarity" in found["warning"][2]
    assert found["warning"][1] == ""


def test_intervals_and_values_are_those_of_the_network(model: PropertyModel) -> None:
    texts = smiles(9)
    found = model.predict(texts)
    values = found[COLUMN].to_numpy()
    low, high = (found[f"logS {end} 90% [log mol/L]"].to_numpy() for end in ("low", "high"))
    assert (high - values) == pytest.approx(values - low) and (high > low).all()
    assert model.embed(texts).shape == (9, 8)
    assert model.predict(list(reversed(texts)))[COLUMN].tolist() == pytest.approx(
        list(reversed(values.tolist()))
    )


def test_mols_tables_and_files_give_the_same(model: PropertyModel, tmp_path: Path) -> None:
    texts = smiles(6)
    expected = model.predict(texts)[COLUMN].to_numpy()
    mols = [Chem.MolFromSmiles(text) for text in texts]
    with Chem.SDWriter(str(tmp_path / "in.sdf")) as writer:
        for mol in mols:
            writer.write(mol)
    (tmp_path / "in.smi").write_text("\n".join(f"{t} name{n}" for n, t in enumerate(texts)))
    for source in (mols, pd.DataFrame({"SMILES": texts}), tmp_path / "in.sdf", tmp_path / "in.smi"):
        assert model.predict(source)[COLUMN].to_numpy() == pytest.approx(expected, abs=1e-6)


def test_geometries_without_bonds_are_refused_by_row(model: PropertyModel) -> None:
    from ase.build import molecule

    found = model.predict([molecule("H2O"), "CCO"])
    assert found["valid"].tolist() == [False, True]
    assert "says nothing of bonds" in found["reason"][0]


def test_an_empty_input_has_the_same_columns(model: PropertyModel, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("smiles,name\n")
    found = model.predict(tmp_path / "in.csv")
    assert len(found) == 0 and set(model.predict(["CCO"]).columns) <= {*found.columns, "smiles"}
    assert list(found.columns[:2]) == ["smiles", "name"]


def test_an_input_is_read_as_it_goes_and_processes_change_nothing(
    model: PropertyModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    texts = [*smiles(90), "broken", ""] * 3
    whole = model.predict(texts, workers=1)
    monkeypatch.setattr(pool, "CHUNK", 50)
    monkeypatch.setattr(pool, "FEW", 100)
    frames = model.predict_frames(texts, workers=2)
    first = next(frames)
    assert len(first) == 50
    parts = pd.concat([first, *frames], ignore_index=True)
    assert parts[COLUMN].to_numpy() == pytest.approx(whole[COLUMN].to_numpy(), nan_ok=True)
    assert parts["reason"].tolist() == whole["reason"].tolist()
    predict_file(model=model, source=pd.DataFrame({"smiles": texts}), out=tmp_path / "o.parquet")
    assert len(pd.read_parquet(tmp_path / "o.parquet")) == len(texts)


def test_a_network_that_gives_no_number_is_told_of(model: PropertyModel) -> None:
    with torch.no_grad():
        model.module.output.bias.fill_(float("nan"))  # type: ignore[union-attr]
    with Report() as report:
        (found,) = model.predict_frames(["CCO"], report=report)
    assert not found["valid"][0] and "no finite number" in found["reason"][0]
    assert report.refused == 1


@pytest.mark.parametrize("form", ["pt2", "onnx"])
def test_an_exported_model_predicts_the_same(form: str, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime") if form == "onnx" else None
    path = tmp_path / f"m.{form}"
    zoo.export(folder, format=form, out=path)
    exported, own = zoo.load(path), zoo.load(folder)
    texts = [*smiles(40), "C1CC"]
    found, expected = exported.predict(texts), own.predict(texts)
    columns = [c for c in expected.columns if "log mol/L" in c]
    assert len(columns) == 3
    for column in columns:
        assert found[column].to_numpy() == pytest.approx(
            expected[column].to_numpy(), rel=1e-5, abs=1e-6, nan_ok=True
        )
    assert isinstance(exported, PropertyModel)
    with pytest.raises(RequestError, match="exported file"):
        exported.reset_head()
    with pytest.raises(RequestError, match="can't embed"):
        exported.embed(["CCO"])


def test_several_networks_are_not_exported_as_one(folder: Path, tmp_path: Path) -> None:
    own: Any = zoo.load(folder)
    from zoo.artifact import write_weights
    from zoo.recipes.property_spec import member_tensors, with_members

    state = own.module.state_dict()
    path = tmp_path / "two.safetensors"
    write_weights(path=path, tensors=member_tensors([state] * 2), spec=with_members(own.spec, 2))
    found = zoo.predict(path, ["CCO"])
    assert found["logS std [log mol/L]"][0] == 0
    assert np.isfinite(found[COLUMN][0])
    with pytest.raises(RequestError, match="the mean of 2 networks"):
        zoo.export(path, format="pt2", out=tmp_path / "x.pt2")
