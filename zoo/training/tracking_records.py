"""What a run logs, before any MLflow: names it accepts, flat parameters, and the spool on disk.

A record is a plain dict that JSON can hold, so the same thing is queued, spooled and sent.
Nothing here imports MLflow.
"""

from __future__ import annotations

import json
import math
import os
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]

SPOOL = "mlflow-spool.jsonl"
SENDING = "mlflow-spool.sending.jsonl"
RUN = "mlflow-run.json"

# MLflow's own limits (mlflow/utils/validation.py).
LONGEST_NAME = 250
LONGEST_PARAM = 6000
LONGEST_TAG = 8000

_UNIT = re.compile(r"^(.+) \[([^\[\]]+)\]$", re.DOTALL)
# Colons are left out though MLflow on Linux takes them: a server on Windows does not.
_REFUSED = re.compile(r"[^/\w.\- ]")
_ESCAPED = re.compile(r"_at_|_x([0-9a-f]+)_")


def metric_name(name: str) -> str:
    """The name under which MLflow will take `name`, whether metric, parameter or tag.

    Plain names stay as they are. `hits@1` becomes `hits_at_1`, `mae/U0 [eV]` becomes
    `mae/U0 in eV` and `[eV/Å]` becomes `in eV per Å`; any other refused character becomes
    `_x<hex>_`. A result that could not be read back to `name`, or that is longer than MLflow's 250
    characters, ends in a checksum of `name`: two names never share a result but by a checksum's
    chance.
    """
    readable = _readable(name)
    if len(readable) <= LONGEST_NAME and _is_path(readable) and _original(readable) == name:
        return readable
    cut = readable if _is_path(readable) else readable.replace("/", "_x2f_").lstrip(".")
    return f"{cut[: LONGEST_NAME - 9].rstrip('/') or 'name'}.{zlib.crc32(name.encode()):08x}"


def flatten(config: Mapping[str, Any]) -> dict[str, str]:
    """`config` as MLflow parameters: nested keys joined by dots, every value as text.

    Text stays as it is; numbers, booleans, None and lists become JSON (`null`, `true`, `[1, 2]`).
    An empty mapping stays, as `{}`. A value over MLflow's 6000 characters is cut, and says so.
    """
    flat: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update({f"{key}.{inner}": text for inner, text in flatten(value).items()})
        else:
            flat[str(key)] = shorten(_text(value), limit=LONGEST_PARAM)
    return flat


def shorten(text: str, *, limit: int) -> str:
    """`text`, cut to `limit` characters with a note of how long it was."""
    if len(text) <= limit:
        return text
    note = f" ... (cut: {len(text)} characters)"
    return text[: limit - len(note)] + note


def json_float(value: float) -> float | str:
    """`value` as strict JSON can hold it: NaN and the infinities as text that float() reads."""
    number = float(value)
    return number if math.isfinite(number) else str(number)


def inside(path: Path, *, folder: Path) -> str:
    """`path` relative to the run's `folder` where it lies in it, so that the folder may move."""
    absolute = Path(os.path.abspath(path))
    root = Path(os.path.abspath(folder))
    return str(absolute.relative_to(root)) if absolute.is_relative_to(root) else str(absolute)


def plain_signature(signature: Any) -> dict[str, Any] | None:
    """An MLflow signature, or the mapping that stands for one, as JSON can hold it."""
    if signature is None:
        return None
    parts = signature if isinstance(signature, Mapping) else signature.to_dict()
    return {
        name: json.loads(part) if isinstance(part, str) else part
        for name, part in parts.items()
        if part is not None
    }


def groups(records: Sequence[Record], *, most: int = 200) -> list[list[Record]]:
    """Runs of records that one batch can carry; an artifact, a model ... stands alone."""
    batched = {"params", "metrics", "tags"}
    found: list[list[Record]] = []
    for record in records:
        last = found[-1] if found else None
        joins = record["kind"] in batched and last is not None and last[0]["kind"] in batched
        if joins and last is not None and len(last) < most:
            last.append(record)
        else:
            found.append([record])
    return found


def spooled(folder: Path) -> bool:
    """Whether `folder` holds records that MLflow has not got."""
    return (folder / SPOOL).exists() or (folder / SENDING).exists()


def append_spool(folder: Path, records: Iterable[Record], *, header: Record) -> None:
    """Add `records` to the spool of `folder`; a new spool opens with `header`. Raises OSError."""
    path = folder / SPOOL
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        lines = [*records] if file.tell() else [header, *records]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        # A kill may have cut the last line short: ours must not become part of it.
        cut = file.tell() and file.seek(-1, os.SEEK_END) and file.read(1) != b"\n"
        file.write((f"\n{text}" if cut else text).encode())
        file.flush()
        os.fsync(file.fileno())


def read_spool(path: Path) -> tuple[Record, list[Record]]:
    """The header and the records of one spool file; a line cut short by a kill is passed over."""
    records: list[Record] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(record, dict) and "kind" in record:
            records.append(record)
    header = next((record for record in records if record["kind"] == "run"), {})
    return header, [record for record in records if record["kind"] != "run"]


def take_spool(folder: Path) -> tuple[Record, list[Record]] | None:
    """Set the oldest spool aside for sending and read it; None when there is none.

    Set aside, so that a run that goes on spooling and a person who sends the spool don't meet.
    End with `settle_spool`.
    """
    if not (folder / SENDING).exists():
        if not (folder / SPOOL).exists():
            return None
        os.replace(folder / SPOOL, folder / SENDING)
    return read_spool(folder / SENDING)


def settle_spool(folder: Path, left: Sequence[Record], *, header: Record) -> None:
    """Drop the spool that was set aside, or keep of it the records that are `left`."""
    sending, spool = folder / SENDING, folder / SPOOL
    if not left:
        sending.unlink(missing_ok=True)
        return
    partial = folder / f"{SENDING}.partial-{os.getpid()}"
    partial.write_text(
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in [header, *left]),
        encoding="utf-8",
    )
    # Back under the name that the user was told, unless newer records took it meanwhile.
    os.replace(partial, sending)
    if not spool.exists():
        os.replace(sending, spool)


def known_run(folder: Path) -> str | None:
    """The id of the MLflow run that `folder` was logged to, to resume it; None if unknown."""
    return _noted(folder, "run_id")


def known_database(folder: Path) -> str | None:
    """The SQLite store that `folder` was logged to, to resume it from any place; None if it was
    another kind of store, or isn't there.
    """
    uri = _noted(folder, "uri") or ""
    path = Path(uri.removeprefix("sqlite:///").partition("?")[0])
    return uri if uri.startswith("sqlite:///") and path.is_file() else None


def _noted(folder: Path, key: str) -> str | None:
    try:
        value = json.loads((folder / RUN).read_text(encoding="utf-8")).get(key)
    except (OSError, ValueError, AttributeError):
        return None
    return value if isinstance(value, str) else None


def write_run(folder: Path, *, run_id: str, uri: str, experiment: str) -> None:
    """Note beside the run where it is tracked, so that a killed one can be resumed."""
    partial = folder / f"{RUN}.partial-{os.getpid()}"
    partial.write_text(
        json.dumps({"run_id": run_id, "uri": uri, "experiment": experiment}) + "\n",
        encoding="utf-8",
    )
    os.replace(partial, folder / RUN)


def _readable(name: str) -> str:
    unit = _UNIT.match(name)
    if unit:
        name = f"{unit[1]} in {unit[2].replace('/', ' per ')}"
    escaped = name.replace("@", "_at_")
    return _REFUSED.sub(lambda found: f"_x{ord(found[0]):x}_", escaped)


def _original(readable: str) -> str:
    plain = _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else "@", readable)
    body, separator, unit = plain.rpartition(" in ")
    return f"{body} [{unit.replace(' per ', '/')}]" if separator and body else plain


def _is_path(name: str) -> bool:
    """Whether `name` is the normal form of a relative path, as MLflow asks of every name."""
    if not name or name.startswith(".."):
        return False
    return not any(part in ("", ".", "..") for part in name.split("/"))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    return json.dumps(value, ensure_ascii=False, default=str)
