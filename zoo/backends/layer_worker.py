"""Judges one layer of PyG: eager, exported, compiled, and by what PopTorch lowers.

It does so in a process of its own, which layers.py kills when a layer takes too long, and starts
anew where a layer ended it. One line of JSON comes in for each layer and one goes out.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zoo.backends.check import Target, check_each
from zoo.backends.findings import Finding, merged
from zoo.backends.graph import first_line, quiet
from zoo.backends.ipu.pyg import refusal
from zoo.backends.layer_inputs import Made, built, called, tensors
from zoo.backends.layers import blank_row

# What torch puts in front of what went wrong.
_ADVICE = "Consider annotating your code using torch._check*(). "
_ORPHANED = 5.0  # seconds past the limit, by which the parent has certainly killed this process
COLUMNS: dict[str, Target] = {"export": "export", "compile": "inductor", "ipu": "ipu"}
"""The backend that each of a row's verdicts is about."""


class Called(nn.Module):
    """A layer, and what it is called with; a batch brings the tensors."""

    def __init__(self, *, layer: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self.layer = layer
        self.arguments = dict(arguments)

    def forward(self, batch: Mapping[str, Tensor]) -> list[Tensor]:
        given = {}
        for name, value in self.arguments.items():
            if isinstance(value, Made):
                given[name] = value.make(batch)
            else:
                given[name] = batch[value] if isinstance(value, str) else value
        found = list(_tensors(self.layer(**given)))
        # What can have a gradient comes first: a check differentiates the first output.
        return [t for t in found if t.is_floating_point()] + [
            t for t in found if not t.is_floating_point()
        ]


def judge_layer(*, category: str, name: str, module: str) -> dict[str, Any]:
    """A row: verdicts (None where the layer can't be tried here), findings, and the reason."""
    row = blank_row(category=category, name=name)
    torch.manual_seed(0)
    try:
        target = getattr(importlib.import_module(module), name)
        layer, given = built(target)
        row["built_with"] = {key: _shown(value) for key, value in given.items()}
        arguments = called(target)
        batch = {key: tensors()[key] for key in _needed(arguments)}
        row["called_with"] = {
            key: _shown(batch[value] if isinstance(value, str) else value)
            for key, value in arguments.items()
        }
    except Exception as error:
        row["reason"] = _told(error)
        return row
    bound = Called(layer=layer, arguments=arguments)
    try:
        with quiet():
            training = _run(bound, batch)
    except (ImportError, NotImplementedError) as error:
        row["reason"] = _told(error)
        return row
    except Exception as error:
        return row | {"eager": False, "reason": f"fails on its inputs: {_told(error)}"}
    reports = check_each(
        module=bound,
        step=_step,
        batch=batch,
        backends=tuple(COLUMNS.values()),
        training=training,
    )
    row |= {column: reports[backend]["ok"] for column, backend in COLUMNS.items()}
    row |= {"eager": True, "refused_by_pyg": refusal(lambda: bound(batch)) is not None}
    row["findings"] = _findings(reports)
    row["reason"] = _reason(row["findings"])
    return row


def _step(module: nn.Module, batch: dict[str, Tensor]) -> Any:
    return module(batch)


def _needed(arguments: Mapping[str, Any]) -> list[str]:
    """The tensors that a call takes, each once."""
    named: list[str] = []
    for value in arguments.values():
        named += value.needs if isinstance(value, Made) else [value] * isinstance(value, str)
    return list(dict.fromkeys(named))


def _run(module: nn.Module, batch: dict[str, Tensor]) -> bool:
    """Run a layer forward and, where its output has a gradient, backward: whether it had."""
    found = module(batch)
    if not found:
        raise NotImplementedError
    differentiable = bool(found[0].requires_grad)
    if differentiable:
        found[0].sum().backward()
        module.zero_grad(set_to_none=True)
    return differentiable


def _findings(reports: Mapping[Target, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The findings of all backends, each once, with the columns that it counts in."""
    found: dict[Finding, list[str]] = {}
    for column, backend in COLUMNS.items():
        for one in merged(reports[backend]["findings"]):
            found.setdefault(replace(one, count=1), []).append(column)
    return [
        {
            "kind": one.kind,
            "level": one.level,
            "operator": one.operator,
            "place": f"{Path(one.file).name}:{one.line}" if one.file else "",
            "says": one.says,
            "columns": columns,
        }
        for one, columns in found.items()
    ]


def _reason(findings: list[dict[str, Any]]) -> str:
    """Why each column that says no does: its first error, rather one that says what to change."""
    said: dict[str, list[str]] = {}
    for column in COLUMNS:
        errors = [f for f in findings if f["level"] == "error" and column in f["columns"]]
        for first in sorted(errors, key=lambda f: f["kind"] == "not-exportable")[:1]:
            said.setdefault(_summary(first), []).append(column)
    return "; ".join(f"{', '.join(columns)}: {what}" for what, columns in said.items())


def _summary(finding: Mapping[str, Any]) -> str:
    what = finding["kind"]
    operator = finding["operator"].partition(".")[0]
    if finding["kind"] == "not-exportable":
        what = finding["says"].partition(": ")[2].removeprefix(_ADVICE)
        what = textwrap.shorten(what, 60, placeholder=" ...")
    elif operator and operator != "_local_scalar_dense":  # whose name says less than its kind
        what = f"{what}: {operator}"
    return f"{what} ({finding['place']})" if finding["place"] else what


def _told(error: Exception) -> str:
    if isinstance(error, NotImplementedError):
        return "a base class"
    return first_line(error) if str(error).strip() else type(error).__name__


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors that a layer gives, however it holds them."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))
    elif hasattr(value, "to_dict"):  # PyG's Data and Batch
        yield from _tensors(value.to_dict())


def _shown(value: Any) -> Any:
    """An argument as JSON: a tensor's type and shape, a module's name."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, Made):
        return f"of {', '.join(value.needs)}"
    if isinstance(value, nn.Module):
        return type(value).__name__
    if isinstance(value, Mapping):
        return {"-".join(k) if isinstance(k, tuple) else k: _shown(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(one) for one in value]
    return value


def serve(*, seconds: float) -> None:
    """Answer requests until the parent closes its end, or is gone; each within `seconds`, by which
    the parent has killed this process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to act on
    # Whatever prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        _alarm(seconds + _ORPHANED)
        # An empty line asks whether this process is up, which is no layer's time.
        answer = judge_layer(**json.loads(line)) if line.strip() else {}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        _alarm(0)


def _alarm(seconds: float) -> None:
    """Have the system end this process, if the parent is no longer there to do it."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)
