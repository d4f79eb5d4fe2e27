"""The folder that `zoo export --format ipu` writes: a model, its data and a script for PopTorch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save_file
from torch import Tensor
from torch.export import ExportedProgram

from zoo.backends.ipu.source import module_source, write_class
from zoo.errors import RequestError
from zoo.files import disk, sha256_file

WriteWeights = Callable[..., object]
"""Writes a weight file to `path=`."""
SCRIPT = Path(__file__).with_name("run_ipu.py")


def write_folder(
    *,
    folder: Path,
    training: ExportedProgram,
    inference: ExportedProgram,
    prefix: str,
    weights: Mapping[str, WriteWeights],
    batches: Mapping[str, Iterable[tuple[Mapping[str, Tensor], int]]],
    options: Mapping[str, Any],
    readme: str,
) -> dict[str, int]:
    """Write a model that PopTorch can train and run; returns the packs written of each split.

    `batches` gives, for the splits "train" and "test", packs and the number of known labels in
    each; `weights` writes the files "initial", to train from, and "weights", to predict with.
    `options` becomes options.json, which the user may edit; every other file's sha256 is in
    manifest.json. The folder appears when it is whole; RequestError where it is there already.
    """
    if folder.exists():
        raise RequestError(f"{folder} exists already; move it away first")
    train = write_class(training, name="Train", prefix=prefix, loss=True)
    infer = write_class(inference, name="Infer", prefix=prefix, loss=False)
    partial = folder.with_name(f".{folder.name}.partial")
    with disk(folder):
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir(parents=True)
            source = module_source({"Train": train, "Infer": infer}, title=str(options["entry"]))
            (partial / "model.py").write_text(source, encoding="utf-8")
            shutil.copyfile(SCRIPT, partial / "run_ipu.py")
            (partial / "README.md").write_text(readme, encoding="utf-8")
            for stem, write in weights.items():
                write(path=partial / f"{stem}.safetensors")
            constants = {**train.constants, **infer.constants}
            save_file(constants, partial / "constants.safetensors")
            counts = {
                split: _write_packs(
                    partial / "data" / split,
                    given,
                    names={*train.inputs, *infer.inputs, "graph_id"} - {"share"},
                )
                for split, given in batches.items()
            }
            (partial / "options.json").write_text(
                json.dumps(
                    {
                        **options,
                        "names": train.names,
                        "train_inputs": train.inputs,
                        "infer_inputs": infer.inputs,
                        "changes_buffers": train.changes_buffers,
                    },
                    indent=1,
                    allow_nan=False,
                )
            )
            manifest = {
                path.relative_to(partial).as_posix(): sha256_file(path)
                for path in sorted(partial.rglob("*"))
                if path.is_file() and path.name != "options.json"
            }
            (partial / "manifest.json").write_text(json.dumps(manifest, indent=1))
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return counts


def _write_packs(
    folder: Path, given: Iterable[tuple[Mapping[str, Tensor], int]], *, names: set[str]
) -> int:
    """One .npy per input, all packs of a split in it; written as they come, so that a split of any
    size needs the memory of one pack.
    """
    folder.mkdir(parents=True)
    labels: list[int] = []
    files: dict[str, Any] = {}
    shapes: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
    try:
        for batch, count in given:
            labels.append(count)
            for name in sorted(names & set(batch)):
                array = batch[name].contiguous().numpy()
                if name not in files:
                    files[name] = (folder / f"{name}.raw").open("wb")
                    shapes[name] = (array.dtype, array.shape)
                files[name].write(array.tobytes())
    finally:
        for file in files.values():
            file.close()
    if not labels:
        raise RequestError(f"there is no pack of {folder.name} to write")
    for name, (dtype, shape) in shapes.items():
        raw = folder / f"{name}.raw"
        header = {
            "descr": np.lib.format.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": (len(labels), *shape),
        }
        with (folder / f"{name}.npy").open("wb") as file, raw.open("rb") as values:
            np.lib.format.write_array_header_1_0(file, header)
            shutil.copyfileobj(values, file, 1 << 20)
        raw.unlink()
    np.save(folder / "labels.npy", np.array(labels, np.int64))
    return len(labels)
