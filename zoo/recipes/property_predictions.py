"""Predictions for molecules from their bonds: row by row of an input of any length."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.batching.store import Store, make_store
from zoo.chem.described import Described, described
from zoo.chem.featurise import Graphs
from zoo.chem.fragments import largest_fragment as largest
from zoo.chem.molecule import Molecule, refused
from zoo.chem.pool import cores
from zoo.chem.read import read_molecules
from zoo.chem.report import Report, enforce
from zoo.chem.similarity import References, nearest_similarity, references
from zoo.errors import DataError
from zoo.recipes.predicted import Predicted

if TYPE_CHECKING:
    import pandas as pd

    from zoo.recipes.property_model import PropertyModel

FAR = 0.3
"""Tanimoto similarity to the nearest training molecule below which a prediction is doubted, where
the weights say no other."""


def predict_frames(
    *,
    model: PropertyModel,
    source: Any,
    smiles: str | None,
    on_error: str,
    report: Report | None,
    largest_fragment: bool | None,
    workers: int | None,
) -> Iterator[pd.DataFrame]:
    """See `PropertyModel.predict_frames`."""
    model.check_readable()
    molecules = read_molecules(source, smiles=smiles, geometry=False)
    if report is not None:
        for problem in molecules.problems:
            report.add(problem)
    names = molecules.names
    known = references(model.reference) if model.reference is not None else None
    cut = (
        model.spec.extra.get("largest_fragment", False)
        if largest_fragment is None
        else largest_fragment
    )
    empty = True
    for rows, found in _described(
        iter(molecules), cut=cut, workers=workers, fingerprints=known is not None
    ):
        empty = False
        yield _frame(model, rows, found, names, known, on_error, molecules.where, report)
    if empty:
        yield _frame(model, [], None, names, known, on_error, molecules.where, report)


def valid_store(model: PropertyModel, source: Any, *, smiles: str | None) -> Store:
    """The graphs of every molecule of an input; DataError for the first that can't be read."""
    model.check_readable()
    molecules = read_molecules(source, smiles=smiles, geometry=False)
    parts: list[Graphs] = []
    for rows, found in _described(iter(molecules), cut=False, workers=None, fingerprints=False):
        for _ in enforce(_read(rows, found), on_error="raise", where=molecules.where):
            pass
        parts.append(found.graphs)
    if not parts:
        raise DataError(f"{molecules.where} holds no molecule")
    return graph_store(parts)


def graph_store(parts: Sequence[Graphs]) -> Store:
    """Featurised molecules as a store; those that couldn't be read are left out."""

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])

    good = np.array([not reason for part in parts for reason in part.reasons], bool)
    return make_store(
        node_ptr=np.concatenate([[0], np.cumsum(joined("nodes")[good])]),
        edge_ptr=np.concatenate([[0], np.cumsum(joined("edges")[good])]),
        node={"atom": joined("atom")},
        edge={name: joined(name) for name in ("bond", "src", "dst")},
        graph={},
    )


def _described(
    rows: Iterator[Molecule], *, cut: bool, workers: int | None, fingerprints: bool
) -> Iterator[tuple[list[Molecule], Described]]:
    """Rows and what their molecules are, some at a time; rows that are refused have none."""
    waiting: deque[Molecule] = deque()

    def texts() -> Iterator[str]:
        for row in rows:
            waiting.append(row)
            yield largest(row.smiles) if cut and row.smiles else row.smiles

    count = cores() if workers is None else workers
    for found in described(texts(), workers=count, fingerprints=fingerprints):
        some = [waiting.popleft() for _ in found.graphs.reasons]
        yield some, found


def _read(rows: Sequence[Molecule], found: Described) -> Iterator[Molecule]:
    """The rows, refused where RDKit couldn't read the molecule."""
    for row, reason in zip(rows, found.graphs.reasons, strict=True):
        bad = row.valid and reason
        yield refused(row, column=row.column, value=row.value, reason=reason) if bad else row


def _checked(
    model: PropertyModel, rows: Iterator[Molecule], found: Described
) -> Iterator[Molecule]:
    """The rows, refused for elements that the model never saw, or with warnings."""
    known = set(model.spec.elements)
    low, high = model.spec.ranges.get("nodes", (0.0, np.inf))
    for row, nodes, strange in zip(rows, found.graphs.nodes, found.elements, strict=True):
        if not row.valid:
            yield row
            continue
        if known and (unseen := sorted(set(strange) - known)):
            seen = ", ".join(model.spec.elements)
            reason = f"holds {', '.join(unseen)}, which the model never saw; it knows {seen}"
            yield refused(row, column=row.column, value=row.value, reason=reason)
            continue
        if not low <= nodes <= high:
            said = f"{nodes} atoms, where the training molecules have {low:.0f} to {high:.0f}"
            row = replace(row, warnings=(*row.warnings, said))
        yield row


def _frame(
    model: PropertyModel,
    rows: list[Molecule],
    found: Described | None,
    names: Sequence[str],
    known: References | None,
    on_error: str,
    where: str,
    report: Report | None,
) -> pd.DataFrame:
    """The output's rows of some input rows."""
    import pandas as pd

    from zoo.recipes.predictions import apart

    checked = list(_checked(model, _read(rows, found), found)) if found is not None else []
    graphs = [not reason for reason in found.graphs.reasons] if found is not None else []
    # Each row's place among the graphs, of which refused rows may have one too.
    place = np.cumsum(np.array(graphs, np.int64)) - 1
    values = _predicted_columns(model, found, place=place, graphs=np.array(graphs, bool))
    main = np.stack([values[c] for c in model.columns], axis=1) if len(rows) else np.zeros((0, 1))
    finite = np.isfinite(main.sum(axis=1))
    near = _similarity(found, known)
    limit = float(model.spec.ranges.get("similarity", (FAR, 1.0))[0])
    kept = []
    for at, row in enumerate(checked):
        if row.valid and not finite[at]:
            row = refused(
                row, column=row.column, value=row.value, reason="the model gives no finite number"
            )
        elif row.valid and near is not None and near[at] < limit:
            said = f"unlike all training molecules: similarity {near[at]:.2f} to the nearest"
            row = replace(row, warnings=(*row.warnings, said))
        kept.append(row)
    rows_left = list(enforce(kept, on_error=on_error, where=where, report=report))  # type: ignore[arg-type]
    if on_error == "skip":
        index = np.flatnonzero([row.valid for row in kept])
    else:
        index = np.arange(len(kept))
    valid = np.array([row.valid for row in rows_left], bool)
    made = {name: np.where(valid, column[index], np.nan) for name, column in values.items()}
    if near is not None:
        made["similarity"] = np.where(valid, near[index], np.nan)
    elif known is not None:
        made["similarity"] = np.zeros(0)
    own: dict[str, Any] = {name: [row.columns.get(name) for row in rows_left] for name in names}
    taken = [*made, "valid", "reason", "warning"]
    own = dict(zip(apart(own, taken=taken), own.values(), strict=True))
    return pd.DataFrame(
        {
            **own,
            **made,
            "valid": valid,
            "reason": pd.array([row.reason for row in rows_left], dtype="str"),
            "warning": pd.array(["; ".join(row.warnings) for row in rows_left], dtype="str"),
        }
    )


def _predicted_columns(
    model: PropertyModel, found: Described | None, *, place: np.ndarray, graphs: np.ndarray
) -> dict[str, np.ndarray]:
    """Each predicted column for some rows, NaN where there is no graph."""
    predicted = Predicted(values=np.zeros((0, len(model.columns))))
    if found is not None and graphs.any():
        predicted = model.values(graph_store([found.graphs]))

    def spread(values: np.ndarray | None, at: int) -> np.ndarray:
        out = np.full(len(graphs), np.nan)
        if values is not None:
            out[graphs] = values[place[graphs], at]
        return out

    made: dict[str, np.ndarray] = {}
    for at, column in enumerate(model.columns):
        made[column] = spread(predicted.values, at)
        if len(model.modules) > 1:
            made[_beside(column, "std")] = spread(predicted.std, at)
        if model.kind == "regression" and model.level is not None:
            low, high = (f"{end} {model.level:.0%}" for end in ("low", "high"))
            made[_beside(column, low)] = spread(predicted.low, at)
            made[_beside(column, high)] = spread(predicted.high, at)
    return made


def _beside(column: str, what: str) -> str:
    """The column beside another: `logS [log mol/L]` has `logS std [log mol/L]`."""
    name, bracket, unit = column.rpartition(" [")
    return f"{name} {what} [{unit}" if bracket else f"{column} {what}"


def _similarity(found: Described | None, known: References | None) -> np.ndarray | None:
    if found is None or known is None or found.prints is None:
        return None
    similarity, _ = nearest_similarity(query=found.prints, reference=known)
    return similarity.astype(np.float64)
