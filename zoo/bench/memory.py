"""Memory while training on a large store: the process's own, above what importing takes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from zoo.bench.machine import describe
from zoo.bench.made_up import write_molecules
from zoo.bench.worker import Handlers, Worker
from zoo.errors import RequestError

LIMIT_MB = 1000.0
"""RssAnon above the imports that training may reach, whatever the size of the store."""

_Made = TypeVar("_Made")


def bench_memory(
    *,
    name: str = "schnet-qm9",
    molecules: int = 5_000_000,
    steps: int = 100,
    preset: str = "full",
    overrides: Sequence[str] = (),
    folder: Path | None = None,
) -> dict[str, Any]:
    """Peak memory of opening a store of made-up molecules and training on it; JSON-able, in MB.

    The store (about 250 MB per million molecules) is written to a new folder inside `folder` (the
    system's temporary one unless given) and removed at the end. Each phase's entry is the peak so
    far. Runs in a fresh process, and may run on a busy machine.
    """
    if steps < 1:
        raise RequestError("at least one training step is needed")
    with tempfile.TemporaryDirectory(dir=folder, prefix="zoo-bench-") as place:
        began = time.perf_counter()
        store = write_molecules(folder=Path(place) / "store", molecules=molecules)
        wrote = time.perf_counter() - began
        size = sum(path.stat().st_size for path in store.iterdir())
        with Worker("zoo.bench.memory:worker") as process:
            measured: dict[str, Any] = process.ask(
                "measure",
                folder=str(store),
                name=name,
                steps=steps,
                preset=preset,
                overrides=list(overrides),
            )
    return {
        "bench": "memory",
        "entry": measured.pop("entry"),
        "molecules": molecules,
        "steps": steps,
        "store_gb": size / 1e9,
        "write_s": wrote,
        **measured,
        "limit_mb": LIMIT_MB,
        "within_limit": measured["rss_anon_above_imports_mb"] < LIMIT_MB,
        "machine": describe(),
    }


def worker() -> Handlers:
    """What the measured process answers to."""
    return {"measure": measure}


def measure(
    *, folder: str, name: str, steps: int, preset: str, overrides: Sequence[str]
) -> dict[str, Any]:
    """Open the store and train on it in this process, which should have done nothing before."""
    from zoo.batching import pack_kernel  # noqa: F401  (numba counts as an import)
    from zoo.batching.shape import FixedSize
    from zoo.batching.store import open_store
    from zoo.bench.sides import zoo_side
    from zoo.datasets import qm9
    from zoo.ops import cfconv_kernel  # noqa: F401
    from zoo.recipes import energy
    from zoo.recipes.config import energy_config, load_config
    from zoo.recipes.scaling import fit_labels
    from zoo.training.memory import PeakMemory
    from zoo.training.versions import versions

    loaded = load_config(name, preset=preset, overrides=overrides)
    config = energy_config(loaded, what="this benchmark")
    cutoff = config.model.arguments.cutoff
    phases: dict[str, dict[str, float]] = {}
    peak = PeakMemory(interval=0.01).start()

    @contextmanager
    def phase(title: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        peak.read()
        phases[title] = {"seconds": seconds, "peak_above_imports_mb": peak.above_start_mb}

    def timed(title: str, work: Callable[[], _Made]) -> _Made:
        with phase(title):
            return work()

    store = timed("open", lambda: open_store(folder=Path(folder)))
    splits, digest = timed("split", lambda: qm9.split(store=store, seed=0))
    nodes = store.nodes_per_graph()
    edges = timed("count edges", lambda: store.edges_per_graph(cutoff=cutoff))
    labels = timed(
        "fit labels",
        lambda: fit_labels(
            values=store.graph["y"][:, 0],
            node_ptr=store.node_ptr,
            z=store.node["z"],
            train=splits["train"],
            readout=config.model.arguments.readout,
        ),
    )
    shape = timed(
        "choose the shape",
        lambda: FixedSize.fit(nodes=nodes, edges=edges, graphs=config.batch.graphs),
    )
    data = energy.EnergyData(
        store=store,
        splits=splits,
        split_sha256=digest,
        labels=labels,
        shape=shape,
        unit="eV",
        reference="",
    )
    side = timed("make the task", lambda: zoo_side(config=config, data=data))
    timed("plan the epoch", lambda: len(side.state.task.train_loader))
    with phase("train"):
        speed = side.run(seconds=0, steps=steps)
    peak.stop()
    return {
        "entry": config.entry,
        "rss_anon_above_imports_mb": peak.above_start_mb,
        "rss_anon_imports_mb": peak.start_rss_anon_mb,
        "peak_rss_anon_mb": peak.peak_rss_anon_mb,
        "rss_file_mb": peak.rss_file_mb,
        "open_s": phases["open"]["seconds"],
        "train_graphs_per_s": speed,
        "phases": phases,
        "versions": versions(),
    }


def render(result: dict[str, Any]) -> str:
    """A result of `bench_memory` for a reader."""
    lines = [
        f"{result['entry']}, {result['steps']} training steps on a store of "
        f"{result['molecules']:,} made-up molecules ({result['store_gb']:.2f} GB on disk)",
        f"  {result['rss_anon_above_imports_mb']:,.0f} MB of its own above the "
        f"{result['rss_anon_imports_mb']:,.0f} MB that importing takes "
        f"(limit {result['limit_mb']:,.0f}); mapped files beside it "
        f"{result['rss_file_mb']:,.0f} MB",
    ]
    for title, phase in result["phases"].items():
        lines.append(
            f"    {title:<18} {phase['seconds']:8.3f} s, peak so far "
            f"{phase['peak_above_imports_mb']:7,.0f} MB"
        )
    return "\n".join(lines)
