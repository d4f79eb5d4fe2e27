"""What `zoo check` does: an entry's steps, or a class of the user's, against a backend."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zoo.backends.check import TARGETS, Target, check
from zoo.backends.graph import Step
from zoo.errors import RequestError, UnavailableError, unknown
from zoo.recipes.config import Config, load_config, with_overrides
from zoo.recipes.exporting import predict_step
from zoo.recipes.tasks import open_task

MADE_UP = 2000
"""Molecules to make up where the data isn't on the machine: only their sizes matter here."""

Parts = dict[str, tuple[nn.Module, Step, Mapping[str, Tensor], bool]]


def check_named(
    name: str,
    *,
    backend: str = "ipu",
    example: str | Path | None = None,
    overrides: tuple[str, ...] = (),
    preset: str = "full",
) -> dict[str, Any]:
    """See `zoo.check`."""
    target = next((one for one in TARGETS if one == backend), None)
    if target is None:
        raise unknown(kind="backend to check", name=backend, known=TARGETS)
    path, colon, attribute = name.rpartition(":")
    notes: list[str] = []
    if colon and path.endswith(".py"):
        if overrides or preset != "full":
            raise RequestError("overrides and a preset are for entries, not for a class of yours")
        parts = _own(Path(path), attribute, example=example)
    else:
        if example is not None:
            raise RequestError("--example is for a class of yours; an entry brings its own")
        config = load_config(name, preset=preset, overrides=overrides)
        parts, notes = _entry(config)
    steps = {
        step: check(module=module, step=function, batch=batch, backend=target, training=training)
        for step, (module, function, batch, training) in parts.items()
    }
    return _report(name, target, steps, notes)


def _report(
    name: str, backend: Target, steps: dict[str, dict[str, Any]], notes: list[str]
) -> dict[str, Any]:
    findings = [
        {"step": step, **finding.as_dict()}
        for step, found in steps.items()
        for finding in found.pop("findings")
    ]
    for found in steps.values():
        found.pop("backend")
    if backend == "ipu":
        notes = [*notes, "checked statically against PopTorch 3.4, not run on an IPU"]
    return {
        "subject": name,
        "backend": backend,
        "ok": all(found["ok"] for found in steps.values()),
        "findings": findings,
        "steps": steps,
        "notes": notes,
    }


def _entry(config: Config) -> tuple[Parts, list[str]]:
    notes = []
    try:
        task = open_task(config)
    except UnavailableError as error:
        notes.append(f"shapes of made-up molecules: {str(error).splitlines()[0]}")
        config = with_overrides(config, [f"data.synthetic={MADE_UP}"], where="check")
        task = open_task(config)
    batch = task.train_loader.example()
    shape = task.shape
    notes.append(f"at {shape.nodes} nodes, {shape.edges} edges, {shape.graphs} graphs")
    return {
        "training": (task.module, task.loss, batch, True),
        "inference": (task.module, predict_step, batch, False),
    }, notes


def _own(path: Path, attribute: str, *, example: str | Path | None) -> Parts:
    """A class in a file, with the inputs that its `example()` or an exported program gives."""
    if not path.is_file():
        raise RequestError(f"there is no file {path}")
    known = f"zoo_check_{path.stem}"
    spec = importlib.util.spec_from_file_location(known, path)
    if spec is None or spec.loader is None:
        raise RequestError(f"{path} is no Python file")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[known] = loaded
    sys.path.insert(0, str(path.parent.absolute()))
    try:
        spec.loader.exec_module(loaded)
    except Exception as error:
        raise RequestError(f"{path} can't be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    classes = {n: c for n, c in vars(loaded).items() if _is_module(c) and c.__module__ == known}
    if attribute not in classes:
        raise unknown(kind=f"torch module in {path}", name=attribute, known=classes)
    cls = classes[attribute]
    try:
        module: nn.Module = cls()
    except TypeError as error:
        raise RequestError(
            f"{attribute}() can't be made without arguments: {error}\n"
            "give them defaults, or wrap it in a class that has none"
        ) from error
    batch = _inputs(module, _example(cls, example), where=f"{path}:{attribute}")

    def step(module: nn.Module, batch: Mapping[str, Tensor]) -> Any:
        return module(**batch)

    return {"forward": (module, step, batch, True)}


def _is_module(found: Any) -> bool:
    return inspect.isclass(found) and issubclass(found, nn.Module)


def _example(cls: Any, example: str | Path | None) -> Any:
    if example is not None:
        program = torch.export.load(example)
        if program.example_inputs is None:
            raise RequestError(f"{example} holds no example inputs")
        return program.example_inputs
    if not hasattr(cls, "example"):
        raise RequestError(
            f"{cls.__name__} has no example inputs\n"
            "give it a static method example() that returns them, or name a file with --example"
        )
    return cls.example()


def _inputs(module: nn.Module, given: Any, *, where: str) -> dict[str, Tensor]:
    """Example inputs by the names in the module's forward."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(given, Mapping):
        kwargs = dict(given)
    elif (
        isinstance(given, tuple)
        and len(given) == 2
        and isinstance(given[0], tuple)
        and isinstance(given[1], Mapping)
    ):
        args, kwargs = given[0], dict(given[1])
    else:
        args = tuple(given) if isinstance(given, list | tuple) else (given,)
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise RequestError(
            f"the example inputs of {where} don't fit its forward: {error}"
        ) from error
    wrong = [n for n, v in bound.arguments.items() if not isinstance(v, Tensor)]
    if wrong:
        raise RequestError(
            f"{where}: the example input {wrong[0]} is no tensor\n"
            "what isn't a tensor belongs in the constructor: it is compiled in"
        )
    return dict(bound.arguments)
