"""Reads back what `zoo.backends.exporting` writes, and runs it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.backends.exporting import FORMAT, ONNX_HINT, json_path
from zoo.backends.graph import quiet
from zoo.errors import RequestError, UnavailableError, WeightsError
from zoo.files import sha256_file

_Run = Callable[[dict[str, Tensor]], tuple[Tensor, ...]]


class Exported:
    """An exported step. `facts` is its JSON: inputs, outputs, units, card.

    Called with a batch (more tensors than it takes are ignored) it returns its outputs in order;
    RequestError for a batch of another shape or dtype than the fixed one.
    """

    def __init__(self, *, path: Path, facts: dict[str, Any], run: _Run) -> None:
        self.path, self.facts = path, facts
        self._run = run

    def __repr__(self) -> str:
        shapes = ", ".join(f"{i['name']} {i['dtype']}{i['shape']}" for i in self.facts["inputs"])
        return f"<{self.path.name}: {shapes}>"

    def __call__(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        given: dict[str, Tensor] = {}
        for wanted in self.facts["inputs"]:
            name = wanted["name"]
            if name not in batch:
                raise RequestError(f"{self.path.name} needs the input {name!r}")
            value = batch[name]
            found = (str(value.dtype).removeprefix("torch."), list(value.shape))
            if found != (wanted["dtype"], wanted["shape"]):
                raise RequestError(
                    f"{self.path.name} takes {name} as {wanted['dtype']}{wanted['shape']}, "
                    f"not {found[0]}{found[1]}: its shapes are fixed"
                )
            given[name] = value.contiguous()
        return self._run(given)


def load(path: str | Path) -> Exported:
    """An exported file, held to the sha256 in the JSON beside it before anything reads it.

    RequestError where there is none, WeightsError for a damaged or changed one, UnavailableError
    where what runs it is missing (onnxruntime).
    """
    path = Path(path)
    try:
        facts: dict[str, Any] = json.loads(json_path(path).read_text(encoding="utf-8"))
        form, files = facts["form"], dict(facts["files"])
        if facts["format"] != FORMAT:
            raise WeightsError(f"{json_path(path)} has the format {facts['format']}, not {FORMAT}")
    except OSError as error:
        raise RequestError(
            f"no exported model at {path}: {json_path(path).name} is missing"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{json_path(path)} is damaged; export the model anew") from error
    for name, digest in files.items():
        place = path.with_name(name)
        if not place.is_file():
            raise WeightsError(f"{place} is missing; export the model anew")
        if sha256_file(place) != digest:
            raise WeightsError(
                f"{place} isn't the file that was exported (another sha256); export the model anew"
            )
    if form not in _RUNNERS or path.name not in files:
        raise WeightsError(f"{json_path(path)} is damaged; export the model anew")
    with quiet():
        return Exported(path=path, facts=facts, run=_RUNNERS[form](path, facts))


def _as_tuple(values: Any) -> tuple[Tensor, ...]:
    return tuple(values) if isinstance(values, list | tuple) else (values,)


def _pt2(path: Path, facts: Mapping[str, Any]) -> _Run:
    module = torch.export.load(path).module()

    def run(batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return _as_tuple(module(**batch))

    return run


def _aoti(path: Path, facts: Mapping[str, Any]) -> _Run:
    from torch._inductor import aoti_load_package

    package: Any = aoti_load_package(str(path))
    return lambda batch: _as_tuple(package(**batch))


def _onnx(path: Path, facts: Mapping[str, Any]) -> _Run:
    try:
        import onnxruntime
    except ImportError as error:
        raise UnavailableError(f"ONNX needs the package onnxruntime\n{ONNX_HINT}") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output["name"] for output in facts["outputs"]]

    def run(batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        given = {name: value.numpy() for name, value in batch.items()}
        return tuple(torch.from_numpy(value) for value in session.run(names, given))

    return run


_RUNNERS: dict[str, Callable[[Path, Mapping[str, Any]], _Run]] = {
    "pt2": _pt2,
    "aoti": _aoti,
    "onnx": _onnx,
}
