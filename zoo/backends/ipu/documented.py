"""What Graphcore documents of PyG's layers, and why our static verdict on some of them differs."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

LAYERS = Path(__file__).with_name("pyg_layers.tsv")
EXPLANATIONS = Path(__file__).with_name("pyg_explanations.tsv")
_RUNS = {"supported", "tested_not_listed", "example_only"}


class Documented(NamedTuple):
    """One layer's row. `constraints` are tags such as add_self_loops=False, comma-separated."""

    category: str
    status: str
    constraints: str


@functools.cache
def documented() -> dict[str, Documented]:
    """The documented layers by name."""
    found = {}
    for line in _lines(LAYERS):
        category, name, status, *rest = line.split("\t")
        found[name] = Documented(category, status, rest[0] if rest else "")
    return found


@functools.cache
def explanations() -> dict[str, str]:
    """Why a verdict differs from the documented status, by the layer's name."""
    return dict(line.split("\t", 1) for line in _lines(EXPLANATIONS))


def compared(row: dict[str, Any]) -> dict[str, Any]:
    """A layer's row with what is documented of it: `agrees` is None where there is nothing to
    compare, the status being absent or to be determined, or the layer not tried here.
    """
    name, verdict = row["name"], row["ipu"]
    known = documented().get(name)
    comparable = known is not None and verdict is not None and known.status != "tbd"
    agrees = (known.status in _RUNS) == verdict if known and comparable else None
    return {
        **row,
        "documented": known.status if known else None,
        "constraints": known.constraints if known else "",
        "agrees": agrees,
        "explanation": explanations().get(name, "") if agrees is False else "",
    }


def _lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
