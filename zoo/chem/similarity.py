"""How alike molecules are to the nearest of others, by Tanimoto's measure on fingerprints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zoo.chem.fingerprints import Fingerprints, dense, selected

_SLAB = 16384  # queries held dense at a time


@dataclass(frozen=True, kw_only=True)
class References:
    """Fingerprints made ready to be searched: 256 bytes each, those of unreadable molecules left
    out.

    words uint64 [n, 32], sorted by counts int64 [n]; order int64 [n] their numbers as given
    """

    words: np.ndarray
    counts: np.ndarray
    order: np.ndarray


def references(fingerprints: Fingerprints) -> References:
    """Make fingerprints ready: once for many searches."""
    counts = fingerprints.counts
    order = np.argsort(counts, kind="stable")[np.count_nonzero(counts == 0) :]
    words = dense(selected(fingerprints, rows=order)).view(np.uint64)
    return References(words=words, counts=counts[order], order=order)


def nearest_similarity(
    *, query: Fingerprints, reference: References
) -> tuple[np.ndarray, np.ndarray]:
    """The highest Tanimoto similarity of each query to any reference, float32 [queries] in 0..1,
    and which reference that is, int64 [queries]: the lowest number of equals.

    NaN and -1 for a query that couldn't be read, and for all when there are no references. Beyond
    query and references it takes some megabytes.
    """
    from zoo.chem import similarity_kernel as kernel
    from zoo.ops.launcher import launch

    similarity = np.full(len(query), np.nan, np.float32)
    index = np.full(len(query), -1, np.int64)
    if not len(reference.order):
        return similarity, index
    counts = query.counts
    readable = np.flatnonzero(counts)
    # Queries of like counts side by side: they hope for the same references.
    rows = readable[np.argsort(counts[readable], kind="stable")]
    for start in range(0, len(rows), _SLAB):
        some = rows[start : start + _SLAB]
        words = dense(selected(query, rows=some)).view(np.uint64)
        common, union, at = (np.empty(len(some), np.int64) for _ in range(3))
        launch(
            kernel.nearest,
            words,
            counts[some],
            reference.words,
            reference.counts,
            reference.order,
            common,
            union,
            at,
            chunks=-(-len(some) // kernel.QUERIES),
        )
        similarity[some] = common / union
        index[some] = at
    return similarity, index
