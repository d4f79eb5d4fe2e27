"""The backends of a recipe's training step, side by side: which one a card should name."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, get_args

from zoo import registry
from zoo.backends import Backend
from zoo.bench.machine import check_quiet, describe
from zoo.bench.turns import alternate, load_facts, spread
from zoo.errors import RequestError, UnavailableError


def bench_backends(
    name: str = "schnet-qm9",
    *,
    preset: str = "full",
    overrides: Sequence[str] = (),
    repeats: int = 5,
    seconds: float = 2.0,
    force: bool = False,
) -> dict[str, Any]:
    """Graphs/s of the recipe's training step under each backend, on the same packs; JSON-able.

    `fastest` is the one with the highest median, `card` the one that the entry's card names. Turns
    of `seconds`; the time to compile stands beside (`first_step_s`). ZooError when something else
    uses the cores, unless `force`.
    """
    from zoo.bench.sides import Side, open_recipe, zoo_side
    from zoo.recipes.config import with_overrides
    from zoo.training.versions import versions

    if repeats < 1 or seconds <= 0:
        raise RequestError("a bench needs at least one repeat and some seconds")
    before = check_quiet(force=force)
    config, data, notes = open_recipe(name=name, preset=preset, overrides=overrides)
    sides: dict[str, Side] = {}
    first: dict[str, float] = {}
    for backend in get_args(Backend):
        chosen = with_overrides(config, [f"train.backend={backend}"], where=name)
        try:
            side = zoo_side(config=chosen, data=data)
        except UnavailableError as error:
            notes.append(f"{backend} is left out: {str(error).splitlines()[0]}")
            continue
        began = time.monotonic()
        side.run(seconds=0)
        first[backend] = time.monotonic() - began
        side.warm_up()
        sides[backend] = side
    rounds = alternate(
        sides={b: lambda s=side: s.run(seconds=seconds) for b, side in sides.items()},  # type: ignore[misc]
        repeats=repeats,
        force=force,
        title=f"{name} backends",
    )
    speeds = {backend: spread(values) for backend, values in rounds.values.items()}
    return {
        "bench": "backends",
        "entry": config.entry,
        "data": "made up" if config.data.synthetic else "QM9",
        "notes": notes,
        "fastest": max(speeds, key=lambda backend: speeds[backend]["median"]),
        "card": registry.card(name).backend,
        "graphs_per_s": speeds,
        "first_step_s": {backend: round(value, 1) for backend, value in first.items()},
        "batch_shape": dict(data.shape.__dict__),
        "packs_per_step": config.train.accumulate,
        "turn_seconds": seconds,
        "repeats": repeats,
        "machine": describe(),
        "load": load_facts(before=before, rounds=rounds, force=force),
        "versions": versions(),
    }


def render(result: dict[str, Any]) -> str:
    """A result of `bench_backends` for a reader."""
    lines = [f"training {result['entry']} on {result['data']}, by backend"]
    for backend, speed in result["graphs_per_s"].items():
        lines.append(
            f"  {backend:<9} {speed['median']:8,.0f} graphs/s "
            f"({speed['min']:,.0f} to {speed['max']:,.0f}), "
            f"first step {result['first_step_s'][backend]:.1f} s"
        )
    lines.append(f"  fastest: {result['fastest']}; the card names {result['card']}")
    return "\n".join([*lines, *(f"  note: {note}" for note in result["notes"])])
