"""What an adapter declares next to the code that reads its source; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Property:
    """A quantity being predicted. `reference` says what its zero is, where that can be mistaken.

    Labels of a binary one are 0 and 1, and its probability of 1 is predicted; those of a multiclass
    one are the places of its `classes`, which are their names (of a binary one: no, then yes).
    """

    name: str
    unit: str
    description: str
    reference: str = ""
    kind: Literal["regression", "binary", "multiclass"] = "regression"
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Source:
    """A raw file: name, sha256 and size of its bytes, unzipped unless the name says that they are
    zipped, and where it can be had.
    """

    filename: str
    sha256: str
    size: int
    mirrors: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DatasetFacts:
    """A data set's card: `counts` are the published ones, checked when it is read; `splits` maps a
    protocol's name to the sha256 of its stored indices; `metric` is the one results are published
    in: mae, rmse, roc_auc, ap or accuracy.
    """

    name: str
    title: str
    licence: str
    citation: str
    properties: tuple[Property, ...]
    sources: tuple[Source, ...]
    counts: dict[str, int]
    splits: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    metric: str = "mae"

    def property(self, name: str) -> Property:
        """The property of this name (KeyError when the data set has none)."""
        return {p.name: p for p in self.properties}[name]
