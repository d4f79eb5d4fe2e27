"""A flat store of made-up molecules of any number, written straight to disk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from zoo.batching.store import FORMAT
from zoo.errors import RequestError, UnavailableError

MEAN_ATOMS, STD_ATOMS, MOST_ATOMS = 18.0, 2.95, 29
"""Atoms per molecule of QM9: mean, standard deviation, and the largest."""

_ELEMENTS = np.repeat(np.array([1, 6, 7, 8, 9], np.uint8), [130, 90, 15, 20, 1])
_ENERGIES = {1: -16.4, 6: -1036.0, 7: -1489.0, 8: -2046.0, 9: -2715.0}
_BOX = 5.5
"""Edge of the box atoms are strewn in [Å]: like in QM9, nearly all pairs lie within 10 Å."""


def write_molecules(*, folder: Path, molecules: int, seed: int = 0, chunk: int = 200_000) -> Path:
    """Write a store with node z, pos [Å] and graph y [M, 1] (an energy-like sum over atoms, eV).

    Chunk by chunk, so memory does not grow with `molecules`. Returns `folder`. UnavailableError
    when the disk has too little room.
    """
    if molecules < 1:
        raise RequestError("a store needs at least one molecule")
    rng = np.random.default_rng(seed)
    sizes = np.clip(np.rint(rng.normal(MEAN_ATOMS, STD_ATOMS, molecules)), 3, MOST_ATOMS)
    folder.mkdir(parents=True, exist_ok=True)
    _check_room(folder, atoms=int(sizes.sum()), molecules=molecules)
    try:
        _write(folder, sizes.astype(np.int64), rng, chunk)
    except OSError as error:
        raise UnavailableError(f"can't write a store to {folder}: {error}") from error
    return folder


def _check_room(folder: Path, *, atoms: int, molecules: int) -> None:
    needed, free = 13 * atoms + 16 * molecules, shutil.disk_usage(folder).free
    if needed > free:
        raise UnavailableError(
            f"{folder} has {free / 1e9:.1f} GB free; {molecules:,} molecules take "
            f"{needed / 1e9:.1f} GB\nname a folder with more room, or ask for fewer molecules"
        )


def _write(folder: Path, sizes: np.ndarray, rng: np.random.Generator, chunk: int) -> None:
    molecules = len(sizes)
    ptr = np.zeros(molecules + 1, np.int64)
    np.cumsum(sizes, out=ptr[1:])
    np.save(folder / "node_ptr.npy", ptr)

    def create(name: str, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
        return np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, shape)

    z = create("node-z", np.uint8, (int(ptr[-1]),))
    pos = create("node-pos", np.float32, (int(ptr[-1]), 3))
    y = create("graph-y", np.float64, (molecules, 1))
    energy = np.zeros(max(_ENERGIES) + 1)
    energy[list(_ENERGIES)] = list(_ENERGIES.values())
    for begin in range(0, molecules, chunk):
        end = min(begin + chunk, molecules)
        rows = slice(int(ptr[begin]), int(ptr[end]))
        atoms = rows.stop - rows.start
        z[rows] = _ELEMENTS[rng.integers(0, len(_ELEMENTS), atoms, np.uint8)]
        pos[rows] = rng.random((atoms, 3), np.float32) * np.float32(_BOX)
        total = np.add.reduceat(energy[z[rows]], ptr[begin:end] - ptr[begin])
        y[begin:end, 0] = total + rng.normal(0, 1, end - begin)
    for values in (z, pos, y):
        values.flush()  # type: ignore[attr-defined]
    attributes = {"node": ["pos", "z"], "edge": [], "graph": ["y"]}
    files = {
        path.name: {"size": path.stat().st_size, "sha256": None} for path in folder.glob("*.npy")
    }
    facts = {
        "format": FORMAT,
        "digest": f"made-up-{molecules}",
        "attributes": attributes,
        "files": files,
    }
    (folder / "store.json").write_text(json.dumps(facts, indent=1))
