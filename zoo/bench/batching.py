"""Batch making: our packs, edges found on the fly, against PyG's DataLoader with edges ready."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from zoo.bench.machine import check_quiet, describe
from zoo.bench.turns import alternate, load_facts, spread
from zoo.errors import RequestError

MEASURED = (
    "whole shuffled epochs over the same molecules in one process, no workers; ours finds the "
    "pairs within the cutoff, sorts them and packs, PyG's collates edges and distances made before"
)


def bench_batching(
    name: str = "schnet-qm9",
    *,
    preset: str = "full",
    overrides: Sequence[str] = (),
    molecules: int = 4000,
    batch_size: int = 100,
    repeats: int = 7,
    seconds: float = 1.0,
    steps: int = 20,
    force: bool = False,
) -> dict[str, Any]:
    """Graphs/s of batch making on both sides, and their ratio; JSON-able.

    Also how full packs are over a whole epoch of the training split, and what batch making and the
    neighbour search take of a training step (`steps` of them). Turns last `seconds` and at least
    one epoch over `molecules`. ZooError when something else uses the cores, unless `force`.
    """
    import torch_geometric

    from zoo.batching.loader import PackLoader
    from zoo.bench.peer import molecules as peer_molecules
    from zoo.bench.peer import pyg_loader
    from zoo.bench.sides import open_recipe, zoo_side
    from zoo.training.versions import versions

    if repeats < 1 or steps < 1 or molecules < 1 or batch_size < 1:
        raise RequestError("a bench needs at least one repeat, one step and one molecule")
    before = check_quiet(force=force)
    overrides = [*overrides, f"batch.graphs={batch_size}"]
    config, data, notes = open_recipe(name=name, preset=preset, overrides=overrides)
    cutoff = config.model.arguments.cutoff
    ids = np.random.default_rng(0).permutation(data.splits["train"])[:molecules]
    packs = PackLoader(
        store=data.store,
        ids=ids,
        shape=data.shape,
        cutoff=cutoff,
        targets=data.labels.scaled,
        skip_oversize=config.batch.skip_oversize,
    )
    given = peer_molecules(store=data.store, ids=ids, cutoff=cutoff, labels=data.labels.scaled)
    collated = pyg_loader(given, batch_size=batch_size)
    _epochs(packs, packs.graphs, 0)
    rounds = alternate(
        sides={
            "zoo": lambda: _epochs(packs, packs.graphs, seconds),
            "pyg": lambda: _epochs(collated, len(given), seconds),
        },
        repeats=repeats,
        force=force,
        title="batch making",
    )
    ours, theirs = spread(rounds.values["zoo"]), spread(rounds.values["pyg"])
    whole = zoo_side(config=config, data=data)
    whole.warm_up()
    whole.run(seconds=0, steps=steps)
    step = statistics.median(a + b for a, b in zip(whole.making_ms, whole.step_ms, strict=True))
    search = _search_ms(packs.batch(packs.plan().pack(0)), cutoff=cutoff)
    train = whole.state.task.train_loader
    assert isinstance(train, PackLoader)
    filling = train.filling()
    return {
        "bench": "batching",
        "entry": config.entry,
        "data": "made up" if config.data.synthetic else "QM9",
        "measured": MEASURED,
        "notes": notes,
        "zoo_graphs_per_s": ours["median"],
        "pyg_graphs_per_s": theirs["median"],
        "ratio": ours["median"] / theirs["median"],
        "ratio_spread": spread(
            [a / b for a, b in zip(rounds.values["zoo"], rounds.values["pyg"], strict=True)]
        ),
        "packing_efficiency": float(filling["nodes"].mean()),
        "packing_efficiency_edges": float(filling["edges"].mean()),
        "packing_efficiency_graphs": float(filling["graphs"].mean()),
        "packs": len(train.plan()),
        "neighbour_search_ms": search,
        "batch_making_ms": statistics.median(whole.making_ms),
        "step_ms": step,
        "neighbour_search_share_of_step": search / step,
        "batch_making_share_of_step": statistics.median(whole.making_ms) / step,
        "zoo": {"batch_shape": dict(data.shape.__dict__), "cutoff": cutoff, "graphs_per_s": ours},
        "pyg": {
            "loader": "torch_geometric.loader.DataLoader over a list of Data, no workers",
            "version": torch_geometric.__version__,
            "batch_size": batch_size,
            "graphs_per_s": theirs,
        },
        "molecules": len(ids),
        "turn_seconds": seconds,
        "repeats": repeats,
        "machine": describe(),
        "load": load_facts(before=before, rounds=rounds, force=force),
        "versions": versions(),
    }


def _epochs(batches: Iterable[Any], graphs: int, seconds: float) -> float:
    """Graphs/s of iterating whole epochs until `seconds` have passed."""
    began, epochs = time.perf_counter(), 0
    while epochs == 0 or time.perf_counter() - began < seconds:
        for _ in batches:
            pass
        epochs += 1
    return graphs * epochs / (time.perf_counter() - began)


def _search_ms(batch: Any, *, cutoff: float, repeats: int = 50) -> float:
    """Median time to find the pairs of one pack within the cutoff."""
    from zoo.batching import pack_kernel

    out = [np.empty_like(batch[name].numpy()) for name in ("src", "dst", "dst_ptr", "src_perm")]
    pos, ptr = batch["pos"].numpy(), batch["node_ptr"].numpy()
    count = int(batch["graphs_mask"].sum())
    return _median_ms(lambda: pack_kernel.edges_within(pos, ptr, count, cutoff, *out), repeats)


def _median_ms(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


def render(result: dict[str, Any]) -> str:
    """A result of `bench_batching` for a reader."""
    ours, theirs = result["zoo"]["graphs_per_s"], result["pyg"]["graphs_per_s"]
    ratio, load, machine = result["ratio_spread"], result["load"], result["machine"]
    lines = [f"batch making on {result['data']} ({result['measured']})"]
    for label, speed in (
        ("zoo, packs of fixed shape", ours),
        (f"PyG, batches of {result['pyg']['batch_size']}", theirs),
    ):
        lines.append(
            f"  {label:<26} {speed['median']:9,.0f} graphs/s "
            f"({speed['min']:,.0f} to {speed['max']:,.0f})"
        )
    lines += [
        f"  ratio {result['ratio']:.1f} ({ratio['min']:.1f} to {ratio['max']:.1f})",
        f"  packs are {result['packing_efficiency']:.2%} full of nodes and "
        f"{result['packing_efficiency_edges']:.2%} of edges ({result['packs']:,} packs)",
        f"  of a training step of {result['step_ms']:.1f} ms, batch making is "
        f"{result['batch_making_share_of_step']:.2%}, "
        f"the neighbour search in it {result['neighbour_search_share_of_step']:.2%}",
        f"  {machine['threads']} threads; others used at most "
        f"{load['others_in_rounds_max']:.2f} of a core" + (" (forced)" if load["forced"] else ""),
    ]
    return "\n".join([*lines, *(f"  note: {note}" for note in result["notes"])])
