"""What `zoo bench ops` measures, in a process of its own.

Torch's threads wait there as they do in anyone's script, actively. Under a command of `zoo` they
sleep between two operators, and to wake them takes as long as a small operator does.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.backends import compiled
from zoo.backends.graph import first_line
from zoo.bench.machine import describe
from zoo.bench.ops_forms import Case, check, make

UNTIMED = 5
"""Calls at the beginning of a turn, which find the cache full of what another form left."""


def worker() -> Mapping[str, Callable[..., Any]]:
    """Handlers of the process."""
    return {"measure": measure, "describe": describe}


def measure(
    *,
    op: str,
    inputs: int,
    features: int,
    outputs: int,
    repeats: int,
    turn_ms: float,
    compiling: bool,
) -> dict[str, Any]:
    """A row of the result: each form's median seconds, and what the task moves and computes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch on how new its index_reduce and sparse matrices are
        case = make(op, inputs=inputs, features=features, outputs=outputs)
        check(case)
    forms: dict[str, Callable[[], Tensor]] = dict(case.eager)
    if case.ours:
        forms["ours"] = case.ours
    if case.ours_sorted:
        forms["ours, sorted"] = case.ours_sorted
    seconds = _turns(forms, repeats=repeats, turn_ms=turn_ms)
    best = min(case.eager, key=lambda name: seconds[name])
    row: dict[str, Any] = {
        "op": op,
        "inputs": inputs,
        "features": features,
        "outputs": outputs,
        "elements": max(inputs, outputs) * features,
        "eager_s": seconds[best],
        "eager_form": best,
        "ours_s": seconds.get("ours"),
        "ours_sorted_s": seconds.get("ours, sorted"),
        "compiled_s": None,
        "speedup": seconds[best] / seconds["ours"] if case.ours else None,
        "bytes": case.moved,
        "flops": case.flops,
        "intensity": case.flops / case.moved,
        "forms_s": {name: seconds[name] for name in case.eager},
    }
    if compiling:
        row |= _compiled(case, best, repeats=repeats, turn_ms=turn_ms)
    fastest = min(seconds[best], seconds.get("ours", seconds[best]))
    row["gb_per_s"] = case.moved / fastest / 1e9
    row["gflops"] = case.flops / fastest / 1e9
    return row


def _turns(
    forms: Mapping[str, Callable[[], Tensor]], *, repeats: int, turn_ms: float
) -> dict[str, float]:
    """Median seconds of a call of each form, the forms taking turns of `turn_ms`."""
    often = {}
    for name, form in forms.items():
        _seconds(form, 1)
        once = _seconds(form, 1)
        if once < turn_ms * 1e-3:  # it may have found the cache full of another's
            once = _seconds(form, UNTIMED) / UNTIMED
        often[name] = max(1, int(turn_ms * 1e-3 / once))
    found: dict[str, list[float]] = {name: [] for name in forms}
    for number in range(repeats):
        order: Iterable[str] = forms if number % 2 == 0 else reversed(list(forms))
        for name in order:
            form, count = forms[name], often[name]
            if count > 1:
                _seconds(form, UNTIMED)
            found[name].append(_seconds(form, count) / count)
    return {name: statistics.median(values) for name, values in found.items()}


def _seconds(form: Callable[[], Tensor], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        form()
    return time.perf_counter() - began


def _compiled(case: Case, best: str, *, repeats: int, turn_ms: float) -> dict[str, Any]:
    """Seconds of the fastest eager form compiled, or why there are none."""
    torch._dynamo.reset()
    try:
        form = compiled(case.eager[best], backend="inductor")
        seconds = _turns({"compiled": form}, repeats=repeats, turn_ms=turn_ms)["compiled"]
    except Exception as error:  # one form that can't be compiled is a fact, not the end
        return {"compiled_failed": first_line(error)}
    return {"compiled_s": seconds}
