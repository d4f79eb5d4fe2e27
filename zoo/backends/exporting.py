"""Ahead-of-time files of a step: torch's `.pt2`, an AOTInductor package, ONNX.

Beside the file stand `<file>.json`, which says what goes in and comes out and holds the sha256 of
the rest, and `<file>.npz`, one real batch with the outputs it must give.
"""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram

from zoo.backends.graph import quiet
from zoo.errors import UnavailableError, ZooError
from zoo.files import disk, replace_file, sha256_file

Form = Literal["pt2", "aoti", "onnx"]
FORMS: tuple[Form, ...] = ("pt2", "aoti", "onnx")
SUFFIX: dict[Form, str] = {"pt2": ".pt2", "aoti": ".aoti.pt2", "onnx": ".onnx"}
FORMAT = 1
ONNX_HINT = 'install it with: pip install "gnn-zoo[onnx]"'


def needs(form: Form) -> None:
    """UnavailableError where what this form is made with isn't on the machine."""
    if form == "aoti" and shutil.which("g++") is None:
        raise UnavailableError(
            "an AOTInductor package is compiled by g++, and there is none on PATH\n"
            "install it (Debian: apt-get install g++) or export to pt2 or onnx"
        )
    for package in ("onnx", "onnxscript", "onnxruntime") if form == "onnx" else ():
        if importlib.util.find_spec(package) is None:
            raise UnavailableError(f"ONNX needs the package {package}\n{ONNX_HINT}")


def write_export(
    *,
    program: ExportedProgram,
    form: Form,
    path: Path,
    example: Mapping[str, Tensor],
    outputs: Sequence[str],
    facts: Mapping[str, Any],
) -> Path:
    """Write a traced step to `path`, with its JSON and its example batch; returns the path.

    `example` is a batch (what the step doesn't read is left out), `outputs` names what comes out in
    order, `facts` goes into the JSON as it is. UnavailableError where a tool is missing or the disk
    refuses, ZooError where the file doesn't give what the step gives.
    """
    needs(form)
    used = inputs_of(program, example)
    with quiet(), torch.no_grad():
        given = program.module()(**used)
    given = given if isinstance(given, tuple) else (given,)
    expected = {name: value.numpy() for name, value in zip(outputs, given, strict=True)}
    with disk(path), tempfile.TemporaryDirectory() as folder:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = Path(folder) / f"model{SUFFIX[form]}"
        with quiet():
            _WRITERS[form](program, made, outputs)
        data = made.read_bytes()
    batch = io.BytesIO()
    arrays: dict[str, Any] = {f"in.{name}": value.numpy() for name, value in used.items()}
    np.savez(batch, **arrays, **{f"out.{name}": value for name, value in expected.items()})
    beside = example_path(path)
    replace_file(beside, batch.getvalue())
    replace_file(path, data)
    content = {
        "format": FORMAT,
        "form": form,
        "files": {place.name: sha256_file(place) for place in (path, beside)},
        "inputs": [_described(name, value) for name, value in used.items()],
        "outputs": [_described(n, torch.from_numpy(v)) for n, v in expected.items()],
        "torch": torch.__version__,
        **facts,
    }
    replace_file(json_path(path), json.dumps(content, indent=1, allow_nan=False).encode())
    _check(path, used, expected)
    return path


def inputs_of(program: ExportedProgram, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a batch that a traced step takes, in its order."""
    return {name: batch[name] for name in program.graph_signature.user_inputs if name in batch}


def json_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def example_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.npz")


def _described(name: str, value: Tensor) -> dict[str, Any]:
    return {
        "name": name,
        "dtype": str(value.dtype).removeprefix("torch."),
        "shape": list(value.shape),
    }


def _write_pt2(program: ExportedProgram, path: Path, outputs: Sequence[str]) -> None:
    torch.export.save(program, path)


def _write_aoti(program: ExportedProgram, path: Path, outputs: Sequence[str]) -> None:
    from torch._inductor import aoti_compile_and_package

    aoti_compile_and_package(program, package_path=str(path))


def _write_onnx(program: ExportedProgram, path: Path, outputs: Sequence[str]) -> None:
    torch.onnx.export(
        program,
        f=str(path),
        dynamo=True,
        external_data=False,
        output_names=list(outputs),
        verbose=False,
    )


_WRITERS = {"pt2": _write_pt2, "aoti": _write_aoti, "onnx": _write_onnx}


def _check(path: Path, used: Mapping[str, Tensor], expected: Mapping[str, np.ndarray]) -> None:
    """A file that is written is read back and held to the step it was made from."""
    from zoo.backends.exported import load

    found = load(path)(used)
    for (name, value), other in zip(expected.items(), found, strict=True):
        error = np.abs(other.numpy() - value).max() / max(np.abs(value).max(), 1e-12)
        if not error <= 1e-4:
            json_path(path).unlink(missing_ok=True)
            raise ZooError(f"{path} gives another {name}: off by {error:.1e} of its largest value")
