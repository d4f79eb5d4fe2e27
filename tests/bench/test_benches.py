"""Whole benches at tiny sizes: their keys and their arithmetic, never their times."""

from __future__ import annotations

import json

import pytest

from zoo.bench import backends, batching, gpu, memory, startup, train
from zoo.errors import RequestError, ZooError

TINY = {"preset": "smoke", "force": True, "repeats": 2}


@pytest.mark.slow
def test_training_against_pyg():
    result = train.bench_train(
        seconds=0.02, batch_sizes=(8, 4), pack_sizes=(6,), molecules=30, **TINY
    )
    json.dumps(result)
    assert result["entry"] == "schnet-qm9.U0" and result["data"] == "made up"
    assert result["ratio"] == result["zoo_graphs_per_s"] / result["pyg_graphs_per_s"]
    assert result["zoo_graphs_per_s"] == result["zoo"]["graphs_per_s"]["median"]
    packs = result["zoo"]["by_graphs_per_pack"]
    assert list(packs) == ["6", "16"] and result["zoo"]["graphs_per_pack_as_trained"] == 16
    assert result["zoo_as_trained_graphs_per_s"] == packs["16"]["graphs_per_s"]["median"]
    assert result["zoo_graphs_per_s"] == max(p["graphs_per_s"]["median"] for p in packs.values())
    assert result["ratio_as_trained"] <= result["ratio"]
    sizes = result["pyg"]["by_batch_size"]
    assert list(sizes) == ["4", "8"]
    best = max(sizes, key=lambda size: sizes[size]["graphs_per_s"]["median"])
    assert str(result["pyg"]["batch_size"]) == best
    assert result["pyg_graphs_per_s"] == sizes[best]["graphs_per_s"]["median"]
    ours, theirs = (side["graphs_per_s"]["values"] for side in (result["zoo"], result["pyg"]))
    assert len(ours) == len(theirs) == 2
    each = [a / b for a, b in zip(ours, theirs, strict=True)]
    assert result["ratio_spread"]["values"] == pytest.approx(each, rel=1e-4)
    plain = result["pyg_with_denormals"]
    assert plain["batch_size"] == int(best) and plain["ratio"] > 0
    assert result["zoo"]["omp_wait_policy"] in ("PASSIVE", "ACTIVE")
    assert result["pyg"]["omp_wait_policy"] == "unset"
    assert result["zoo_bf16_graphs_per_s"] > 0 and result["load"]["forced"]
    assert result["machine"]["float32_gflops"] > 0 and result["versions"]["torch"]
    text = train.render(result)
    assert f"ratio {result['ratio']:.2f}" in text and "(forced)" in text


@pytest.mark.slow
def test_training_alone():
    result = train.bench_train(against=None, seconds=0.02, bf16=False, **TINY)
    assert not [key for key in result if "pyg" in key or "ratio" in key or "bf16" in key]
    assert "PyG" not in train.render(result)


@pytest.mark.slow
def test_backends():
    result = backends.bench_backends(seconds=0.02, **TINY)
    json.dumps(result)
    speeds = {b: v["median"] for b, v in result["graphs_per_s"].items()}
    assert "eager" in speeds and result["fastest"] == max(speeds, key=speeds.get)
    assert result["card"] == "eager" and result["first_step_s"].keys() == speeds.keys()
    assert "fastest: " + result["fastest"] in backends.render(result)


@pytest.mark.slow
def test_the_gpu_script_runs_on_a_cpu():
    result = gpu.bench_gpu(device="cpu", preset="smoke", seconds=0.01, packs=2)
    json.dumps(result)
    rows = result["entries"]["schnet-qm9"]
    assert not [row for row in rows.values() if "failed" in row], rows
    assert rows["parity"]["largest_difference"] == 0 and rows["parity"]["unit"] == "eV"
    for kind in ("prediction", "training"):
        for variant in gpu.VARIANTS:
            assert rows[f"{kind}, {variant}"]["graphs_per_s"] > 0
    assert "predictions within" in gpu.render(result)


def test_the_gpu_script_keeps_what_it_has(monkeypatch):
    monkeypatch.setattr(gpu, "_training", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(gpu, "VARIANTS", {"eager": None})
    monkeypatch.setattr(gpu.zoo, "list", lambda: ["schnet-qm9.U0", "gin-tox21.scaffold"])
    result = gpu.bench_gpu(device="cpu", preset="smoke", seconds=0.01, packs=1)
    for name in ("schnet-qm9", "gin-tox21"):
        rows = result["entries"][name]
        assert "ZeroDivisionError" in rows["training, eager"]["failed"]
        assert rows["prediction, eager"]["graphs_per_s"] > 0
        assert rows["parity"]["largest_difference"] == 0
    assert "failed" in gpu.render(result)
    if not gpu.torch.cuda.is_available():
        with pytest.raises(RequestError, match="no GPU"):
            gpu.bench_gpu()


def test_senseless_requests_are_refused_before_anything_runs(monkeypatch):
    for module in (train, batching, startup, backends):
        monkeypatch.setattr(module, "check_quiet", lambda **kwargs: pytest.fail("it has begun"))
    for wrong in (
        {"repeats": 0},
        {"seconds": 0},
        {"batch_sizes": ()},
        {"batch_sizes": (0, 8)},
        {"pack_sizes": (0,)},
    ):
        with pytest.raises(RequestError):
            train.bench_train(**wrong)
    with pytest.raises(RequestError, match="known: pyg"):
        train.bench_train(against="schnetpack")
    with pytest.raises(RequestError):
        batching.bench_batching(steps=0)
    with pytest.raises(RequestError):
        startup.bench_startup(repeats=0)
    with pytest.raises(RequestError):
        memory.bench_memory(steps=0)
    with pytest.raises(RequestError):
        backends.bench_backends(repeats=0)


def test_busy_cores_stop_every_timed_bench(monkeypatch):
    def busy(*, force):
        raise ZooError("something else is using the cores")

    for module, bench in (
        (train, train.bench_train),
        (batching, batching.bench_batching),
        (startup, startup.bench_startup),
    ):
        monkeypatch.setattr(module, "check_quiet", busy)
        with pytest.raises(ZooError, match="something else"):
            bench()


def test_batch_making_against_pyg():
    result = batching.bench_batching(
        molecules=60, batch_size=12, seconds=0.01, steps=2, overrides=["train.accumulate=1"], **TINY
    )
    json.dumps(result)
    assert result["ratio"] == result["zoo_graphs_per_s"] / result["pyg_graphs_per_s"]
    for key in ("packing_efficiency", "packing_efficiency_edges", "packing_efficiency_graphs"):
        assert 0.3 < result[key] <= 1
    assert result["molecules"] == 60 and result["pyg"]["batch_size"] == 12
    share = result["neighbour_search_ms"] / result["step_ms"]
    assert result["neighbour_search_share_of_step"] == share
    assert 0 < share < result["batch_making_share_of_step"] < 1
    text = batching.render(result)
    assert f"{result['packing_efficiency']:.2%} full of nodes" in text


@pytest.mark.slow
def test_memory_on_a_small_store(tmp_path):
    result = memory.bench_memory(molecules=3000, steps=3, preset="smoke", folder=tmp_path)
    json.dumps(result)
    assert list(tmp_path.iterdir()) == []
    peaks = [phase["peak_above_imports_mb"] for phase in result["phases"].values()]
    assert peaks == sorted(peaks) and peaks[-1] <= result["rss_anon_above_imports_mb"]
    assert result["peak_rss_anon_mb"] == pytest.approx(
        result["rss_anon_imports_mb"] + result["rss_anon_above_imports_mb"]
    )
    assert result["within_limit"] == (result["rss_anon_above_imports_mb"] < result["limit_mb"])
    assert 3000 * 13 * 17 < result["store_gb"] * 1e9 < 3000 * 13 * 22
    assert "3,000 made-up molecules" in memory.render(result)


@pytest.mark.slow
def test_startup():
    result = startup.bench_startup(repeats=1, force=True)
    json.dumps(result)
    assert result["failures"] == {}
    medians = {title: times["median"] for title, times in result["processes_s"].items()}
    assert result["import_zoo_s"] == medians["import zoo"] - medians["python"]
    assert result["zoo_ls_s"] == medians["zoo ls"]
    assert result["zoo_load_s"] == medians["zoo.load"] - medians["import torch"]
    assert result["loads"]["import zoo"] == []
    assert "torch" not in result["loads"]["zoo ls"]
    assert "torch_geometric" not in result["loads"]["zoo.load"]
    assert "zoo.load('schnet-qm9')" in startup.render(result)


@pytest.mark.slow
def test_startup_tells_what_fails():
    result = startup.bench_startup(name="no-such-entry", repeats=1, force=True)
    assert result["zoo_load_s"] is None and not result["within_limits"]
    assert "no-such-entry" in result["failures"]["zoo.load"] or result["failures"]["zoo.load"]
    assert "failed" in startup.render(result)
