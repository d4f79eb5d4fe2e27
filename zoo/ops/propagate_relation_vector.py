"""Messages of `zoo.ops.propagate_relation` a block of columns at a time, in vector registers.

LLVM doesn't turn a loop that keeps maxima and minima beside sums into vector instructions, so these
are written as such. Blocks are of 16 columns; what is left over goes in blocks of two (pairs, for
rotations) or one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numba.core.cgutils
import numba.extending
from llvmlite import ir

# what of these is typed is typed for calls from Python, not for those from kernels
_numba: Any = numba
_types, _code = _numba.types, _numba.core.cgutils
_WHOLE, _SHORT = ir.IntType(64), ir.IntType(32)

WIDE = 16
Function = Callable[..., Any]


def reducing(message: str, reduce: str, width: int) -> Function:
    """A function for kernels that reduces the messages of edges begin..end-1 in `width` columns.

    (x, relations, src, types, keep, begin, end, columns, f, held): pointers to rows [., columns],
    to ids and to bytes that say which edges are kept; `held` [5, WIDE] has the start in its first
    row and receives the sum, the sum of squares, the largest, the smallest and, in its first number
    of the last row, the count.
    """
    wants_sum, wants_most = reduce != "max", reduce != "sum"
    moments = reduce == "moments"

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, relations, src, types, keep, begin, end, columns, f, held = args
        of = _Block(context, builder, signature.args[0].dtype, width)
        start = of.load(held, _number(0))
        state = {"sum": start, "square": builder.fmul(start, start), "most": start, "least": start}
        kept = {name: _code.alloca_once_value(builder, value) for name, value in state.items()}
        count = _code.alloca_once_value(builder, _number(1))
        with _code.for_range_slice(builder, begin, end, _number(1), _WHOLE) as (e, _):
            there = builder.load(builder.gep(keep, [e]))
            with builder.if_then(builder.icmp_unsigned("!=", there, there.type(0))):
                builder.store(builder.add(builder.load(count), _number(1)), count)
                a = of.row(x, _id(builder, src, e), columns, f)
                b = of.row(relations, _id(builder, types, e), columns, f)
                m = of.message(message, a, b)
                if wants_sum:
                    builder.store(builder.fadd(builder.load(kept["sum"]), m), kept["sum"])
                if moments:
                    square = builder.fadd(builder.load(kept["square"]), builder.fmul(m, m))
                    builder.store(square, kept["square"])
                for name, sign in (("most", ">"), ("least", "<")):
                    if moments or (wants_most and name == "most"):
                        best = builder.load(kept[name])
                        better = builder.or_(
                            builder.fcmp_ordered(sign, m, best),
                            builder.fcmp_unordered("uno", m, m),
                        )
                        builder.store(builder.select(better, m, best), kept[name])
        for place, name in enumerate(("sum", "square", "most", "least")):
            of.store(builder.load(kept[name]), held, _number(place * WIDE))
        total = builder.sitofp(builder.load(count), of.real)
        builder.store(total, builder.gep(held, [_number(4 * WIDE)]))
        return context.get_dummy_value()

    def declare(
        typing: Any,
        x: Any,
        relations: Any,
        src: Any,
        types: Any,
        keep: Any,
        begin: Any,
        end: Any,
        columns: Any,
        f: Any,
        held: Any,
    ) -> Any:
        n = _types.int64
        return _types.void(x, relations, src, types, keep, n, n, n, n, held), generate

    made: Function = _numba.extending.intrinsic(declare)
    return made


def returning(message: str, reduce: str, width: int) -> Function:
    """A function for kernels that adds what one edge's message owes to the slopes of its rows, in
    `width` columns.

    (x, relations, d_x, d_relations, s, t, columns, f, slopes, block, g): rows s of x and d_x and t
    of relations and d_relations, columns f on; `slopes` [6, block] holds, from g on, what each
    message owes, what it owes times itself, the largest and the smallest message, and what those
    owe besides: to the first that is it, so it is set to zero then.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, relations, d_x, d_relations, s, t, columns, f, slopes, block, g = args
        of = _Block(context, builder, signature.args[0].dtype, width)
        a, b = of.row(x, s, columns, f), of.row(relations, t, columns, f)

        def at(place: int) -> Any:
            return builder.add(builder.mul(_number(place), block), g)

        owed, zero = of.load(slopes, at(0)), ir.Constant(of.vector, [0.0] * width)
        m = of.message(message, a, b)
        if reduce == "moments":
            owed = builder.fadd(owed, builder.fmul(of.load(slopes, at(1)), m))
        extremes = {"sum": (), "max": (2,), "moments": (2, 3)}[reduce]
        for place in extremes:
            found = builder.fcmp_unordered("==", m, of.load(slopes, at(place)))
            more = of.load(slopes, at(place + 2))
            owed = builder.fadd(owed, builder.select(found, more, zero))
            of.store(builder.select(found, zero, more), slopes, at(place + 2))
        to_a, to_b = of.owed(message, owed, a, b)
        for rows, row, more in ((d_x, s, to_a), (d_relations, t, to_b)):
            there = builder.fadd(of.row(rows, row, columns, f), more)
            of.store(there, rows, builder.add(builder.mul(row, columns), f))
        return context.get_dummy_value()

    def declare(
        typing: Any,
        x: Any,
        relations: Any,
        d_x: Any,
        d_relations: Any,
        s: Any,
        t: Any,
        columns: Any,
        f: Any,
        slopes: Any,
        block: Any,
        g: Any,
    ) -> Any:
        n = _types.int64
        rows = (x, relations, d_x, d_relations)
        return _types.void(*rows, n, n, n, n, slopes, n, n), generate

    made: Function = _numba.extending.intrinsic(declare)
    return made


def _number(value: int) -> Any:
    return ir.Constant(_WHOLE, value)


def _id(builder: Any, ids: Any, place: Any) -> Any:
    return builder.sext(builder.load(builder.gep(ids, [place])), _WHOLE)


class _Block:
    """`width` columns of a kind of number, and what is done with them."""

    def __init__(self, context: Any, builder: Any, kind: Any, width: int) -> None:
        self.builder, self.width = builder, width
        self.real = context.get_data_type(kind)
        self.vector = ir.VectorType(self.real, width)
        self.align = context.get_abi_sizeof(self.real)

    def load(self, array: Any, place: Any) -> Any:
        at = self.builder.gep(array, [place])
        return self.builder.load(
            self.builder.bitcast(at, self.vector.as_pointer()), align=self.align
        )

    def store(self, value: Any, array: Any, place: Any) -> None:
        at = self.builder.gep(array, [place])
        self.builder.store(
            value, self.builder.bitcast(at, self.vector.as_pointer()), align=self.align
        )

    def row(self, rows: Any, row: Any, columns: Any, f: Any) -> Any:
        return self.load(rows, self.builder.add(self.builder.mul(row, columns), f))

    def _shuffled(self, value: Any, places: list[int]) -> Any:
        mask = ir.Constant(ir.VectorType(_SHORT, self.width), places)
        return self.builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), mask)

    def _parts(self, b: Any) -> tuple[Any, Any]:
        """Real and imaginary parts of pairs, each twice."""
        even = [lane - lane % 2 for lane in range(self.width)]
        return self._shuffled(b, even), self._shuffled(b, [lane + 1 for lane in even])

    def _turned(self, a: Any, sign: float) -> Any:
        """Pairs (p, q) as (-sign q, sign p): times the imaginary unit, or its conjugate."""
        swapped = self._shuffled(a, [lane + 1 - 2 * (lane % 2) for lane in range(self.width)])
        signs = [sign if lane % 2 else -sign for lane in range(self.width)]
        return self.builder.fmul(swapped, ir.Constant(self.vector, signs))

    def message(self, kind: str, a: Any, b: Any) -> Any:
        if kind == "multiply":
            return self.builder.fmul(a, b)
        if kind == "add":
            return self.builder.fadd(a, b)
        real, imaginary = self._parts(b)
        turned = self.builder.fmul(self._turned(a, 1.0), imaginary)
        return self.builder.fadd(self.builder.fmul(a, real), turned)

    def owed(self, kind: str, d: Any, a: Any, b: Any) -> tuple[Any, Any]:
        """What a message's slope d gives a and b."""
        if kind == "multiply":
            return self.builder.fmul(d, b), self.builder.fmul(d, a)
        if kind == "add":
            return d, d
        return self._conjugate_product(d, b), self._conjugate_product(d, a)

    def _conjugate_product(self, d: Any, b: Any) -> Any:
        real, imaginary = self._parts(b)
        turned = self.builder.fmul(self._turned(d, -1.0), imaginary)
        return self.builder.fadd(self.builder.fmul(d, real), turned)
