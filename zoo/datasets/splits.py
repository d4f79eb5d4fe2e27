"""Splits as stored indices with a hash, so that the same name means the same rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

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
