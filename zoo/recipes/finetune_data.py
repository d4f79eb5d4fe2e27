"""A labelled table as data to tune a model on: properties, parts, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zoo.chem.report import Report
from zoo.datasets.facts import Property
from zoo.datasets.labelled import Labelled, read_labelled
from zoo.datasets.protocols import make_split
from zoo.errors import RequestError
from zoo.recipes.finetune_request import FinetuneRequest
from zoo.recipes.property_data import PropertyData, make_data
from zoo.recipes.settings import BatchSettings

METRICS = {"regression": "rmse", "binary": "roc_auc", "multiclass": "accuracy"}
"""By which a model of each kind is chosen and judged."""


@dataclass(frozen=True, kw_only=True)
class Fold:
    """The data with one way to part it; `name` is said where there are several."""

    name: str
    data: PropertyData


def read_table(request: FinetuneRequest, *, report: Report) -> Labelled:
    """The table of a request. Errors of `read_labelled`; RequestError for labels of several kinds,
    which no one output layer has.
    """
    if (request.split == "column") != (request.split_column is not None):
        raise RequestError("--split column and --split-column COLUMN go together")
    table = read_labelled(
        request.data,
        smiles=request.smiles,
        labels=request.labels,
        kinds=dict(request.kinds),
        split_column=request.split_column,
        largest_fragment=request.largest_fragment,
        on_error=request.on_error,
        report=report,
    )
    kinds = {label.kind for label in table.labels}
    if len(kinds) > 1 or (kinds == {"multiclass"} and len(table.labels) > 1):
        stated = "; ".join(label.stated() for label in table.labels)
        raise RequestError(
            "one model learns labels of one kind, or one label of several classes\n"
            f"{stated}\nfinetune once for each, or say what a label is: --kind LABEL=regression"
        )
    return table


def folds(table: Labelled, request: FinetuneRequest) -> list[Fold]:
    """The ways in which the table is parted: one, or with kfold as many as there are folds."""
    count = request.folds if request.split == "kfold" else 1
    found = []
    for number in range(count):
        parts, digest = make_split(
            protocol=request.split,
            seed=request.seed,
            count=len(table),
            groups=table.groups,
            scaffolds=table.scaffolds,
            column=table.split,
            folds=request.folds,
            fold=number,
            y=table.y,
            rows=table.rows,
            names=[label.name for label in table.labels],
        )
        data = make_data(
            store=table.store,
            splits=parts,
            split_sha256=digest,
            properties=properties(table),
            batch=BatchSettings(graphs=request.pack(len(parts["train"]))),
            metric=METRICS[table.labels[0].kind],
        )
        found.append(Fold(name=f"fold {number + 1}" if count > 1 else "", data=data))
    return found


def properties(table: Labelled) -> tuple[Property, ...]:
    """The labels as properties."""
    return tuple(
        Property(
            name=_bare(label.name, unit=label.unit),
            unit=label.unit,
            description=f"column of {table.where}",
            kind=label.kind,
            classes=label.classes,
        )
        for label in table.labels
    )


def _bare(name: str, *, unit: str) -> str:
    """A column's name without the unit at its end, which predictions say again."""
    for written in (f"[{unit}]", f"({unit})"):
        if unit and name.endswith(written) and name != written:
            return name.removesuffix(written).rstrip()
    return name


def stated(table: Labelled, found: Sequence[Fold], *, split: str, seed: int) -> list[str]:
    """What was read and how it is parted, in lines for people."""
    counts = table.counts
    lines = [f"{table.where}: {counts.kept:,} of {counts.rows:,} rows have a molecule and a label"]
    lines += [f"  {count:,} left out: {reason}" for reason, count in counts.dropped.items()]
    if counts.duplicates:
        disputed = (
            f", {counts.conflicting:,} with labels that disagree" if counts.conflicting else ""
        )
        lines.append(
            f"  {counts.duplicates:,} rows repeat a molecule{disputed}: each stays in one part"
        )
    if counts.cells:
        lines.append(f"  {counts.cells:,} cells of labels couldn't be read: taken as unknown")
    lines += [f"label {label.stated()}" for label in table.labels]
    lines += [f"note: {note}" for note in table.notes]
    for fold in found:
        sizes = ", ".join(f"{len(ids):,} {name}" for name, ids in fold.data.splits.items())
        which = f" {fold.name}" if fold.name else ""
        lines.append(
            f"split {split}{which} (seed {seed}): {sizes}; sha256 {fold.data.split_sha256[:12]}"
        )
    return lines
