"""Molecules in packs through a network, and its scaled outputs back in the property's unit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoo.artifact import BatchShape, Spec
from zoo.batching.pack import Batch, fill_batch, make_plan
from zoo.batching.shape import FixedSize
from zoo.batching.store import Store, make_store
from zoo.training.lanes import lane_map

INPUTS = {"smiles": "string", "xyz": "string"}
"""Columns that a served model of molecules takes."""

Molecule = tuple[np.ndarray, np.ndarray]
"""Atomic numbers [n] and positions [n, 3] in Å."""


def column(spec: Spec) -> str:
    """Name and unit of what is predicted, as in tables: `U0 [eV]`."""
    return f"{spec.properties[0].name} [{spec.properties[0].unit}]"


def shares(spec: Spec) -> np.ndarray:
    """What a lone atom of each atomic number adds to the property, in its unit: float64 [256]."""
    from ase.data import atomic_numbers

    found = np.zeros(256)
    for symbol, value in spec.atom_refs.get(spec.properties[0].name, {}).items():
        found[atomic_numbers[symbol]] = value
    return found


def unscale(spec: Spec, scaled: np.ndarray, numbers: Iterable[np.ndarray]) -> np.ndarray:
    """Scaled outputs [M] in the property's unit, given each molecule's atomic numbers: float64."""
    per_atom = shares(spec)
    scaling = spec.scaling[spec.properties[0].name]
    offset = np.array([per_atom[np.asarray(z, np.int64)].sum() for z in numbers])
    values: np.ndarray = offset + scaling.mean + scaling.std * scaled.astype(np.float64)
    return values


def molecule_store(molecules: Sequence[Molecule], *, dtype: Any) -> Store:
    """Molecules as a store in memory, positions in `dtype`."""
    sizes = [len(numbers) for numbers, _ in molecules]
    return make_store(
        node_ptr=np.concatenate([[0], np.cumsum(sizes)]),
        node={
            "z": np.concatenate([np.asarray(z, np.int32) for z, _ in molecules]),
            "pos": np.concatenate([np.asarray(r, dtype) for _, r in molecules]),
        },
        graph={},
    )


def run_packs(
    *,
    molecules: Sequence[Molecule],
    function: Callable[[Batch], Tensor],
    width: int,
    shape: BatchShape,
    cutoff: float,
    dtype: Any = np.float32,
    fixed: bool = False,
) -> np.ndarray:
    """`function` of each molecule's row, in packs: float64 [molecules, width].

    Packs have the trained shape, smaller ones where little is to be done and larger ones for larger
    molecules; with `fixed` they have that shape alone, and a molecule that doesn't fit is a
    RequestError.
    """
    if not molecules:
        return np.zeros((0, width))
    return run_store(
        store=molecule_store(molecules, dtype=dtype),
        function=function,
        width=width,
        shape=shape,
        cutoff=cutoff,
        fixed=fixed,
    )


def run_store(
    *,
    store: Store,
    function: Callable[[Batch], Tensor],
    width: int,
    shape: BatchShape,
    cutoff: float | None,
    fixed: bool = False,
) -> np.ndarray:
    """The same for the graphs of a store."""
    out = np.zeros((len(store), width))
    if not len(store):
        return out
    nodes, edges = store.nodes_per_graph(), store.edges_per_graph(cutoff=cutoff)
    trained = FixedSize(**shape.model_dump())
    size = trained if fixed else _fitted(trained, nodes=nodes, edges=edges)
    plan = make_plan(ids=np.arange(len(store)), nodes=nodes, edges=edges, shape=size)

    def one(number: int) -> tuple[np.ndarray, np.ndarray]:
        batch = fill_batch(store=store, graphs=plan.pack(number), shape=size, cutoff=cutoff)
        with torch.no_grad():
            values = function(batch)
        real = batch["graphs_mask"]
        return batch["graph_id"][real].numpy(), values[real].double().numpy()

    for rows, values in lane_map(one, range(len(plan))):
        out[rows] = values
    return out


def _fitted(trained: FixedSize, *, nodes: np.ndarray, edges: np.ndarray) -> FixedSize:
    """The trained batch shape, no larger than these molecules fill, large enough for each."""
    return FixedSize(
        nodes=max(min(trained.nodes, int(nodes.sum()) + 1), int(nodes.max()) + 1),
        edges=max(min(trained.edges, int(edges.sum())), int(edges.max()), 1),
        graphs=max(min(trained.graphs, len(nodes) + 1), 2),
    )


def packed_words(*, sizes: dict[str, int], skipped: dict[str, int], shape: FixedSize) -> str:
    """What a run trains on, for people."""
    each = ", ".join(f"{count:,} {split}" for split, count in sizes.items())
    out = sum(skipped.values())
    left_out = f" ({out:,} too large for a pack are left out)" if out else ""
    return (
        f"molecules {each}{left_out}; packs of up to {shape.graphs - 1} in {shape.nodes} nodes, "
        f"{shape.edges} edges"
    )
