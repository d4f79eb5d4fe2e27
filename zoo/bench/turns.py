"""Measuring two sides fairly: turn by turn, several rounds, median and spread."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from zoo.bench.machine import QUIET, Load, LoadMeter, busy_error


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """One value per round of each side, and the load during each round."""

    values: dict[str, list[float]]
    loads: list[Load]
    repeated: int


def alternate(
    *, sides: Mapping[str, Callable[[], float]], repeats: int, force: bool, title: str
) -> Rounds:
    """Give each side its turn, `repeats` rounds, in reverse order every other round.

    A round during which other processes used the cores is measured again; when that has happened
    `repeats` times, ZooError. `force` takes every round.
    """
    from tqdm import tqdm

    values: dict[str, list[float]] = {name: [] for name in sides}
    loads: list[Load] = []
    repeated = 0
    order = list(sides)
    terminal = sys.stderr.isatty()
    with tqdm(
        total=repeats * len(order), desc=title, unit="turn", leave=False, disable=not terminal
    ) as bar:
        while len(loads) < repeats:
            meter = LoadMeter()
            row = {}
            for name in order if len(loads) % 2 == 0 else reversed(order):
                row[name] = sides[name]()
                bar.update()
            load = meter.read()
            if load.others > QUIET and not force:
                repeated += 1
                if repeated >= repeats:
                    raise busy_error(load)
                bar.update(-len(order))
                continue
            loads.append(load)
            for name, value in row.items():
                values[name].append(value)
    return Rounds(values=values, loads=loads, repeated=repeated)


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median, extremes and quartiles of some repeats, and the repeats themselves."""
    low, middle, high = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
    return {
        "median": middle,
        "min": min(values),
        "max": max(values),
        "quartiles": [low, high],
        "values": [float(f"{v:.6g}") for v in values],
    }


def load_facts(*, before: Load, rounds: Rounds, force: bool) -> dict[str, Any]:
    """What a result says of the load: just before, and the worst of its rounds [cores]."""
    return {
        "before": {k: round(v, 3) for k, v in asdict(before).items()},
        "others_in_rounds_max": round(max(load.others for load in rounds.loads), 3),
        "others_in_rounds_median": round(statistics.median(x.others for x in rounds.loads), 3),
        "stolen_in_rounds_max": round(max(load.stolen for load in rounds.loads), 3),
        "rounds_repeated": rounds.repeated,
        "allowed": QUIET,
        "forced": force,
    }
