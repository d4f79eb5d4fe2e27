"""Made-up molecules: atoms at random places that don't overlap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zoo.batching.store import Store, make_store

ELEMENTS = (1, 6, 7, 8, 9)


def random_molecule(
    generator: np.random.Generator, atoms: int, *, spacing: float = 0.9
) -> tuple[np.ndarray, np.ndarray]:
    """Atomic numbers [atoms] and positions [atoms, 3] (Å), no two closer than `spacing`."""
    side = 1.5 * atoms ** (1 / 3)
    places: list[np.ndarray] = []
    while len(places) < atoms:
        place = generator.uniform(-side, side, 3)
        if all(np.linalg.norm(place - other) > spacing for other in places):
            places.append(place)
    return generator.choice(ELEMENTS, atoms), np.stack(places)


def molecule_store(sizes: Sequence[int], *, seed: int = 0) -> Store:
    """Molecules of these sizes, positions in float64."""
    generator = np.random.default_rng(seed)
    molecules = [random_molecule(generator, size) for size in sizes]
    return make_store(
        node_ptr=np.concatenate([[0], np.cumsum(sizes)]),
        node={
            "z": np.concatenate([z for z, _ in molecules]).astype(np.int32),
            "pos": np.concatenate([pos for _, pos in molecules]),
        },
        graph={},
    )
