"""`zoo bench cost`: arithmetic, and what is no price list."""

from __future__ import annotations

import json

import pytest

from zoo.bench import cost
from zoo.errors import RequestError


def test_cost(tmp_path):
    found = cost.bench_cost(graphs_per_s=1000.0)
    by_device = {row["device"]: row["dollars_per_million"] for row in found["rows"]}
    assert by_device["Bow IPU"] == pytest.approx(1.67 * 1000 / 3600)
    assert all(row["date"] and row["source"] for row in found["rows"])
    train = tmp_path / "train.json"
    train.write_text(json.dumps({"zoo_graphs_per_s": 500}))
    prices = tmp_path / "mine.yaml"
    prices.write_text("- {device: mine, dollars_per_hour: 3.6, date: 2026-01-02, source: a bill}\n")
    found = cost.bench_cost(result=train, prices=prices)
    assert found["rows"][0]["dollars_per_million"] == pytest.approx(2.0)
    assert "2.000 $ on mine at 3.60 $/h (2026-01-02; a bill)" in cost.render(found)
    for text in ("- {device: mine}", "nothing", "- 3"):
        prices.write_text(text)
        with pytest.raises(RequestError, match="no price list"):
            cost.bench_cost(graphs_per_s=1.0, prices=prices)
    train.write_text("[]")
    for wrong in (
        {},
        {"graphs_per_s": 1.0, "result": train},
        {"graphs_per_s": -1.0},
        {"graphs_per_s": float("nan")},
        {"result": train},
        {"result": tmp_path / "none"},
        {"graphs_per_s": 1.0, "prices": tmp_path / "none"},
    ):
        with pytest.raises(RequestError):
            cost.bench_cost(**wrong)
