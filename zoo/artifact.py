"""The weight file and the checkpoint directory: written, read, versioned.

A weight file is safetensors; its metadata holds one key, `zoo`, with the spec as JSON: everything
that prediction needs, and no measured result, so that the file's hash stays what it is. A
checkpoint is a directory with that file, `state.safetensors` (optimiser, moving averages) and
`state.json` (schedule, sampler position, hashes of the other two). Nothing here is ever pickled.

Reading a spec needs no torch.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from zoo.errors import RequestError, UnavailableError, WeightsError
from zoo.files import find_folder, replace_file, replace_folder, sha256_file

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "FORMAT",
    "Spec",
    "read_spec",
    "read_state",
    "read_weights",
    "sha256_file",
    "weights_path",
    "write_checkpoint",
    "write_weights",
]

FORMAT = 1
WEIGHTS = "weights.safetensors"
MODEL = "model.safetensors"
STATE = "state.safetensors"
STATE_JSON = "state.json"

# One key only: safetensors writes its metadata from a hash map, in an order that changes.
_KEY = "zoo"
_LARGEST_HEADER = 100_000_000


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class BatchShape(_Strict):
    """Slots of every batch the weights were trained with, the padding graph counted."""

    nodes: int = Field(gt=0)
    edges: int = Field(gt=0)
    graphs: int = Field(gt=0)


class PropertySpec(_Strict):
    """A predicted quantity. `reference` says what an energy counts from."""

    name: str
    unit: str
    reference: str = "none"


class Scaling(_Strict):
    """What was subtracted from a label and divided out, in its unit; `per_atom`: times atoms."""

    mean: float
    std: float = Field(gt=0)
    per_atom: bool


class Spec(_Strict):
    """Everything that prediction needs besides the tensors.

    `atom_refs[property][element]` is the energy of a lone atom, in the property's unit. `ranges`
    spans the training data (atoms per molecule, energy per atom ...) as [low, high], for warnings.
    """

    format: int = FORMAT
    entry: str
    task: str
    architecture: str
    arguments: dict[str, Any]
    batch_shape: BatchShape
    properties: list[PropertySpec]
    atom_refs: dict[str, dict[str, float]] = {}
    scaling: dict[str, Scaling] = {}
    elements: list[str] = []
    ranges: dict[str, list[float]] = {}
    extra: dict[str, Any] = {}


def write_weights(*, path: str | Path, tensors: Mapping[str, Tensor], spec: Spec) -> str:
    """Write a weight file, whole or not at all, and return its sha256.

    The same tensors and spec give the same bytes. UnavailableError if the disk refuses.
    """
    data = _pack(tensors, metadata={_KEY: _dump(spec)})
    replace_file(Path(path), data)
    return hashlib.sha256(data).hexdigest()


def read_spec(path: str | Path) -> Spec:
    """The spec of a weight file, without reading its tensors or importing torch.

    WeightsError for a file that is cut short, not safetensors (a pickle, say), not the zoo's, or of
    a newer format; RequestError where there is no file.
    """
    path = Path(path)
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        header = _header(path, start=start, size=size)
        return _parse(path, file.read(header), data_bytes=size - 8 - header)


def read_weights(path: str | Path) -> tuple[Spec, dict[str, Tensor]]:
    """The spec and the tensors of a weight file, on the CPU. Errors as in `read_spec`."""
    path = Path(path)
    spec = read_spec(path)
    return spec, _unpack(path)


def write_checkpoint(
    *,
    directory: str | Path,
    weights: Mapping[str, Tensor],
    spec: Spec,
    state_tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
) -> Path:
    """Write a checkpoint beside its place and rename it there; an older one is replaced.

    A process killed at any moment leaves the older checkpoint or the new one, never a mixture.
    """
    directory = Path(directory)
    data = {
        WEIGHTS: _pack(weights, metadata={_KEY: _dump(spec)}),
        STATE: _pack(state_tensors, metadata=None),
    }
    files = {name: hashlib.sha256(content).hexdigest() for name, content in data.items()}
    text = json.dumps({"format": FORMAT, "files": files, "state": dict(state)}, indent=1)
    replace_folder(directory, {**data, STATE_JSON: text.encode()})
    return directory


def read_state(directory: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of `state.safetensors` and the state of `state.json`.

    WeightsError if a file is not the one that was written; RequestError where there is none.
    """
    directory = find_folder(Path(directory))
    _check_files(directory)
    return _unpack(directory / STATE), dict(_state_json(directory)["state"])


def weights_path(path: str | Path) -> Path:
    """The weight file meant by a weight file, a checkpoint directory or a run's directory: the
    model that finetuning made, its best checkpoint, else its last. In a checkpoint it is held to
    the hash kept beside it.
    """
    path = Path(path)
    if path.is_file():
        return path
    if (path / MODEL).is_file():
        return path / MODEL
    for place in (path, path / "checkpoints" / "best", path / "checkpoints" / "last"):
        directory = find_folder(place)
        if (directory / WEIGHTS).is_file():
            _check_files(directory)
            return directory / WEIGHTS
    if not path.exists():
        raise RequestError(f"no weight file, checkpoint or run at {path}")
    raise RequestError(
        f"{path} is no checkpoint and no run: it has neither {WEIGHTS} nor checkpoints/best"
    )


def trained(folder: Path) -> Path:
    """What a finished run left to be used: its model's file, or its best checkpoint."""
    model = folder / MODEL
    return model if model.is_file() else folder / "checkpoints" / "best"


def _dump(spec: Spec) -> str:
    return json.dumps(
        spec.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False
    )


def _pack(tensors: Mapping[str, Tensor], *, metadata: dict[str, str] | None) -> bytes:
    from safetensors.torch import save

    # A copy of each: safetensors refuses views that share memory, such as tied parameters.
    copies = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    return save(copies, metadata=metadata)


def _unpack(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    # Read, not mapped: a file that is cut short later would end a mapping process with SIGBUS.
    with _open(path) as file:
        data = file.read()
    try:
        return load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise WeightsError(f"{path} is damaged: {error}") from error


def _open(path: Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise RequestError(f"no weight file at {path}") from error
    except OSError as error:
        raise UnavailableError(f"cannot read {path}: {error.strerror}") from error


def _header(path: Path, *, start: bytes, size: int) -> int:
    """The length of the JSON header, from the first eight bytes of a file of `size` bytes."""
    header = int.from_bytes(start, "little")
    possible = len(start) == 8 and 2 <= header <= _LARGEST_HEADER
    # A pickle's first byte may also begin the length of a header; its next seven make that absurd.
    if start[:4] == b"PK\x03\x04" or (start[:1] == b"\x80" and not possible):
        raise WeightsError(
            f"{path} is a pickle, as torch.save writes; those run code when they are read\n"
            "only safetensors files are loaded: convert it where you trust it"
        )
    if not possible:
        raise WeightsError(f"{path} is not a safetensors file")
    if 8 + header > size:
        raise WeightsError(f"{path} is cut short: {size} bytes, its header alone needs {header}")
    return header


def _parse(path: Path, header: bytes, *, data_bytes: int) -> Spec:
    try:
        fields = json.loads(header)
        ends = [int(v["data_offsets"][1]) for k, v in fields.items() if k != "__metadata__"]
        metadata = fields.get("__metadata__", {})
        text = metadata.get(_KEY)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise WeightsError(f"{path} is not a safetensors file, or its header is damaged") from error
    if max(ends, default=0) != data_bytes:
        raise WeightsError(
            f"{path} is damaged: {data_bytes} bytes of tensors where {max(ends, default=0)} belong"
        )
    if text is None:
        raise WeightsError(f"{path} holds tensors but no spec: it was not written by the zoo")
    try:
        raw = json.loads(text)
        written = int(raw["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{path} has a damaged spec") from error
    if written > FORMAT:
        raise WeightsError(
            f"{path} has format {written}; this gnn-zoo reads up to {FORMAT}\n"
            "install a newer gnn-zoo"
        )
    try:
        return Spec.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise WeightsError(f"{path} has a damaged spec: {where}: {first['msg']}") from error


def _state_json(directory: Path) -> dict[str, Any]:
    path = directory / STATE_JSON
    try:
        content = json.loads(path.read_bytes())
        written, _, _ = content["format"], content["files"], content["state"]
    except FileNotFoundError as error:
        raise RequestError(f"no checkpoint at {directory}: {STATE_JSON} is missing") from error
    except (ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{path} is damaged; use an earlier checkpoint") from error
    if written > FORMAT:
        raise WeightsError(
            f"{path} has format {written}; this gnn-zoo reads up to {FORMAT}\n"
            "install a newer gnn-zoo"
        )
    return dict(content)


def _check_files(directory: Path) -> None:
    for name, sha256 in _state_json(directory)["files"].items():
        path = directory / name
        if not path.is_file():
            raise WeightsError(f"the checkpoint {directory} is damaged: {name} is missing")
        if sha256_file(path) != sha256:
            raise WeightsError(
                f"{path} is damaged: its sha256 is not the one in {STATE_JSON}\n"
                "use an earlier checkpoint"
            )
