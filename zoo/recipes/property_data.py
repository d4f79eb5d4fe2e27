"""Graphs opened for their labels, and what predictions of labels are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from zoo import registry
from zoo.batching.shape import FixedSize
from zoo.batching.store import Store
from zoo.datasets.facts import Property
from zoo.errors import DataError
from zoo.recipes.metrics import Kind
from zoo.recipes.settings import BatchSettings, PropertyConfig


@dataclass(frozen=True, kw_only=True)
class PropertyData:
    """Graphs opened for their labels: store, splits and their hash, labels, shape.

    `values` float64 [graphs, T] are the labels in their units, the number of the class for classes;
    NaN is unknown. All properties are of one kind. `metric` is the one that such data are judged
    by. `smiles` reads those of the store's molecules, where they have any.
    """

    store: Store
    splits: dict[str, np.ndarray]
    split_sha256: str
    properties: tuple[Property, ...]
    values: np.ndarray
    shape: FixedSize
    metric: str
    smiles: Callable[[], list[str]] | None = None

    @property
    def kind(self) -> Kind:
        return self.properties[0].kind

    @property
    def names(self) -> list[str]:
        return [p.name for p in self.properties]

    @property
    def outputs(self) -> int:
        """What a model gives for a graph: a value a property, or one for each class."""
        first = self.properties[0]
        return len(first.classes) if first.kind == "multiclass" else len(self.properties)


def open_data(config: PropertyConfig) -> PropertyData:
    """Read (or make up) the data and split it."""
    asked = config.data
    adapter, facts = registry.adapter(asked.adapter)
    name = asked.adapter.partition(".")[2]
    folder = asked.folder
    if asked.synthetic:
        folder = adapter.synthetic_folder(name=name, seed=asked.split_seed, size=asked.synthetic)
    store = adapter.load(name=name, folder=folder)
    splits, digest = adapter.split(
        name=name, store=store, protocol=asked.split, seed=asked.split_seed
    )
    if asked.limit:
        splits["train"] = splits["train"][: asked.limit]
    return make_data(
        store=store,
        splits=splits,
        split_sha256=digest,
        properties=facts.properties,
        batch=config.batch,
        metric=facts.metric,
        smiles=partial(adapter.smiles, name=name, store=store, folder=folder)
        if hasattr(adapter, "smiles")
        else None,
    )


def make_data(
    *,
    store: Store,
    splits: dict[str, np.ndarray],
    split_sha256: str,
    properties: Sequence[Property],
    batch: BatchSettings,
    metric: str,
    smiles: Callable[[], list[str]] | None = None,
) -> PropertyData:
    """The data of a store with labels y [graphs, T]. DataError where a split has no known label."""
    values = np.asarray(store.graph["y"], np.float64)
    for split, ids in splits.items():
        if np.isnan(values[ids]).all():
            raise DataError(f"no {split} graph has a known label")
    wanted = min(batch.graphs, max(len(ids) for ids in splits.values()))
    fitted = FixedSize.fit(
        nodes=store.nodes_per_graph(), edges=store.edges_per_graph(cutoff=None), graphs=wanted
    )
    return PropertyData(
        store=store,
        splits=splits,
        split_sha256=split_sha256,
        properties=tuple(properties),
        values=values,
        shape=FixedSize(
            nodes=batch.nodes or fitted.nodes,
            edges=batch.edges or fitted.edges,
            graphs=batch.slots or fitted.graphs,
        ),
        metric=metric,
        smiles=smiles,
    )


def fit_scaling(data: PropertyData) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each quantity over the training graphs; 0 and 1 of classes:
    float64 [T] each.
    """
    count = len(data.properties)
    if data.kind != "regression":
        return np.zeros(count), np.ones(count)
    train = data.values[data.splits["train"]]
    mean, std = np.zeros(count), np.ones(count)
    for column in np.flatnonzero(~np.isnan(train).all(0)):
        known = train[~np.isnan(train[:, column]), column]
        mean[column] = known.mean()
        # Of one value all over there is nothing to learn but that value.
        std[column] = known.std() if np.ptp(known) > 0 else 1.0
    return mean, std


def columns(properties: Sequence[Property]) -> list[str]:
    """What predictions are called in tables: `logS [log mol/L]`, `active [probability]`, and a
    column for each of several classes.
    """
    names = []
    for p in properties:
        if p.kind == "multiclass":
            names += [f"{p.name}={label} [probability]" for label in p.classes]
        else:
            unit = "probability" if p.kind == "binary" else p.unit
            names.append(f"{p.name} [{unit}]" if unit else p.name)
    return names


def readable(raw: np.ndarray, *, kind: str, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """What a network gives, as values in their units or as probabilities: float64, same shape."""
    if kind == "regression":
        values: np.ndarray = mean + std * raw
        return values
    given = torch.from_numpy(np.asarray(raw, np.float64))
    made = torch.sigmoid(given) if kind == "binary" else torch.softmax(given, 1)
    result: np.ndarray = made.numpy()
    return result
