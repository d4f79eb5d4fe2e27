"""CPU kernel of `zoo.chem.similarity`: serial and nogil, like those of `zoo.ops`."""

from __future__ import annotations

from typing import Any

import numba
import numba.core.cgutils
import numba.extending
from llvmlite import ir

from zoo.ops.setup import helper, njit

Array = Any

WORDS = 32
"""64-bit words of a fingerprint."""
QUERIES = 64
"""Queries that a chunk of work compares with each tile while that lies in the cache."""
TILE = 512
"""References in a tile: 128 kB."""

# what of these is typed is typed for calls from Python, not for those from kernels
_numba: Any = numba


@_numba.extending.intrinsic
def _common(typing: Any, a_at: Any, b_at: Any) -> Any:
    """How many bits are on in both of two fingerprints, given by their addresses."""
    n = _numba.types.int64

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # Four vectors of eight words: as plain code the loop over words is not vectorised.
        vector = ir.VectorType(ir.IntType(64), 8)
        popcount = _numba.core.cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector]), "llvm.ctpop.v8i64"
        )
        total = ir.Constant(vector, [0] * 8)
        for block in range(0, WORDS, 8):
            places = [builder.add(at, ir.Constant(ir.IntType(64), 8 * block)) for at in args]
            a, b = (
                builder.load(builder.inttoptr(at, vector.as_pointer()), align=8) for at in places
            )
            total = builder.add(total, builder.call(popcount, [builder.and_(a, b)]))
        for width in (4, 2, 1):
            undefined = ir.Constant(total.type, ir.Undefined)
            halves = [
                builder.shuffle_vector(
                    total,
                    undefined,
                    ir.Constant(
                        ir.VectorType(ir.IntType(32), width), list(range(start, start + width))
                    ),
                )
                for start in (0, width)
            ]
            total = builder.add(*halves)
        return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))

    return n(n, n), generate


@helper
def _bound(a: int, low: int, high: int) -> tuple[int, int]:
    """The highest similarity, as a fraction, of a fingerprint with `a` bits on to one with `low` to
    `high`: all bits of the smaller are in the larger.
    """
    if a < low:
        return a, low
    if a > high:
        return high, a
    return 1, 1


@njit
def nearest(
    queries: Array,
    query_counts: Array,
    references: Array,
    counts: Array,
    order: Array,
    common: Array,
    union: Array,
    index: Array,
    chunk: int,
) -> None:
    """For each query of the chunk the reference of the highest Tanimoto similarity: common[q] /
    union[q], and its number, the lowest of equals.

    queries uint64 [M, WORDS] and query_counts int64 [M], best sorted by the latter; references
    uint64 [N, WORDS], N > 0, sorted by counts int64 [N], numbered by order int64 [N]. No count is
    zero.
    """
    begin = chunk * QUERIES
    end = min(begin + QUERIES, queries.shape[0])
    for q in range(begin, end):
        common[q], union[q], index[q] = 0, 1, order[0]
    tiles = (references.shape[0] + TILE - 1) // TILE
    # Outwards from the tile whose counts are most like the queries', where the nearest most often
    # is, on both sides as long as a bound lets some query hope.
    middle = query_counts[(begin + end) // 2]
    right = 0
    while right + 1 < tiles and counts[(right + 1) * TILE] < middle:
        right += 1
    left = right - 1
    while left >= 0 or right < tiles:
        for side in range(2):
            tile = left if side == 0 else right
            if tile < 0 or tile >= tiles:
                continue
            first, last = tile * TILE, min((tile + 1) * TILE, references.shape[0])
            low, high = counts[first], counts[last - 1]
            hope = False
            for q in range(begin, end):
                a = query_counts[q]
                top, bottom = _bound(a, low, high)
                # Equal ones count: of them the lowest number is wanted.
                if top * union[q] < common[q] * bottom:
                    # What lies further out may suit those on the other side of this tile.
                    hope = hope or (a < low if side == 0 else a > high)
                    continue
                hope = True
                query_at = queries.ctypes.data + q * queries.strides[0]
                reference_at = references.ctypes.data + first * references.strides[0]
                best, whole, at = common[q], union[q], index[q]
                for r in range(first, last):
                    both = _common(query_at, reference_at)
                    reference_at += references.strides[0]
                    # both / (a + b - both) against best / whole, without dividing
                    mine, its = both * (whole + best), best * (a + counts[r])
                    if mine > its or (mine == its and order[r] < at):
                        best, whole, at = both, a + counts[r] - both, order[r]
                common[q], union[q], index[q] = best, whole, at
            if side == 0:
                left = left - 1 if hope else -1
            else:
                right = right + 1 if hope else tiles
