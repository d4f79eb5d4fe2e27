"""Predictions as tables: rows in input order, units in the column names, nothing lost silently."""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from zoo.chem.checks import check_rows
from zoo.chem.molecule import Molecule
from zoo.chem.read import Molecules, read_molecules
from zoo.chem.report import Report, enforce, report_path
from zoo.errors import DataError, RequestError
from zoo.files import disk, sweep

if TYPE_CHECKING:
    import pandas as pd

    from zoo.artifact import Spec

SAID_EVERY = 10.0
"""Seconds between two lines on how far a long prediction is."""
ROWS = 2048
"""Input rows in memory at a time: a file of any length needs no more."""


class GeometryPredictor(Protocol):
    """What predicts a property of molecules with geometries, in its unit."""

    spec: Spec

    @property
    def column(self) -> str: ...

    def values(self, molecules: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray: ...


class Predictor(Protocol):
    """A trained model of molecules; `options` are its own."""

    @property
    def predict_frames(self) -> Callable[..., Iterator[pd.DataFrame]]:
        """Called with the source, smiles, on_error, report and options."""


def needs_geometry(model: Any) -> bool:
    """Whether a model predicts from positions, and so makes conformers of SMILES."""
    return "conformer_seconds" in inspect.signature(model.predict).parameters


def table_of(frames: Iterator[pd.DataFrame]) -> pd.DataFrame:
    """Frames end to end."""
    import pandas as pd

    held = list(frames)
    return pd.concat(held, ignore_index=True) if held else pd.DataFrame()


def predict_frames(
    *,
    model: GeometryPredictor,
    source: Any,
    smiles: str | None,
    on_error: str,
    conformer_seconds: float,
    seed: int,
    report: Report | None = None,
) -> Iterator[pd.DataFrame]:
    """Predictions of `ROWS` input rows at a time, each with the same columns."""
    molecules = read(source, smiles=smiles, conformer_seconds=conformer_seconds, seed=seed)
    if report is not None:
        for problem in molecules.problems:
            report.add(problem)
    checked = check_rows(molecules, spec=model.spec)
    rows = enforce(checked, on_error=on_error, where=molecules.where, report=report)  # type: ignore[arg-type]
    names = molecules.names
    empty = True
    while chunk := list(islice(rows, ROWS)):
        empty = False
        yield _frame(model, chunk, names)
    if empty:
        yield _frame(model, [], names)


def read(
    source: Any, *, smiles: str | None = None, conformer_seconds: float = 10.0, seed: int = 0
) -> Molecules:
    """The input's molecules; also PyG's `Data` and `Batch`, which hold z and pos."""
    return read_molecules(
        _from_pyg(source), smiles=smiles, conformer_seconds=conformer_seconds, seed=seed
    )


def _from_pyg(source: Any) -> Any:
    items = list(source) if isinstance(source, list | tuple) else [source]
    if not items or not all(_is_pyg(item) for item in items):
        return source
    from ase import Atoms

    graphs = [graph for item in items for graph in _graphs(item)]
    if any(getattr(g, "z", None) is None or getattr(g, "pos", None) is None for g in graphs):
        raise RequestError("PyG graphs need atomic numbers `z` and positions `pos` (Å)")
    return [Atoms(numbers=g.z.cpu().numpy(), positions=g.pos.cpu().numpy()) for g in graphs]


def _is_pyg(item: Any) -> bool:
    # A Batch's own class is made on the fly, and lies in no module of PyG's.
    return any(c.__module__.startswith("torch_geometric.data") for c in type(item).__mro__)


def _graphs(item: Any) -> list[Any]:
    """The graphs of a PyG Batch, data set or `Data`."""
    if hasattr(item, "to_data_list"):
        return list(item.to_data_list())
    return [item] if hasattr(item, "to_dict") else list(item)


def valid_molecules(
    model: GeometryPredictor, source: Any, *, smiles: str | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Every molecule of an input; DataError for the first that can't be used."""
    molecules = read(source, smiles=smiles)
    rows = enforce(check_rows(molecules, spec=model.spec), on_error="raise", where=molecules.where)
    return [(m.numbers, m.positions) for m in rows]


def _frame(model: GeometryPredictor, chunk: list[Molecule], names: Iterable[str]) -> pd.DataFrame:
    import pandas as pd

    valid = [m for m in chunk if m.valid]
    values = np.full(len(chunk), np.nan)
    values[[m.valid for m in chunk]] = model.values([(m.numbers, m.positions) for m in valid])
    # Of a valid row it is the weights' fault, or of numbers that overflow on the way.
    broken = "the model gives no finite number"
    reasons = [
        broken if m.valid and not np.isfinite(value) else m.reason
        for m, value in zip(chunk, values, strict=True)
    ]
    columns: dict[str, Any] = {name: [m.columns.get(name) for m in chunk] for name in names}
    taken = [model.column, "valid", "reason", "warning"]
    # An input that has such a column itself keeps it, under a name that tells them apart.
    columns = dict(zip(apart(columns, taken=taken), columns.values(), strict=True))
    return pd.DataFrame(
        {
            **columns,
            model.column: values,
            "valid": np.isfinite(values),
            "reason": pd.array(reasons, dtype="str"),
            "warning": pd.array(["; ".join(m.warnings) for m in chunk], dtype="str"),
        }
    )


def apart(names: Iterable[str], *, taken: Iterable[str]) -> list[str]:
    """The input's column names, those renamed that are taken by the output's: `valid (input)`."""
    own = list(names)
    used = {*taken, *own}
    renamed = []
    for name in own:
        new = name
        while name in taken and new in used:
            new = f"{new} (input)"
        used.add(new)
        renamed.append(new)
    return renamed


def predict_file(
    *,
    model: Predictor,
    source: Any,
    out: Path,
    smiles: str | None = None,
    on_error: str = "nan",
    **options: Any,
) -> Report:
    """Write predictions to a .csv or .parquet file, and invalid rows to `<out>.report.csv`.

    The file appears when it is whole. RequestError for another kind of file, and for the input
    itself; UnavailableError naming the path where it can't be written.
    """
    if out.suffix not in (".csv", ".parquet"):
        raise RequestError(f"cannot write {out}: its name should end in .csv or .parquet")
    if isinstance(source, str | os.PathLike) and out.exists() and _same(source, out):
        raise RequestError(f"{out} is the input: name another file for the predictions")
    partial = out.with_name(f".{out.name}.partial-{os.getpid()}")
    report = Report(report_path(out))
    with disk(out), report:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            sweep(out.parent, prefix=f".{out.name}.partial-")
            frames = model.predict_frames(
                source, smiles=smiles, on_error=on_error, report=report, **options
            )
            (_write_csv if out.suffix == ".csv" else _write_parquet)(_told(frames), partial)
            os.replace(partial, out)
        finally:
            partial.unlink(missing_ok=True)
    return report


def _told(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The frames, with a word on how far they are where that takes long."""
    rows, said = 0, time.monotonic()
    for frame in frames:
        rows += len(frame)
        if time.monotonic() - said > SAID_EVERY:
            said = time.monotonic()
            print(f"{rows:,} rows predicted", file=sys.stderr, flush=True)
        yield frame


def _same(source: str | os.PathLike[str], out: Path) -> bool:
    try:
        return out.samefile(Path(source).expanduser())
    except OSError:  # a SMILES
        return False


def _write_csv(frames: Iterator[pd.DataFrame], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        for number, frame in enumerate(frames):
            frame.to_csv(file, index=False, header=number == 0)


def _write_parquet(frames: Iterator[pd.DataFrame], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = next(frames)
    table = pa.Table.from_pandas(first, preserve_index=False)
    with closing(pq.ParquetWriter(path, table.schema)) as writer:
        writer.write_table(table)
        for frame in frames:
            try:
                writer.write_table(pa.Table.from_pandas(frame, schema=table.schema, safe=False))
            except pa.ArrowInvalid as error:
                raise DataError(
                    f"a column changes its type within the input: {error}\n"
                    "write a .csv file instead"
                ) from error
