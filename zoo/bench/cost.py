"""What graphs cost: a measured speed and a dated price list."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from zoo.errors import RequestError

PRICES = Path(__file__).with_name("prices.yaml")


class Price(BaseModel):
    """An accelerator's price, when and where it was asked."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    device: str
    dollars_per_hour: float = Field(gt=0)
    date: str = Field(pattern=r"^\d{4}(-\d\d){0,2}$")
    source: str


def bench_cost(
    *, graphs_per_s: float | None = None, result: Path | None = None, prices: Path | None = None
) -> dict[str, Any]:
    """Dollars for a million graphs at each price of a list; JSON-able.

    The speed is given, or that of a `zoo bench train` result. RequestError for a speed that isn't
    positive, or files that aren't what they should be.
    """
    if (graphs_per_s is None) == (result is None):
        raise RequestError("give a speed (--graphs-per-s) or a result of `zoo bench train`")
    speed = graphs_per_s if graphs_per_s is not None else _speed(result or Path())
    if not 0 < speed < float("inf"):
        raise RequestError(f"graphs per second are a positive number, not {speed}")
    hours = 1e6 / speed / 3600
    rows = [
        {**price.model_dump(), "dollars_per_million": price.dollars_per_hour * hours}
        for price in _prices(prices or PRICES)
    ]
    return {"bench": "cost", "graphs_per_s": speed, "rows": rows}


def _speed(path: Path) -> float:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return float(content["zoo_graphs_per_s"])
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RequestError(f"{path} isn't a result of `zoo bench train --json`") from error


def _prices(path: Path) -> list[Price]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        content = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
        for row in content:
            row["date"] = str(row["date"])  # YAML takes some dates for dates
        return TypeAdapter(list[Price]).validate_python(content)
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from error
    except (YAMLError, ValidationError, TypeError, KeyError) as error:
        first = str(error).splitlines()[0]
        raise RequestError(
            f"{path} is no price list: {first}\n"
            "each row has device, dollars_per_hour, date (2023-03) and source"
        ) from error


def render(result: Mapping[str, Any]) -> str:
    """A result of `bench_cost` for a reader."""
    lines = [f"at {result['graphs_per_s']:,.0f} graphs/s, a million graphs cost"]
    for row in result["rows"]:
        lines.append(
            f"  {row['dollars_per_million']:8.3f} $ on {row['device']} at "
            f"{row['dollars_per_hour']:.2f} $/h ({row['date']}; {row['source']})"
        )
    return "\n".join(lines)
