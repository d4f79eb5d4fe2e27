"""What kernels need that numba has no words for: arrays from addresses, and rows in registers.

Addresses: to hand a kernel a tensor as a numpy array takes 1 µs, as an address 0.1 µs, and for
small graphs that is most of a call. Who passes addresses keeps the tensors alive, contiguous, and
of the type that `like`, a number, has.

Registers: a loop that adds rows to a row in memory loads and stores that row each time, and checks
each time whether the two overlap. `reduce_rows` takes a block of features at a time and holds it in
a vector until the last row was added: 2 to 5 times as fast where rows are in the cache.

(Kernels that are cached notice no change to this file.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numba.core.cgutils
import numba.extending
import numpy as np
import torch
from llvmlite import ir

from zoo.ops.setup import helper

Array = Any

# what of these is typed is typed for calls from Python, not for those from kernels
_numba: Any = numba
_types, _code = _numba.types, _numba.core.cgutils

LIKE: dict[torch.dtype, Any] = {
    torch.float32: np.float32(0),
    torch.float64: np.float64(0),
    torch.int32: np.int32(0),
    torch.int64: np.int64(0),
}
"""A number of each type that kernels take."""


@_numba.extending.intrinsic
def pointer(typing: Any, address: Any, like: Any) -> Any:
    kind = _types.CPointer(like)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(kind))

    return kind(address, like), generate


@helper
def rows_at(address: int, rows: int, features: int, like: Any) -> Array:
    """The array [rows, features] that begins at an address."""
    return _numba.carray(pointer(address, like), (rows, features))


@helper
def numbers_at(address: int, count: int, like: Any) -> Array:
    """The array [count] that begins at an address."""
    return _numba.carray(pointer(address, like), (count,))


@helper
def address_of(rows: Array, row: int) -> int:
    """Where a row of a contiguous array begins."""
    return int(rows.ctypes.data + row * rows.strides[0])


def reduce_rows(
    kind: str, *, permuted: bool = False, named: bool = False, weighted: bool = False
) -> Callable[..., Any]:
    """A function for kernels that reduces the entries at places begin..end-1 to one row.

    Place k holds entry e = perm[k] if `permuted`, else k; an entry stands for row ids[e] of x if
    `named`, else for row e, times weights[e] if `weighted`. What comes out is multiplied by
    `scale`. `kind` is "sum", "max" or "min"; the last two want at least one entry. x [., features],
    perm, ids, weights and out [features] are addresses; what isn't used may be any. Each feature is
    reduced in the order of the places, whatever the blocks.
    """
    b64, b32, b16, b8, b4, b1 = (
        _block(kind, permuted, named, weighted, width) for width in (64, 32, 16, 8, 4, 1)
    )

    @helper
    def reduce(
        x_at: int,
        perm_at: int,
        ids_at: int,
        weights_at: int,
        out_at: int,
        begin: int,
        end: int,
        features: int,
        scale: float,
        like: Any,
        id_like: Any,
    ) -> None:
        x, out, weights = pointer(x_at, like), pointer(out_at, like), pointer(weights_at, like)
        perm, ids = pointer(perm_at, id_like), pointer(ids_at, id_like)
        f = 0
        while f + 64 <= features:
            b64(x, perm, ids, weights, out, begin, end, features, scale, f)
            f += 64
        if f + 32 <= features:
            b32(x, perm, ids, weights, out, begin, end, features, scale, f)
            f += 32
        if f + 16 <= features:
            b16(x, perm, ids, weights, out, begin, end, features, scale, f)
            f += 16
        # A last block may overlap the one before: it writes the same there once more.
        if f < features and features >= 16:
            b16(x, perm, ids, weights, out, begin, end, features, scale, features - 16)
        elif features >= 8 and f < features:
            b8(x, perm, ids, weights, out, begin, end, features, scale, 0)
            if features > 8:
                b8(x, perm, ids, weights, out, begin, end, features, scale, features - 8)
        elif features >= 4 and f < features:
            b4(x, perm, ids, weights, out, begin, end, features, scale, 0)
            if features > 4:
                b4(x, perm, ids, weights, out, begin, end, features, scale, features - 4)
        else:
            for g in range(f, features):
                b1(x, perm, ids, weights, out, begin, end, features, scale, g)

    return reduce


def _block(
    kind: str, permuted: bool, named: bool, weighted: bool, width: int
) -> Callable[..., Any]:
    """A function for kernels: `width` features, from f on, of what `reduce_rows` computes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, perm, ids, weights, out, begin, end, features, scale, f = args
        real = context.get_data_type(signature.args[0].dtype)
        vector, whole, index = ir.VectorType(real, width), ir.IntType(64), ir.IntType(32)
        align = context.get_abi_sizeof(real)

        def spread(number: Any) -> Any:
            lanes = ir.Constant(vector, ir.Undefined)
            first = builder.insert_element(lanes, number, ir.Constant(index, 0))
            return builder.shuffle_vector(
                first, lanes, ir.Constant(ir.VectorType(index, width), [0] * width)
            )

        def block(array: Any, row: Any) -> Any:
            begins = builder.add(builder.mul(row, features), f)
            return builder.bitcast(builder.gep(array, [begins]), vector.as_pointer())

        def number(array: Any, place: Any) -> Any:
            found = builder.load(builder.gep(array, [place]))
            return builder.sext(found, whole) if found.type.width < 64 else found

        def values_at(place: Any) -> Any:
            entry = number(perm, place) if permuted else place
            row = number(ids, entry) if named else entry
            values = builder.load(block(x, row), align=align)
            if weighted:
                weight = builder.load(builder.gep(weights, [entry]))
                values = builder.fmul(values, spread(weight), flags=("contract",))
            return values

        zero = ir.Constant(whole, 0)
        start = ir.Constant(vector, [0.0] * width) if kind == "sum" else values_at(begin)
        total = _code.alloca_once_value(builder, start)
        with _code.for_range_slice(builder, begin, end, ir.Constant(whole, 1), whole) as (k, _):
            values, held = values_at(k), builder.load(total)
            if kind == "sum":
                held = builder.fadd(held, values, flags=("contract",))
            else:
                better = builder.fcmp_ordered(">" if kind == "max" else "<", values, held)
                nan = builder.fcmp_unordered("uno", values, values)
                held = builder.select(builder.or_(better, nan), values, held)
            builder.store(held, total)
        result = builder.fmul(builder.load(total), spread(scale))
        builder.store(result, block(out, zero), align=align)
        return context.get_dummy_value()

    # numba reads the names of these arguments
    def declare(
        typing: Any,
        x: Any,
        perm: Any,
        ids: Any,
        weights: Any,
        out: Any,
        begin: Any,
        end: Any,
        features: Any,
        scale: Any,
        f: Any,
    ) -> Any:
        n = _types.int64
        return _types.void(x, perm, ids, weights, out, n, n, n, x.dtype, n), generate

    made: Callable[..., Any] = _numba.extending.intrinsic(declare)
    return made
