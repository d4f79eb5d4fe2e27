"""One prepared run for a machine with a GPU: the same answers as the CPU's, and how fast.

Written for a machine that is lent for minutes: every part has a share of the time, and what has
been measured is kept when a later part fails.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import nn

import zoo
from zoo.batching.pack import Batch
from zoo.bench.sides import Side, open_any, zoo_side
from zoo.errors import RequestError
from zoo.recipes.config import with_overrides
from zoo.recipes.energy import EnergyData

VARIANTS: dict[str, dict[str, Any] | None] = {
    "eager": None,
    "compiled": {},
    "cuda graphs": {"mode": "reduce-overhead"},
}
"""How a step runs: torch.compile's arguments, None for none."""


def bench_gpu(
    *,
    device: str = "cuda",
    preset: str = "full",
    seconds: float = 5.0,
    minutes: float = 10.0,
    packs: int = 8,
) -> dict[str, Any]:
    """Parity and speed of each entry on a device; JSON-able.

    For each entry: predictions of `packs` packs by the same weights on both devices, compared in
    the property's unit; graphs/s of prediction and of training, eager, compiled, and compiled with
    CUDA graphs, `seconds` each. Stops beginning new parts after `minutes`; what a part failed of is
    told in its place. RequestError where torch sees no such device.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise RequestError("torch sees no GPU here; --device cpu tries the script out")
    if seconds <= 0 or minutes <= 0 or packs < 1:
        raise RequestError("a bench needs some seconds, some minutes and at least one pack")
    from zoo.training.versions import versions

    until = time.monotonic() + 60 * minutes
    found: dict[str, Any] = {}
    left_out: list[str] = []
    for name in sorted({entry.partition(".")[0] for entry in zoo.list()}):
        parts = _parts(name, device=device, preset=preset, seconds=seconds, packs=packs)
        rows: dict[str, Any] = {}
        for title, part in parts:
            if time.monotonic() > until:
                left_out.append(f"{name}: {title}")
                continue
            try:
                rows[title] = part()
            except Exception as error:
                rows[title] = {"failed": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
        found[name] = rows
    return {
        "bench": "gpu",
        "device": _device_facts(device),
        "preset": preset,
        "turn_seconds": seconds,
        "entries": found,
        "left_out": left_out,
        "versions": versions(),
    }


def _parts(
    name: str, *, device: str, preset: str, seconds: float, packs: int
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is measured of an entry, in order of worth."""
    config, data, notes = open_any(name=name, preset=preset, overrides=[], precision="float32")
    here = zoo_side(config=config, data=data)
    there = zoo_side(
        config=with_overrides(config, [f"train.device={device}"], where=name), data=data
    )
    loader: Any = here.state.task.train_loader
    batches = list(islice(loader, packs))
    unit, std = "(scaled)", 1.0
    if isinstance(data, EnergyData):
        unit, std = data.unit, data.labels.std

    yield "data", lambda: {"notes": notes, "batch_shape": dict(data.shape.__dict__)}
    yield "parity", lambda: _parity(here, there, batches, unit=unit, std=std)
    for variant, options in VARIANTS.items():
        yield (
            f"prediction, {variant}",
            lambda options=options: _prediction(there, batches, options, seconds=seconds),  # type: ignore[misc]
        )
    for variant, options in VARIANTS.items():
        yield (
            f"training, {variant}",
            lambda options=options: _training(there, options, seconds=seconds),  # type: ignore[misc]
        )


def _parity(
    here: Side, there: Side, batches: list[Batch], *, unit: str, std: float
) -> dict[str, Any]:
    """The same weights on both devices: the largest difference of a prediction, and of a
    gradient's norm.
    """
    mine, theirs = here.state.task.module, there.state.task.module
    theirs.load_state_dict(mine.state_dict())
    errors, norms = [], []
    for batch in batches:
        with torch.no_grad():
            a, b = mine.eval()(batch), theirs.eval()(_moved(batch, theirs))
        real = batch["graphs_mask"]
        errors.append(float((a - b.cpu())[real].abs().max()) * std)
    for module, side in ((mine, here), (theirs, there)):
        summed, _ = side.loss(module.train(), _moved(batches[0], module))
        gradients = torch.autograd.grad(summed, [p for p in module.parameters() if p.requires_grad])
        norms.append(float(torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients]))))
    return {
        "largest_difference": max(errors),
        "unit": unit,
        "gradient_norms": norms,
        "gradient_norm_relative_difference": abs(norms[0] - norms[1]) / max(norms[0], 1e-30),
    }


def _prediction(
    side: Side, batches: list[Batch], options: dict[str, Any] | None, *, seconds: float
) -> dict[str, Any]:
    module = side.state.task.module.eval()
    ready = [_moved(batch, module) for batch in batches]
    graphs = [int(batch["graphs_mask"].sum()) for batch in batches]
    run = module if options is None else _compiled(module, options)
    began = time.monotonic()
    with torch.no_grad():
        run(ready[0])
        _wait(module)
        first = time.monotonic() - began
        speeds: list[float] = []
        until = time.monotonic() + seconds
        while not speeds or time.monotonic() < until:
            start = time.perf_counter()
            for batch in ready:
                run(batch)
            _wait(module)
            speeds.append(sum(graphs) / (time.perf_counter() - start))
    return {"graphs_per_s": statistics.median(speeds), "first_s": round(first, 2)}


def _training(side: Side, options: dict[str, Any] | None, *, seconds: float) -> dict[str, Any]:
    """The loop's own step, batch making included."""
    loss = side.state.task.loss
    chosen = replace(side, loss=loss if options is None else _compiled(loss, options))
    began = time.monotonic()
    chosen.run(seconds=0, steps=1)
    first = time.monotonic() - began
    chosen.warm_up()
    speed = chosen.run(seconds=seconds)
    return {"graphs_per_s": speed, "first_s": round(first, 2), **chosen.figures()}


def _compiled(function: Any, options: dict[str, Any]) -> Any:
    import torch._dynamo

    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, dynamic=False, **options)


def _moved(batch: Batch, module: nn.Module) -> Batch:
    device = next(module.parameters()).device
    return {name: value.to(device) for name, value in batch.items()}


def _wait(module: nn.Module) -> None:
    if next(module.parameters()).is_cuda:
        torch.cuda.synchronize()


def _device_facts(device: str) -> dict[str, Any]:
    if device != "cuda":
        return {"name": device}
    facts = torch.cuda.get_device_properties(0)
    return {
        "name": facts.name,
        "memory_gb": round(facts.total_memory / 2**30, 1),
        "capability": f"{facts.major}.{facts.minor}",
    }


def render(result: dict[str, Any]) -> str:
    """A result of `bench_gpu` for a reader."""
    lines = [f"on {result['device']['name']}"]
    for name, rows in result["entries"].items():
        lines.append(name)
        for title, row in rows.items():
            if "failed" in row:
                lines.append(f"  {title:<24} failed: {row['failed']}")
            elif "graphs_per_s" in row:
                speed, first = row["graphs_per_s"], row["first_s"]
                lines.append(f"  {title:<24} {speed:10,.0f} graphs/s, first {first:.1f} s")
            elif title == "parity":
                lines.append(
                    f"  {title:<24} predictions within {row['largest_difference']:.2g} "
                    f"{row['unit']}, gradient norms within "
                    f"{row['gradient_norm_relative_difference']:.1e}"
                )
    return "\n".join([*lines, *(f"  left out for time: {what}" for what in result["left_out"])])
