"""A person's own table of molecules and labels, read for training: `read_labelled`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from zoo.batching.store import Store
from zoo.chem.columns import Columns, read_columns
from zoo.chem.fragments import largest_fragment as largest
from zoo.chem.labels import Label, Parsed, known_counts, one_value, parse_label
from zoo.chem.molecule import Problem, shorten
from zoo.chem.pool import cores
from zoo.chem.report import Report
from zoo.datasets.featurised import featurised_store, refusals
from zoo.datasets.repeats import conflicts, repeated
from zoo.errors import DataError, unknown

OnError = Literal["raise", "skip"]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What became of the rows: `rows` were read, `kept` hold a molecule and a label; `dropped` says
    how many of the others there are of each reason, `unlabelled` among them.

    duplicates: kept rows with the molecule of an earlier one; conflicting: molecules whose rows
    contradict each other in a label; cells: of labels, not understood and taken as unknown
    """

    rows: int
    kept: int
    dropped: Mapping[str, int]
    duplicates: int
    conflicting: int
    cells: int

    @property
    def unlabelled(self) -> int:
        return self.dropped.get(UNLABELLED, 0)

    @property
    def invalid(self) -> int:
        """Rows that could not be used although they may have had a label."""
        return sum(self.dropped.values()) - self.unlabelled


UNLABELLED = "no label"


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Molecules with labels, in the table's order; M rows are kept, T labels.

    where: the table in words
    smiles: as given, or its largest fragment where that was asked for
    rows: int64 [M], row of the table, from 0; lines: int64 [M], of the file, from 1, or -1
    y: float64 [M, T], NaN where unknown; a class's number for classes
    groups: int64 [M], the same number for the same molecule; scaffolds: int64 [M], 0 for none
    split: text of the split column, where one was named
    store: the graphs, one for each row kept: node `atom`; edge `bond`, `src`, `dst`; graph `y`
    (float64), `row`, `group` and `scaffold` (int32)
    notes: what was assumed, in sentences for people
    """

    where: str
    smiles: list[str]
    rows: np.ndarray
    lines: np.ndarray
    y: np.ndarray
    labels: tuple[Label, ...]
    groups: np.ndarray
    scaffolds: np.ndarray
    split: list[str] | None
    store: Store
    counts: Counts
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)


def read_labelled(
    source: Any,
    *,
    smiles: str | None = None,
    labels: Sequence[str],
    kinds: Mapping[str, str] | None = None,
    split_column: str | None = None,
    largest_fragment: bool = False,
    on_error: OnError = "raise",
    report: Report | None = None,
    workers: int | None = None,
) -> Labelled:
    """Read a labelled table from a pandas DataFrame or a file: .csv .tsv .txt .tab .sdf .sd, each
    also .gz, or .parquet.

    `smiles` names the column with SMILES, by default the one called so; `labels` those with labels.
    What kind each label is, is inferred unless `kinds` says it: regression, binary, multiclass.
    Rows without any label are left out. Rows whose molecule can't be read go into the `report`;
    with `on_error` "raise" they are counted and end the reading. Cells of labels that can't be read
    go there too and are unknown; so do rows with the same molecule that contradict each other,
    which are kept. Graphs are made by `workers` processes (by default one a core) and cached.

    RequestError: no such file or column, a column named twice, no such kind. DataError: an empty
    file, no row that can be used, a label without a value or with the same one in every row.
    """
    if on_error not in get_args(OnError):
        raise unknown(kind="on-error policy", name=on_error, known=get_args(OnError))
    kinds = dict(kinds or {})
    for name in kinds:
        if name not in labels:
            raise unknown(kind="label in kinds", name=name, known=labels)
    workers = cores() if workers is None else workers
    table = read_columns(source, smiles=smiles, labels=labels, split=split_column, workers=workers)
    if not table.smiles:
        raise DataError(f"{table.where} has no rows")
    parsed = [
        parse_label(name, column, kind=kinds.get(name), where=table.where)
        for name, column in table.labels.items()
    ]
    cells = _wrong_cells(table, parsed)
    values = np.stack([one.values for one in parsed], axis=1)
    refused = dict(table.refused)
    places = [
        row for row in np.flatnonzero(~np.isnan(values).all(axis=1)).tolist() if row not in refused
    ]
    for at, one in enumerate(parsed):  # before the molecules, which take minutes
        _counted(one.label, values[places, at], where=table.where)
    texts = [table.smiles[row] for row in places]
    if largest_fragment:
        texts = [largest(text) for text in texts]
    store = featurised_store(smiles=texts, workers=workers, where=table.where)
    for place, reason in refusals(smiles=texts, store=store, workers=workers).items():
        refused[places[place]] = _refused(table, places[place], reason)
    if refused and on_error == "raise":
        raise _refusal(refused, rows=len(table.smiles), where=table.where)
    kept = np.array(places, np.int64)[store.graph["place"]]
    y = values[kept]
    found = [_counted(one.label, y[:, at], where=table.where) for at, one in enumerate(parsed)]
    groups = store.graph["group"].astype(np.int64)
    disputes = _disputes(table, y, groups, found, kept)
    _tell(report, table, refused, [*cells, *disputes.values()])
    dropped = Counter(_short(problem.reason) for problem in refused.values())
    dropped[UNLABELLED] = len(table.smiles) - len(kept) - len(refused)
    return Labelled(
        where=table.where,
        smiles=[texts[place] for place in store.graph["place"].tolist()],
        rows=kept,
        lines=table.lines[kept],
        y=y,
        labels=tuple(found),
        groups=groups,
        scaffolds=store.graph["scaffold"].astype(np.int64),
        split=None if table.split is None else [table.split[row] for row in kept.tolist()],
        store=_with_labels(store, y=y, rows=kept),
        counts=Counts(
            rows=len(table.smiles),
            kept=len(kept),
            dropped={reason: count for reason, count in dropped.items() if count},
            duplicates=repeated(groups),
            conflicting=len({group for group, _ in disputes}),
            cells=len(cells),
        ),
        notes=tuple(note for one in parsed for note in one.notes),
    )


def _with_labels(store: Store, *, y: np.ndarray, rows: np.ndarray) -> Store:
    graph = {name: store.graph[name] for name in ("group", "scaffold")}
    return replace(store, graph={**graph, "y": y, "row": rows.astype(np.int32)})


def _problem(table: Columns, row: int, *, column: str, value: str, reason: str) -> Problem:
    line = int(table.lines[row])
    return Problem(row, line if line >= 0 else None, column, shorten(value), reason)


def _refused(table: Columns, row: int, reason: str) -> Problem:
    value = table.smiles[row]
    return _problem(table, row, column=table.smiles_column, value=value, reason=reason)


def _wrong_cells(table: Columns, parsed: Sequence[Parsed]) -> list[Problem]:
    problems = []
    for one, (name, column) in zip(parsed, table.labels.items(), strict=True):
        for row in np.flatnonzero(np.isin(column.codes, list(one.wrong))).tolist():
            code = int(column.codes[row])
            problems.append(
                _problem(table, row, column=name, value=column.texts[code], reason=one.wrong[code])
            )
    return problems


def _counted(label: Label, y: np.ndarray, *, where: str) -> Label:
    """The label with its counts; DataError where the rows that are left teach nothing about it."""
    known, counts = known_counts(y, classes=label.classes)
    if not known:
        raise DataError(
            f"the label column {label.name!r} of {where} is empty in every row that can be used"
        )
    lowest, highest = np.nanmin(y), np.nanmax(y)
    if lowest == highest:
        value = label.classes[int(lowest)] if label.classes else f"{lowest:g}"
        raise one_value(label.name, value, where=where)
    return replace(label, known=known, counts=counts)


def _disputes(
    table: Columns,
    y: np.ndarray,
    groups: np.ndarray,
    labels: Sequence[Label],
    kept: np.ndarray,
) -> dict[tuple[int, int], Problem]:
    found = {}
    for one in conflicts(y=y, groups=groups, labels=labels):
        label = labels[one.label]
        earlier, later = (int(kept[place]) for place in one.places)
        said = [label.classes[int(v)] if label.classes else f"{v:g}" for v in one.values]
        found[one.group, one.label] = _problem(
            table,
            later,
            column=label.name,
            value=said[1],
            reason=f"the same molecule has {said[0]} in row {earlier}: both kept, in one split",
        )
    return found


def _tell(
    report: Report | None,
    table: Columns,
    refused: Mapping[int, Problem],
    doubts: Iterable[Problem],
) -> None:
    if report is None:
        return
    report.rows += len(table.smiles)
    rows = [(problem, True) for problem in refused.values()]
    rows += [(problem, False) for problem in (*table.problems, *doubts)]
    for problem, refuses in sorted(rows, key=lambda one: -1 if one[0].row is None else one[0].row):
        report.add(problem, refuses=refuses)


def _short(reason: str) -> str:
    """A reason without what differs from row to row."""
    return reason.partition(":")[0]


def _refusal(refused: Mapping[int, Problem], *, rows: int, where: str) -> DataError:
    """The error that ends the reading: how many rows, the first of them, and what to do."""
    first = refused[min(refused)]
    line = "" if first.line is None else f"line {first.line}, "
    some = f"{len(refused):,} of {rows:,} rows" if len(refused) > 1 else f"1 of {rows:,} rows"
    return DataError(
        f"{some} can't be used; the first: {first.reason}\n"
        f"{where}, row {first.row}, {line}column {first.column!r}: {first.value!r}\n"
        "mend the table, or go on without such rows: --on-error skip"
    )
