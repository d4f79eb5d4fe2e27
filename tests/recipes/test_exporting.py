"""Exported models predict what the weights do, say what they take, and refuse what was changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import molecule
from tiny import untrained, zoo_command

import zoo
from zoo.artifact import sha256_file
from zoo.backends import exported, exporting
from zoo.errors import RequestError, UnavailableError, WeightsError
from zoo.recipes.exporting import example_batch

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
FORMS = ["pt2", "aoti", "onnx"]
MOLECULES = ["CH3CH2OH", "C6H6", "H2O", "CH4", "NH3", "HCN", "C2H6", "HCOOH", "C2H4", "CO2"]

if shutil.which("g++") is None:
    FORMS.remove("aoti")


@pytest.fixture(scope="module", params=FORMS)
def file(
    request: pytest.FixtureRequest, trained: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    path = folder / f"model{exporting.SUFFIX[request.param]}"
    told = zoo.export(trained, format=request.param, out=path)
    assert told["file"] == str(path) and told["bytes"] == path.stat().st_size
    return path


def atoms() -> list[Any]:
    return [molecule(name) for name in MOLECULES]


def test_it_predicts_what_the_weights_do(file: Path, trained: Path) -> None:
    model = zoo.load(trained)
    given = atoms() * 9  # several packs
    wanted = model.predict(given)["U0 [eV]"].to_numpy()
    loaded = zoo.load(file)
    found = loaded.predict(given)
    assert loaded.column == "U0 [eV]" and next(iter(found.columns)) == "U0 [eV]"
    assert found["valid"].all()
    scaled = np.abs(wanted).max() * 1e-9
    assert (
        np.abs(found["U0 [eV]"].to_numpy() - wanted).max()
        <= 1e-5 * model.spec.scaling["U0"].std + scaled
    )
    assert len(set(found["U0 [eV]"])) == len(MOLECULES)


def test_the_json_says_what_goes_in_and_comes_out(file: Path, trained: Path) -> None:
    facts = json.loads(Path(f"{file}.json").read_text())
    model = zoo.load(trained)
    assert facts["entry"] == "schnet-qm9.U0" and facts["weights_sha256"] == model.sha256
    assert facts["batch_shape"] == model.spec.batch_shape.model_dump()
    assert facts["units"] == {"pos": "Å", "scaled": "1", "U0": "eV"}
    assert facts["card"]["name"] and facts["properties"][0]["unit"] == "eV"
    names = [i["name"] for i in facts["inputs"]]
    assert {"z", "pos", "src", "dst", "dst_ptr"} <= set(names) and "src_perm" not in names
    assert facts["files"][file.name] == sha256_file(file)
    assert [o["name"] for o in facts["outputs"]] == ["scaled"]
    known = {"1", "6", "7", "8", "9"}
    assert set(facts["unscale"]["per_atom"]) == known


def test_another_shape_type_or_a_missing_input_is_refused(file: Path, trained: Path) -> None:
    step = exported.load(file)
    batch = example_batch(zoo.load(trained).spec)
    assert step(batch)[0].shape == (len(batch["graphs_mask"]), 1)
    with pytest.raises(
        RequestError, match=r"takes pos as float32\[144, 3\], not float64\[144, 3\]"
    ):
        step({**batch, "pos": batch["pos"].double()})
    with pytest.raises(RequestError, match=r"takes z as int32\[144\], not int32\[143\]"):
        step({**batch, "z": batch["z"][:-1]})
    with pytest.raises(RequestError, match="needs the input 'dst_ptr'"):
        step({name: value for name, value in batch.items() if name != "dst_ptr"})


@pytest.mark.parametrize("which", ["", ".npz"])
def test_a_changed_byte_is_refused(file: Path, tmp_path: Path, which: str) -> None:
    for part in file.parent.iterdir():
        shutil.copy(part, tmp_path)
    path = tmp_path / file.name
    changed = path.with_name(path.name + which)
    data = bytearray(changed.read_bytes())
    data[len(data) // 2] ^= 1
    changed.write_bytes(data)
    with pytest.raises(WeightsError, match="isn't the file that was exported"):
        zoo.load(path)
    changed.unlink()
    with pytest.raises(WeightsError, match="is missing"):
        zoo.load(path)


PT2 = """
import json, numpy, sys, torch
batch = numpy.load(sys.argv[1] + ".npz")
names = [n[3:] for n in batch if n.startswith("in.")]
module = torch.export.load(sys.argv[1]).module()
scaled = module(**{n: torch.from_numpy(batch["in." + n]) for n in names}).detach().numpy()
print(json.dumps({"error": float(abs(scaled - batch["out.scaled"]).max())}))
"""


def test_it_runs_in_a_process_without_the_zoo(file: Path, tmp_path: Path) -> None:
    form = json.loads(Path(f"{file}.json").read_text())["form"]
    script = EXAMPLES / f"run_{form}.py"
    if form == "pt2":
        script = tmp_path / "run.py"
        script.write_text(PT2)
    assert len(script.read_text().splitlines()) <= 36
    blocked = ["zoo", *(["torch"] if form == "onnx" else [])]
    start = (
        f"import sys, runpy; sys.modules.update(dict.fromkeys({blocked!r}));"
        f"sys.argv = ['run', {str(file)!r}]; runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", start], capture_output=True, text=True, cwd=file.parent
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["error"] <= 1e-5
    if form == "pt2":
        return
    batch = np.load(f"{file}.npz")
    first = batch["in.batch"] == 0
    given = Atoms(numbers=batch["in.z"][first], positions=batch["in.pos"][first])
    wanted = zoo.load(file).predict(given)["U0 [eV]"].item()
    assert told["unit"] == "eV" and told["values"][0] == pytest.approx(wanted, abs=1e-4)
    real = batch["in.batch"][batch["in.nodes_mask"]]
    assert len(told["values"]) == real.max() + 1


def test_the_commands(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.onnx"
    process = zoo_command(
        *("export", str(trained), "--format", "onnx", "-o", str(out), "--json"), folder=tmp_path
    )
    told, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert json.loads(told)["json"] == f"{out}.json" and err == ""
    process = zoo_command("predict", str(out), "CCO", "--json", folder=tmp_path)
    told, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert json.loads(told)["predictions"][0]["valid"]


def test_what_cannot_be_exported(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RequestError, match="unknown format 'onx'; nearest: 'onnx'"):
        zoo.export(trained, format="onx")
    with pytest.raises(RequestError, match="no trained weights"):
        zoo.export(untrained(), format="pt2")
    with pytest.raises(RequestError, match=r"should end in \.onnx"):
        zoo.export(trained, format="onnx", out=tmp_path / "m.pt2")
    with pytest.raises(RequestError, match="for format ipu"):
        zoo.export(trained, "train.lr=1", format="pt2", out=tmp_path / "m.pt2")
    with pytest.raises(RequestError, match=r"no exported model at .*m\.pt2"):
        zoo.load(tmp_path / "m.pt2")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UnavailableError, match="cannot write"):
        zoo.export(trained, format="pt2", out=file / "m.pt2")
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(UnavailableError, match=r"g\+\+"):
        zoo.export(trained, format="aoti", out=tmp_path / "m.aoti.pt2")
    monkeypatch.setattr(exporting.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r'pip install "gnn-zoo\[onnx\]"'):
        zoo.export(trained, format="onnx", out=tmp_path / "m.onnx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


def test_a_damaged_json_is_refused(file: Path, tmp_path: Path) -> None:
    for part in file.parent.iterdir():
        shutil.copy(part, tmp_path)
    path = tmp_path / file.name
    beside = Path(f"{path}.json")
    whole = json.loads(beside.read_text())
    for wrong in ("{", '{"format": 1}', json.dumps({**whole, "form": "jit"})):
        beside.write_text(wrong)
        with pytest.raises(WeightsError, match="damaged"):
            zoo.load(path)
    beside.write_text(json.dumps({**whole, "format": 99}))
    with pytest.raises(WeightsError, match="format 99"):
        zoo.load(path)
    beside.write_text(json.dumps({**whole, "spec": {"entry": 1}}))
    with pytest.raises(WeightsError, match="damaged spec"):
        zoo.load(path)


def test_the_example_is_a_full_batch_of_known_elements(trained: Path) -> None:
    spec = zoo.load(trained).spec
    batch = example_batch(spec)
    assert batch["z"].shape == (spec.batch_shape.nodes,)
    assert batch["nodes_mask"].sum() > 0.7 * spec.batch_shape.nodes
    assert set(batch["z"].tolist()) <= {0, 1, 6, 7, 8, 9}
    lonely = spec.model_copy(update={"elements": ["Og"]})
    with pytest.raises(RequestError, match="no small molecule of the elements Og"):
        example_batch(lonely)
    assert torch.equal(batch["edges_mask"], batch["src"] < int(batch["nodes_mask"].sum()))
