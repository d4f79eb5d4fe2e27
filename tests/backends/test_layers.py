"""PyG's layers at fixed shape: all of them are listed, known ones get their verdict, bad ones cost
their own row alone, and every difference from what is documented is explained.
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from pathlib import Path

import pytest

from zoo import cli_text
from zoo.backends import layer_inputs, layer_page, layer_worker, layers
from zoo.backends.check import check_each
from zoo.backends.ipu.documented import compared, documented, explanations
from zoo.backends.layer_worker import judge_layer
from zoo.backends.layers import Listed, coverage, listed, summary

PAGE = Path(__file__).parents[2] / "docs" / "layers.md"


def judged(name):
    one = next(one for one in listed() if one.name == name)
    return compared(judge_layer(**one._asdict()))


def errors(row, column):
    return {
        (f["kind"], f["place"].partition(":")[0])
        for f in row["findings"]
        if f["level"] == "error" and column in f["columns"]
    }


@pytest.mark.parametrize(
    ("name", "export", "compiles", "ipu", "agrees"),
    [
        ("GCNConv", True, True, True, True),
        ("GINEConv", True, True, True, True),
        ("ChebConv", False, True, False, True),
        ("RGCNConv", False, False, False, True),
        ("HGTConv", False, True, False, False),
        ("MultiAggregation", True, True, True, True),
        ("SortAggregation", False, False, True, True),
        ("BatchNorm", True, True, True, True),
        ("TopKPooling", False, True, False, True),
        ("global_add_pool", True, True, True, True),
        ("max_pool", False, False, False, True),
        ("DenseGATConv", True, True, True, None),
        ("HeteroDictLinear", True, True, True, None),
        ("Set2Set", True, False, True, True),
    ],
)
def test_verdicts(name, export, compiles, ipu, agrees):
    row = judged(name)
    assert row["eager"] is True
    assert (row["export"], row["compile"], row["ipu"]) == (export, compiles, ipu)
    assert row["agrees"] is agrees
    for column, goes in (("export", export), ("compile", compiles), ("ipu", ipu)):
        assert bool(errors(row, column)) is not goes
        assert (column in row["reason"]) is not goes
    json.dumps(row)


def test_a_row_says_where_and_with_what():
    row = judged("ChebConv")
    assert ("data-dependent-shape", "cheb_conv.py") in errors(row, "ipu")
    assert row["built_with"] == {"in_channels": 8, "out_channels": 8, "K": 2}
    assert row["called_with"]["edge_index"] == "int64[2, 48]"
    assert row["documented"] == "not_supported" and not row["refused_by_pyg"]
    assert judged("global_add_pool")["called_with"]["size"] == 4


def test_self_loops_that_pyg_adds_have_no_fixed_shape(monkeypatch):
    assert judged("GCNConv")["built_with"]["add_self_loops"] is False
    monkeypatch.setitem(layer_inputs._BUILD, "add_self_loops", True)
    row = judged("GCNConv")
    assert row["eager"] and not row["export"] and not row["ipu"]
    assert ("data-dependent-shape", "loop.py") in errors(row, "ipu")


def test_a_size_that_is_missing_is_refused_as_pyg_does(monkeypatch):
    monkeypatch.setitem(layer_inputs._CALL_OTHERWISE, "SortAggregation", {"dim_size": None})
    row = judged("SortAggregation")
    assert row["refused_by_pyg"] and not row["ipu"]
    assert judged("MeanAggregation")["refused_by_pyg"] is False


def test_the_batch_is_padded_and_of_one_shape():
    held = layer_inputs.tensors()
    assert held["x"].shape == (layer_inputs.SHAPE.nodes, layer_inputs.CHANNELS)
    counts = Counter(held["batch"].tolist())
    padding = layer_inputs.SHAPE.nodes - sum(layer_inputs.RINGS)
    assert list(counts.values()) == [*layer_inputs.RINGS, padding] and padding > 0
    src, dst = held["edge_index"]
    assert bool((held["batch"][src] == held["batch"][dst]).all())
    assert bool((src[-2 * padding :] == dst[-2 * padding :]).all())


def test_everything_that_pyg_exports_is_listed_once():
    found = listed()
    names = [one.name for one in found]
    assert len(set(names)) == len(names)
    for room in ("conv", "aggr", "norm", "pool", "dense", "unpool", "functional", "kge"):
        module = importlib.import_module(f"torch_geometric.nn.{room}")
        assert set(module.__all__) <= set(names)
    assert documented().keys() <= set(names)
    nowhere = {one.name for one in found if not one.module}
    assert nowhere == {"Pooling"}
    kinds = {one.name: one.category for one in found}
    assert kinds["Linear"] == "Basic blocks" and kinds["DMoNPooling"] == "Dense pooling"
    assert kinds["DenseGCNConv"] == "Dense convolutional" and kinds["summary"] != "Basic blocks"


def test_a_bad_layer_costs_its_own_row_alone():
    bad = [
        Listed("bad", name, "bad_layers")
        for name in ("Raises", "Hangs", "Strange", "Ends", "Prints", "Absent")
    ]
    told = []
    rows = coverage(
        layers=[*bad, Listed("bad", "Nowhere", "")],
        seconds=4,
        tell=lambda done, of, one: told.append((done, of, one.name)),
    )["layers"]
    assert [(row["name"], row["reason"]) for row in rows] == [
        ("Raises", "no"),
        ("Hangs", "not done within 4 s"),
        ("Strange", "no value is known for its parameter mystery"),
        ("Ends", "it ended its process (exit status 7)"),
        ("Prints", "a base class"),
        ("Absent", "module 'bad_layers' has no attribute 'Absent'"),
        ("Nowhere", "this PyG has none of that name"),
    ]
    assert told[0] == (0, 7, "Raises") and told[-1] == (6, 7, "Nowhere")
    assert all(row[verdict] is None for row in rows for verdict in layers.VERDICTS)


def test_layers_are_differentiated_where_they_can_be(monkeypatch):
    row = judge_layer(category="bad", name="OneWay", module="bad_layers")
    assert row["eager"] is False and row["reason"] == "fails on its inputs: no way back"
    asked = []

    def spy(**given):
        asked.append(given["training"])
        return check_each(**given)

    monkeypatch.setattr(layer_worker, "check_each", spy)
    judged("SumAggregation")
    judged("consecutive_cluster")
    assert asked == [True, False]


def test_what_is_compared():
    def row(name, ipu):
        return compared(layers.blank_row(category="", name=name) | {"ipu": ipu})

    assert row("GCNConv", True)["agrees"] is True
    assert row("ChebConv", False)["agrees"] is True
    assert row("ChebConv", True)["agrees"] is False
    assert row("GCN", True)["agrees"] is True  # in the tests alone
    assert row("GCNConv", None)["agrees"] is None
    assert row("DenseGATConv", True)["agrees"] is None  # to be determined
    assert row("MeshCNNConv", True)["documented"] is None
    assert (
        row("HeteroLinear", False)["explanation"] and not row("HeteroLinear", True)["explanation"]
    )
    assert row("LayerNorm", True)["constraints"] == "requires:batch_size"


def test_explanations_are_of_documented_layers():
    assert explanations() and explanations().keys() <= documented().keys()
    assert len(documented()) == 151


def test_a_page_and_a_table_say_the_same():
    rows = [judged(name) for name in ("GCNConv", "ChebConv", "HeteroLinear", "CuGraphSAGEConv")]
    found = {"layers": rows, "summary": summary(rows), "versions": layers.versions()}
    assert found["summary"]["all"] == {
        "layers": 4,
        "tried": 3,
        "eager": 3,
        "export": 1,
        "compile": 1 + 1,
        "ipu": 1,
        "agree": 2,
        "differ": 1,
    }
    page = layer_page.page(found)
    assert "| `GCNConv` | yes | yes | yes | yes | yes (add_self_loops=False) |" in page
    assert "| `ChebConv` | yes | no | yes | no | no | export, ipu: data-dependent-shape" in page
    assert f"| `HeteroLinear` | no | yes | {explanations()['HeteroLinear']} |" in page
    assert "| all | 4 | 3 | 3 | 1 | 2 | 1 | 2 | 1 |" in page
    lines = cli_text.layers(found).splitlines()
    words = [line.split() for line in lines]
    assert ["GCNConv", *["yes"] * 5, "add_self_loops=False"] in words
    assert any(w[:5] == ["CuGraphSAGEConv", "-", "-", "-", "-"] for w in words)
    assert ["all", *["4", "3", "3", "1", "2", "1", "2", "1"]] in words
    for text in (page, "\n".join(lines)):
        assert "nothing was run on an IPU" in text and found["versions"]["torch"] in text


@pytest.mark.slow
def test_every_layer_has_a_verdict_or_a_reason_and_every_difference_an_explanation():
    found = coverage()
    rows = found["layers"]
    assert [row["name"] for row in rows] == [one.name for one in listed()]
    for row in rows:
        tried = {row[verdict] is not None for verdict in layers.VERDICTS}
        assert len(tried) == 1 and row["eager"] is not False, row
        assert row["reason"] or all(row[verdict] for verdict in layers.VERDICTS), row
        assert "no value is known" not in row["reason"], row
    assert {row["name"] for row in rows if row["agrees"] is False} == explanations().keys()
    assert found["summary"]["all"]["agree"] > 100
    # The page in docs/ is of these versions, or of others and then says so.
    page, written = layer_page.page(found), PAGE.read_text(encoding="utf-8")
    told = ("with torch ", "PyG's extensions here")
    versions = {line for line in page.splitlines() if line.startswith(told)}
    if len(versions) == len(told) and versions <= set(written.splitlines()):
        assert page == written
