"""Both sides of a comparison do the same work on the same molecules."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from zoo.bench import breakdown, peer, sides
from zoo.bench.peer_gin import PygGIN
from zoo.errors import RequestError, UnavailableError
from zoo.models.gin import GIN, GINArguments


@pytest.fixture(scope="module")
def recipe():
    return sides.open_recipe(name="schnet-qm9", preset="smoke", overrides=[])


def test_the_peer_is_given_our_molecules(recipe):
    config, data, _ = recipe
    ids = data.splits["train"][:6]
    cutoff = config.model.arguments.cutoff
    given = peer.molecules(store=data.store, ids=ids, cutoff=cutoff, labels=data.labels.scaled)
    batch = next(iter(peer.pyg_loader(given, batch_size=6)))
    assert batch.num_edges == data.store.edges_per_graph(cutoff=cutoff)[ids].sum()
    for graph, molecule in zip(ids, given, strict=True):
        source, target = molecule.edge_index
        assert torch.equal(target, target.sort().values)
        length = (molecule.pos[source] - molecule.pos[target]).norm(dim=1)
        torch.testing.assert_close(molecule.edge_weight, length)
        assert (length < cutoff).all() and (source != target).all()
        rows = slice(data.store.node_ptr[graph], data.store.node_ptr[graph + 1])
        assert np.array_equal(molecule.z, data.store.node["z"][rows])
        assert np.array_equal(molecule.y[0], data.labels.scaled[graph])


@pytest.mark.parametrize("who", ["zoo", "pyg"])
def test_a_step_trains(recipe, who):
    config, data, _ = recipe
    if who == "zoo":
        side = sides.zoo_side(config=config, data=data)
    else:
        cutoff, labels = config.model.arguments.cutoff, data.labels.scaled
        given = peer.molecules(
            store=data.store, ids=data.splits["train"][:40], cutoff=cutoff, labels=labels
        )
        side = peer.pyg_side(config=config, data=given, batch_size=16)
    module, average = side.state.task.module, side.state.average
    before = {name: value.clone() for name, value in module.named_parameters()}
    averaged = [value.clone() for value in average.module.parameters()]
    speed = side.run(seconds=0, steps=30)
    assert speed > 0 and len(side.step_ms) == len(side.making_ms) == len(side.graphs) == 30
    assert all(not torch.equal(v, before[n]) for n, v in module.named_parameters())
    after = list(average.module.parameters())
    assert not any(torch.equal(a, b) for a, b in zip(after, averaged, strict=True))
    seen = side.state.progress
    assert seen.loss_count == sum(side.graphs) and 0 < seen.loss_sum / seen.loss_count < 10
    side.warm_up(steps=2)
    assert side.graphs == []


def test_the_peer_is_as_large_as_ours(recipe):
    config, data, _ = recipe
    ours = sides.zoo_side(config=config, data=data).state.task.module
    given = peer.molecules(
        store=data.store, ids=data.splits["train"][:4], cutoff=6.0, labels=data.labels.scaled
    )
    theirs = peer.pyg_side(config=config, data=given, batch_size=4).state.task.module
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


def test_products_are_counted_exactly(recipe):
    config, data, _ = recipe
    side = sides.zoo_side(config=config, data=data)
    a, nodes = config.model.arguments, data.shape.nodes
    first = 2 * 2 * a.knots * a.gaussians * a.features * a.interactions
    second = 2 * 2 * a.knots * a.features**2 * a.interactions
    atoms = 3 * 2 * nodes * a.features**2 * a.interactions
    head = 2 * nodes * a.features * (a.features // 2) + 2 * nodes * (a.features // 2)
    # Backward: one product for each input that has a gradient; the Gaussians have none.
    each = 2 * first + 3 * (second + atoms + head)
    assert breakdown.product_flops(side) == config.train.accumulate * each


def test_the_breakdown_adds_up(recipe, monkeypatch):
    config, data, _ = recipe
    told = iter([{"float32_gflops": 100.0}, {"float32_gflops": 50.0}])
    monkeypatch.setattr(breakdown, "peaks", lambda seconds: next(told))
    side = sides.zoo_side(config=config, data=data)
    side.warm_up()
    threads = torch.get_num_threads()
    parts = breakdown.break_down(side, steps=3)
    assert torch.get_num_threads() == threads
    core = parts["one_core"]
    shares = [value for name, value in core.items() if name.endswith("_share")]
    assert sum(shares) == pytest.approx(1) and all(0 < share < 1 for share in shares)
    assert set(core["kernels_ms"]) == {"zoo::cfconv", "zoo::cfconv_filters"}
    assert sum(core["kernels_ms"].values()) == pytest.approx(
        core["kernels_share"] * core["step_ms"]
    )
    gflop = parts["products_gflop"]
    assert parts["products_ms_at_peak"] == pytest.approx(gflop / 100 * 1e3)
    at_peak = gflop / 50 * 1e3 / core["products_ms"]
    assert core["products_of_peak"] == pytest.approx(at_peak)
    assert parts["products_share_at_peak"] * parts["step_ms"] == pytest.approx(gflop / 100 * 1e3)
    assert "of the step" in breakdown.line(parts)


def test_where_qm9_is_missing_molecules_are_made_up(monkeypatch):
    opened = []

    def absent(config):
        opened.append(config.data.synthetic)
        if not config.data.synthetic:
            raise UnavailableError("qm9_part1.csv is not on this machine\nget it")
        return "made up"

    monkeypatch.setattr(sides, "open_data", absent)
    config, data, notes = sides.open_recipe(name="schnet-qm9", preset="full", overrides=[])
    assert data == "made up" and opened == [0, sides.MADE_UP] == [0, config.data.synthetic]
    assert notes == ["made-up molecules, not QM9: qm9_part1.csv is not on this machine"]


def test_what_our_process_answers(recipe):
    handlers = sides.worker(
        name="schnet-qm9",
        preset="smoke",
        overrides=["train.accumulate=3"],
        precision="float32",
        inference=False,
    )
    for precision, graphs in (("float32", 16), ("bf16", 5)):
        which = {"precision": precision, "graphs": graphs}
        handlers["warm"](**which)
        assert handlers["run"](seconds=0.01, **which) > 0
        figures = handlers["figures"](**which)
        assert 0.7 < figures["graphs_per_step"] / (3 * graphs) < 1.2
        assert figures["batch_shape"]["graphs"] < 3 * graphs
    facts = handlers["facts"]()
    assert facts["data"] == "made up" and facts["side"]["packs_per_step"] == 3
    assert facts["graphs_per_pack"] == 16
    assert facts["side"]["lanes"] == min(3, torch.get_num_threads())
    json.dumps(facts)


def test_what_the_peers_process_answers(recipe):
    handlers = peer.worker(
        name="schnet-qm9",
        preset="smoke",
        overrides=[],
        molecules_=20,
        flush=False,
        precision="float32",
        inference=False,
    )
    handlers["warm"](batch_size=8)
    assert handlers["run"](batch_size=8, seconds=0.01) > 0
    assert handlers["figures"](batch_size=8)["graphs_per_step"] == 8
    facts = handlers["facts"]()
    assert facts["molecules"] == 20 and facts["denormals_flushed"] is False
    json.dumps(facts)


@pytest.mark.parametrize("inference", [False, True])
def test_gin_and_its_peer_have_the_same_size_and_step(inference: bool) -> None:
    given = {
        "name": "gin-molhiv",
        "preset": "smoke",
        "overrides": [],
        "precision": "float32",
        "inference": inference,
    }
    ours = sides.worker(**given)
    theirs = peer.worker(**given, molecules_=40, flush=False)
    ours["warm"](precision="float32", graphs=8)
    theirs["warm"](batch_size=8)
    assert ours["run"](precision="float32", graphs=8, seconds=0.05) > 0
    assert theirs["run"](batch_size=8, seconds=0.05) > 0
    assert ours["facts"]()["data"] == "made up" and "GINEConv" in theirs["facts"]()["model"]


def test_the_peer_of_gin_counts_as_many_parameters() -> None:
    arguments = GINArguments(features=12, layers=2)
    both = [
        sum(p.numel() for p in m.parameters())
        for m in (GIN(arguments=arguments), PygGIN(arguments))
    ]
    assert both[0] == both[1]
    with pytest.raises(RequestError, match="the peer is OGB's example"):
        PygGIN(GINArguments(virtual_node=True))
