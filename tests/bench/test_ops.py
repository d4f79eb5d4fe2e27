"""`zoo bench ops` at tiny sizes: agreement of forms, arithmetic, files; never times."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
import torch
from PIL import Image

from zoo.bench import ops, ops_forms
from zoo.errors import RequestError, ZooError

TINY = {"inputs": [16, 64], "features": [16], "outputs": [32]}


@pytest.mark.parametrize("op", ops_forms.OPS)
@pytest.mark.parametrize("shape", [(16, 16, 32), (64, 16, 1024), (1024, 64, 32)])
def test_all_forms_of_a_case_agree(op, shape):
    inputs, features, outputs = shape
    case = ops_forms.make(op, inputs=inputs, features=features, outputs=outputs)
    ops_forms.check(case)
    assert case.moved > 0 and len(case.eager) >= 1
    wrong = case.eager.copy()
    wrong["wrong"] = lambda: next(iter(case.eager.values()))() + 1
    case.eager = wrong
    with pytest.raises(AssertionError, match="wrong is off"):
        ops_forms.check(case)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    out = tmp_path_factory.mktemp("ops") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "LARGE", 32 * 16)
        found = ops.bench_ops(
            grid=TINY, repeats=2, turn_ms=0.01, compile=False, out=out, track=False, force=True
        )
    return out, found


def test_rows_and_summaries_are_consistent(result):
    _, found = result
    json.dumps(found)
    assert len(found["rows"]) == 2 * len(ops_forms.OPS)
    for row in found["rows"]:
        assert row["eager_s"] == min(row["forms_s"].values()) == row["forms_s"][row["eager_form"]]
        fastest = min(s for s in (row["eager_s"], row["ours_s"]) if s)
        assert row["gb_per_s"] == pytest.approx(row["bytes"] / fastest / 1e9)
        assert row["intensity"] == row["flops"] / row["bytes"]
        if row["ours_s"]:
            assert row["speedup"] == row["eager_s"] / row["ours_s"]
        assert row["compiled_s"] is None
    for op, summary in found["summary"].items():
        mine = [r["speedup"] for r in found["rows"] if r["op"] == op and r["speedup"]]
        if op == "gather":
            assert summary == {"points": 2}
            continue
        mean = math.exp(sum(map(math.log, mine)) / 2)
        assert summary["geomean_speedup"] == pytest.approx(mean)
        assert summary["worst"] == min(mine) and summary["large_points"] == 2
    assert {row["op"] for row in found["published_elsewhere"]} == {
        *("gather", "scatter_sum", "schnet_block")
    }
    text = ops.render(found)
    assert "published elsewhere, gather" in text and "worst" in text


def test_the_files_can_be_read(result):
    out, found = result
    with (out / "ops.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found["rows"]) and float(rows[0]["eager_s"]) > 0
    names = {Path(path).name for path in found["files"]}
    assert names == {"ops.csv", "speed-up.png", "bandwidth.png", "roofline.png"}
    for name in names - {"ops.csv"}:
        with Image.open(out / name) as image:
            assert image.width > 600 and len(image.getcolors(1 << 24)) > 20


def test_another_machines_csv_is_laid_beside(result, tmp_path):
    out, _ = result
    found = ops.bench_ops(
        ops=["gather", "scatter_sum"],
        grid=TINY,
        repeats=1,
        turn_ms=0.01,
        compile=False,
        reference=out / "ops.csv",
        force=True,
    )
    for row in found["rows"]:
        assert row["speedup_over_reference"] == row["reference_s"] / (
            row["ours_s"] or row["eager_s"]
        )
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("a,b\n1,2\n")
    with pytest.raises(RequestError, match="isn't a CSV of `zoo bench ops`"):
        ops.bench_ops(reference=wrong, force=True)
    with pytest.raises(RequestError, match="cannot read"):
        ops.bench_ops(reference=tmp_path / "none.csv", force=True)


def test_it_is_tracked(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'm.db'}")
    found = ops.bench_ops(
        ops=["gather"],
        grid={**TINY, "inputs": [16]},
        repeats=1,
        turn_ms=0.01,
        compile=False,
        out=tmp_path / "out",
        force=True,
    )
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'm.db'}")
    run = client.get_run(found["run_id"])
    assert run.data.metrics["gather/points"] == 1
    assert {a.path for a in client.list_artifacts(run.info.run_id)} >= {"ops.csv", "roofline.png"}


def test_senseless_requests_and_busy_cores(monkeypatch):
    with pytest.raises(RequestError, match="no op 'gatter'"):
        ops.bench_ops(ops=["gatter"])
    with pytest.raises(RequestError):
        ops.bench_ops(repeats=0)

    def busy(*, force):
        raise ZooError("busy")

    monkeypatch.setattr(ops, "check_quiet", busy)
    with pytest.raises(ZooError, match="busy"):
        ops.bench_ops(grid=TINY)


def test_the_full_grid_is_the_published_one():
    sizes = [len(ops.GRID[name]) for name in ("inputs", "features", "outputs")]
    assert math.prod(sizes) == 594
    assert all(set(ops.QUICK[name]) <= set(ops.GRID[name]) for name in ops.GRID)
    assert (
        torch.tensor(
            [
                max(i, o) * f
                for i in ops.QUICK["inputs"]
                for f in (16, 512)
                for o in ops.QUICK["outputs"]
            ]
        )
        .ge(ops.LARGE)
        .any()
    )
