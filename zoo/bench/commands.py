"""`zoo bench ...`: speed and memory, measured against a peer where there is one."""

from __future__ import annotations

import json as _json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from zoo.errors import RequestError

app = typer.Typer(help="Measure speed and memory on this machine.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Force = Annotated[bool, typer.Option(help="Measure although other work uses the cores.")]
Name = Annotated[str, typer.Argument(help="An entry.")]
Repeats = Annotated[int, typer.Option(help="Rounds in which the sides take turns.")]


PRECISIONS: tuple[Literal["float32", "bf16"], ...] = ("float32", "bf16")


def _emit(result: dict[str, Any], *, json: bool, render: Callable[[dict[str, Any]], str]) -> None:
    print(_json.dumps(result, indent=1) if json else render(result))


@app.command("train")
def train(
    name: Name = "schnet-qm9",
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Overrides such as train.accumulate=2.")
    ] = None,
    against: Annotated[str, typer.Option(help="pyg, or none.")] = "pyg",
    preset: Annotated[str, typer.Option(help="smoke, quick or full.")] = "full",
    repeats: Repeats = 7,
    seconds: Annotated[float, typer.Option(help="Length of a turn.")] = 2.0,
    precision: Annotated[str, typer.Option(help="float32 or bf16, on both sides.")] = "float32",
    inference: Annotated[
        bool, typer.Option("--inference", help="Predict instead of training.")
    ] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Training (or prediction) speed against PyTorch Geometric's own model."""
    from zoo.bench import train

    chosen = next((one for one in PRECISIONS if one == precision), None)
    if chosen is None:
        raise RequestError(f"--precision is float32 or bf16, not {precision!r}")
    if against not in ("pyg", "none"):
        raise RequestError(f"--against is pyg or none, not {against!r}")
    result = train.bench_train(
        name,
        against="pyg" if against == "pyg" else None,
        preset=preset,
        overrides=overrides or [],
        repeats=repeats,
        seconds=seconds,
        precision=chosen,
        inference=inference,
        force=force,
    )
    _emit(result, json=json, render=train.render)


@app.command("batching")
def batching(
    name: Name = "schnet-qm9", repeats: Repeats = 7, force: Force = False, json: Json = False
) -> None:
    """Batch making against PyG's DataLoader, and how full packs are."""
    from zoo.bench import batching

    result = batching.bench_batching(name, repeats=repeats, force=force)
    _emit(result, json=json, render=batching.render)


@app.command("backends")
def backends(
    name: Name = "schnet-qm9",
    preset: Annotated[str, typer.Option(help="smoke, quick or full.")] = "full",
    repeats: Repeats = 5,
    seconds: Annotated[float, typer.Option(help="Length of a turn.")] = 2.0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Training speed under each backend, and which one the entry's card names."""
    from zoo.bench import backends

    result = backends.bench_backends(
        name, preset=preset, repeats=repeats, seconds=seconds, force=force
    )
    _emit(result, json=json, render=backends.render)


@app.command("gpu")
def gpu(
    device: Annotated[str, typer.Option(help="cuda, or cpu to try the script out.")] = "cuda",
    preset: Annotated[str, typer.Option(help="smoke, quick or full.")] = "full",
    seconds: Annotated[float, typer.Option(help="Time for each measurement.")] = 5.0,
    minutes: Annotated[float, typer.Option(help="Time for all.")] = 10.0,
    json: Json = False,
) -> None:
    """One prepared run for a machine with a GPU: parity with the CPU, and speed of every entry."""
    from zoo.bench import gpu

    result = gpu.bench_gpu(device=device, preset=preset, seconds=seconds, minutes=minutes)
    _emit(result, json=json, render=gpu.render)


@app.command("ops")
def ops(
    quick: Annotated[bool, typer.Option("--quick", help="A few shapes, in two minutes.")] = False,
    repeats: Repeats = 5,
    out: Annotated[
        Path | None, typer.Option(help="Folder for CSV and plots (default: runs/bench-ops-...).")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Another machine's ops.csv, to lay beside.")
    ] = None,
    track: Annotated[bool, typer.Option(help="Log an MLflow run.")] = True,
    force: Force = False,
    json: Json = False,
) -> None:
    """Gather, scatter, segments, messages and a SchNet block: torch's fastest form against ours."""
    from zoo.bench import ops

    result = ops.bench_ops(
        quick=quick,
        repeats=repeats,
        out=out or ops.new_folder(),
        reference=reference,
        track=track,
        force=force,
    )
    _emit(result, json=json, render=ops.render)


@app.command("cost")
def cost(
    graphs_per_s: Annotated[float | None, typer.Option(help="A measured speed.")] = None,
    result: Annotated[
        Path | None, typer.Option(help="A result of `zoo bench train --json`, in its place.")
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="A price list of your own (YAML).")] = None,
    json: Json = False,
) -> None:
    """Dollars for a million graphs, at dated prices."""
    from zoo.bench import cost

    found = cost.bench_cost(graphs_per_s=graphs_per_s, result=result, prices=prices)
    _emit(found, json=json, render=cost.render)


@app.command("memory")
def memory(
    molecules: Annotated[int, typer.Option(help="Made-up molecules in the store.")] = 5_000_000,
    steps: Annotated[int, typer.Option(help="Training steps.")] = 100,
    folder: Annotated[Path | None, typer.Option(help="Where the store is written.")] = None,
    json: Json = False,
) -> None:
    """Peak memory of training on a store larger than memory should have to hold."""
    from zoo.bench import memory

    result = memory.bench_memory(molecules=molecules, steps=steps, folder=folder)
    _emit(result, json=json, render=memory.render)


@app.command("startup")
def startup(
    name: Name = "schnet-qm9", repeats: Repeats = 9, force: Force = False, json: Json = False
) -> None:
    """Seconds of `import zoo`, `zoo ls` and `zoo.load`."""
    from zoo.bench import startup

    result = startup.bench_startup(name=name, repeats=repeats, force=force)
    _emit(result, json=json, render=startup.render)
