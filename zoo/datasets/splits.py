"""Splits as stored indices with a hash, so that the same name means the same rows."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from zoo.errors import RequestError


def random_split(*, count: int, sizes: Mapping[str, int], seed: int) -> dict[str, np.ndarray]:
    """Disjoint random parts of range(count): sorted int64 indices, drawn in order of `sizes`."""
    if sum(sizes.values()) > count or min(sizes.values()) < 1:
        raise RequestError(f"{count} rows can't be split into {dict(sizes)}")
    order = np.random.Generator(np.random.PCG64(seed)).permutation(count)
    parts, at = {}, 0
    for name, size in sizes.items():
        parts[name] = np.sort(order[at : at + size]).astype(np.int64)
        at += size
    return parts


def split_digest(parts: Mapping[str, np.ndarray]) -> str:
    """sha256 over the parts' names and indices (little-endian int64)."""
    digest = hashlib.sha256()
    for name in sorted(parts):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(parts[name], "<i8").tobytes())
    return digest.hexdigest()


def scaffold_split(
    *, scaffolds: Sequence[Hashable], shares: Mapping[str, float]
) -> dict[str, np.ndarray]:
    """Parts that share no scaffold, as OGB splits its molecules: sorted int64 indices.

    Sets of molecules with one scaffold are taken from the largest to the smallest (of equals, the
    one whose first molecule comes later first), and go into the first part while it has room, then
    the next; the last part takes what is left. RequestError where a part stays empty.
    """
    sets: dict[Hashable, list[int]] = {}
    for number, key in enumerate(scaffolds):
        sets.setdefault(key, []).append(number)
    ordered = sorted(sets.values(), key=lambda rows: (len(rows), rows[0]), reverse=True)
    names = list(shares)
    chosen = in_turn(
        sizes=[len(rows) for rows in ordered], count=len(scaffolds), shares=list(shares.values())
    )
    parts: dict[str, list[int]] = {name: [] for name in names}
    for rows, part in zip(ordered, chosen, strict=True):
        parts[names[part]] += rows
    if empty := [name for name in names if not parts[name]]:
        raise RequestError(
            f"a scaffold split of {len(scaffolds)} molecules with {len(sets)} scaffolds leaves "
            f"nothing for {' and '.join(empty)}\nuse another split, such as random"
        )
    return {name: np.sort(np.array(rows, np.int64)) for name, rows in parts.items()}


def in_turn(*, sizes: Iterable[int], count: int, shares: Sequence[float]) -> list[int]:
    """The part of each set: the first while it has room (its share of `count` rows), then the next;
    a set that fits nowhere is in the last.
    """
    limits = (np.cumsum(shares)[:-1] * count).tolist()
    held = [0] * len(shares)
    chosen = []
    for size in sizes:
        before = 0
        for part, limit in enumerate(limits):
            before += held[part]
            if before + size <= limit:
                break
        else:
            part = len(shares) - 1
        held[part] += size
        chosen.append(part)
    return chosen
