"""One value on stdout: for people, or as one JSON object."""

from __future__ import annotations

import json as _json
import math
import os
from collections.abc import Callable, Mapping
from typing import Any


def emit(value: Any, *, json: bool, text: Callable[[], str]) -> None:
    if os.environ.get("RANK", "0") == "0":  # of torchrun's processes, one speaks
        print(_json.dumps(_plain(value), indent=1) if json else text())


def _plain(value: Any) -> Any:
    """The value as JSON has it, which knows no NaN and no infinity: null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)
