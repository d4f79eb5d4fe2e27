"""Training speed: a recipe's step against PyTorch Geometric's eager model of the same size.

Each side has a process of its own with the settings that suit it best. PyG's Gaussian basis is full
of denormal numbers (about 4 % of its values at 10 Å), which slow the matrix products they enter by
up to sixty times on common CPUs. One line of torch cures that, `torch.set_flush_denormal(True)`:
the figures compared are those with it, and what PyG reaches without stands beside them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal

from zoo.bench import breakdown
from zoo.bench.machine import check_quiet
from zoo.bench.turns import alternate, load_facts, spread
from zoo.bench.worker import Worker
from zoo.errors import RequestError

MEASURED = (
    "batch making, forward, loss, backward, gradient clipping, AdamW, schedule and moving average, "
    "on both sides, through the same step function"
)


PREDICTED = "batch making and the forward pass in evaluation mode, without gradients, on both sides"


def bench_train(
    name: str = "schnet-qm9",
    *,
    against: Literal["pyg"] | None = "pyg",
    preset: str = "full",
    overrides: Sequence[str] = (),
    repeats: int = 7,
    seconds: float = 2.0,
    batch_sizes: Sequence[int] = (32, 64, 128),
    pack_sizes: Sequence[int] = (64, 128),
    molecules: int = 2048,
    bf16: bool = True,
    denormals: bool = True,
    precision: Literal["float32", "bf16"] = "float32",
    inference: bool = False,
    force: bool = False,
) -> dict[str, Any]:
    """Graphs/s of our training step and of PyG's, and their ratio; JSON-able.

    Sides take turns of `seconds`, `repeats` rounds, and each side's figure is that of its best
    batch size: PyG's of `batch_sizes`, on `molecules` of the training split; ours of packs of
    `pack_sizes` graphs and of the recipe's own, as many packs a step as the recipe has, on the
    whole split. Both are in `precision`; with `inference` both predict instead of training.
    `ratio_as_trained` is what the recipe's own reach. `bf16` adds our side with
    bfloat16 products in the largest packs, and `denormals` PyG with denormal numbers left alone (up
    to three rounds): beside the ratio, not in it. ZooError when something else uses the cores,
    unless `force`.
    """
    if repeats < 1 or seconds <= 0 or molecules < 1:
        raise RequestError("a bench needs at least one repeat, one molecule and some seconds")
    if against not in ("pyg", None):
        raise RequestError(f"there is nothing to compare with under {against!r}; known: pyg")
    sizes = sorted(set(batch_sizes)) if against else []
    if (against and not sizes) or min([1, *sizes, *pack_sizes]) < 1:
        raise RequestError("name at least one batch size; sizes are of one graph or more")
    from zoo.training.versions import versions

    before = check_quiet(force=force)
    recipe: dict[str, Any] = {
        "name": name,
        "preset": preset,
        "overrides": list(overrides),
        "precision": precision,
        "inference": inference,
    }
    bf16 = bf16 and precision == "float32"  # the extra column is for those who compare float32
    with ExitStack() as stack:
        # As `zoo run` has it; PyG's threads wait as torch's do by default.
        ours = stack.enter_context(
            Worker(
                "zoo.bench.sides:worker",
                env={"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")},
                **recipe,
            )
        )
        turns: dict[str, Callable[[], float]] = {}
        facts = ours.ask("facts")
        own = facts["graphs_per_pack"]
        packs = sorted({*pack_sizes, own})
        variants = {f"zoo {graphs}": (precision, graphs) for graphs in packs}
        if bf16:
            variants["bf16"] = ("bf16", packs[-1])
        for title, (kind, graphs) in variants.items():
            which = {"precision": kind, "graphs": graphs}
            ours.ask("warm", **which)
            turns[title] = partial(ours.ask, "run", seconds=seconds, **which)

        def peer(flush: bool) -> Worker:
            given = {**recipe, "molecules_": molecules, "flush": flush}
            env = {"OMP_WAIT_POLICY": None}
            return stack.enter_context(Worker("zoo.bench.peer:worker", env=env, **given))

        theirs = peer(flush=True) if sizes else None
        if theirs:
            for size in sizes:
                theirs.ask("warm", batch_size=size)
                turns[f"pyg {size}"] = partial(theirs.ask, "run", batch_size=size, seconds=seconds)
        rounds = alternate(
            sides=turns,
            repeats=repeats,
            force=force,
            title=f"{name} {'predictions' if inference else 'training'}",
        )
        values = rounds.values
        mine = {
            graphs: _figures(ours, values[f"zoo {graphs}"], precision=precision, graphs=graphs)
            for graphs in packs
        }
        best = _fastest(mine)
        asked = {"graphs": best, "seconds": min(seconds, 0.5)}
        parts = ours.ask("break_down", **asked)
        result: dict[str, Any] = {
            "bench": "train",
            "entry": facts["entry"],
            "data": facts["data"],
            "against": against,
            "measured": PREDICTED if inference else MEASURED,
            "precision": precision,
            "notes": facts["notes"],
            "zoo_graphs_per_s": _speed(mine[best]),
            "zoo_as_trained_graphs_per_s": _speed(mine[own]),
            "zoo": {
                **facts["side"],
                "omp_wait_policy": facts["machine"].pop("omp_wait_policy"),
                "graphs_per_pack_as_trained": own,
                "graphs_per_pack": best,
                **mine[best],
                "by_graphs_per_pack": {str(graphs): mine[graphs] for graphs in packs},
            },
            "model": facts["model"],
            "turn_seconds": seconds,
            "repeats": repeats,
            "breakdown": parts,
            "machine": {**facts["machine"], **parts["peaks"]},
            "load": load_facts(before=before, rounds=rounds, force=force),
            "versions": versions(),
        }
        if bf16:
            half = _figures(ours, values["bf16"], precision="bf16", graphs=packs[-1])
            result["zoo_bf16_graphs_per_s"] = _speed(half)
            result["zoo_bf16"] = {"graphs_per_pack": packs[-1], **half}
        if theirs:
            peers = {
                size: _figures(theirs, values[f"pyg {size}"], batch_size=size) for size in sizes
            }
            peer_best = _fastest(peers)
            speed = _speed(peers[peer_best])
            pairs = zip(values[f"zoo {best}"], values[f"pyg {peer_best}"], strict=True)
            result |= {
                "pyg_graphs_per_s": speed,
                "ratio": _speed(mine[best]) / speed,
                "ratio_spread": spread([a / b for a, b in pairs]),
                "ratio_as_trained": _speed(mine[own]) / speed,
                "pyg": {
                    **theirs.ask("facts"),
                    "batch_size": peer_best,
                    **peers[peer_best],
                    "by_batch_size": {str(size): peers[size] for size in sizes},
                },
            }
        if theirs and denormals:
            size = result["pyg"]["batch_size"]
            plain = peer(flush=False)
            plain.ask("warm", batch_size=size)
            both: dict[str, Callable[[], float]] = {
                "zoo": turns[f"zoo {best}"],
                "pyg": partial(plain.ask, "run", batch_size=size, seconds=seconds),
            }
            few = min(repeats, 3)
            more = alternate(sides=both, repeats=few, force=force, title="denormals kept")
            medians = {side: spread(values)["median"] for side, values in more.values.items()}
            result["pyg_with_denormals"] = {
                "pyg_graphs_per_s": medians["pyg"],
                "ratio": medians["zoo"] / medians["pyg"],
                "batch_size": size,
                "graphs_per_s": spread(more.values["pyg"]),
                "load": load_facts(before=before, rounds=more, force=force),
            }
    return result


def _figures(worker: Worker, speeds: Sequence[float], **which: Any) -> dict[str, Any]:
    return {"graphs_per_s": spread(speeds), **worker.ask("figures", **which)}


def _speed(figures: dict[str, Any]) -> float:
    median: float = figures["graphs_per_s"]["median"]
    return median


def _fastest(by_size: dict[int, dict[str, Any]]) -> int:
    return max(by_size, key=lambda size: _speed(by_size[size]))


def render(result: dict[str, Any]) -> str:
    """A result of `bench_train` for a reader."""
    machine, load, ours = result["machine"], result["load"], result["zoo"]
    times, kind = ours["packs_per_step"], result["precision"]
    rows = []
    for graphs, figures in ours["by_graphs_per_pack"].items():
        trained = " (as trained)" if int(graphs) == ours["graphs_per_pack_as_trained"] else ""
        rows.append((f"zoo, {kind}, {times} packs of {graphs}{trained}", figures))
    if half := result.get("zoo_bf16"):
        rows.append((f"zoo, bf16 products, {times} packs of {half['graphs_per_pack']}", half))
    for size, figures in result.get("pyg", {}).get("by_batch_size", {}).items():
        rows.append((f"PyG, {kind}, batches of {size}", figures))
    lines = [f"{result['entry']} on {result['data']} ({result['measured']})"]
    for label, figures in rows:
        speed = figures["graphs_per_s"]
        lines.append(
            f"  {label:<42} {speed['median']:8,.0f} graphs/s "
            f"({speed['min']:,.0f} to {speed['max']:,.0f}), step {figures['step_ms']:.1f} ms and "
            f"batch making {figures['batch_making_ms']:.2f} ms"
        )
    if "ratio" in result:
        ratio = result["ratio_spread"]
        lines.append(
            f"  ratio {result['ratio']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f}), each side "
            f"at its best batch size, PyG with denormals flushed; "
            f"{result['ratio_as_trained']:.2f} as trained"
        )
    if plain := result.get("pyg_with_denormals"):
        lines.append(
            f"  PyG as it comes, denormals kept: {plain['pyg_graphs_per_s']:,.0f} graphs/s, "
            f"ratio {plain['ratio']:.2f}"
        )
    lines.append("  " + breakdown.line(result["breakdown"]))
    lines.append(
        f"  {machine['cores']} cores of {machine['cpu']}, {machine['threads']} threads; peak "
        f"{machine['float32_gflops']:.0f} GFLOP/s float32, {machine['bf16_gflops']:.0f} bf16, copy "
        f"{machine['copy_gb_per_s']:.0f} GB/s; others used at most "
        f"{load['others_in_rounds_max']:.2f} of a core" + (" (forced)" if load["forced"] else "")
    )
    return "\n".join([*lines, *(f"  note: {note}" for note in result["notes"])])
