"""A kernel's chunks in one call without Python, so that threads in C can take them.

Numba compiles a kernel to machine code with arguments of its own kind. `job` puts them into memory,
as 64-bit words, and makes (once for each kernel and kinds of arguments) a function of that memory
alone, which takes chunk after chunk and calls the kernel. A thread begins at its share of the
chunks, where it was the last time and what it needs may still be in its cache, and then helps with
the others'.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock

_WORD = ir.IntType(64)
_CHUNKS, _THREADS, _NUMBER, _ENTERED, _FAILED, _FIRST = range(6)
"""Words before the arguments: chunks, threads, a C function that numbers threads (or none: they are
numbered as they come), how many came, whether a chunk failed. After the arguments a word for each
chunk: whether it is taken."""
_RAISED = -1
"""What numba's functions return where they raise; also anything above zero."""


class _Entry(NamedTuple):
    address: int
    pack: Callable[..., bytes]
    size: int
    library: Any
    """Owns the machine code."""


_entries: dict[Any, _Entry] = {}


class Job(NamedTuple):
    """What `address`, a C function void(void *), is to be called with, by one or more threads."""

    address: int
    words: Any

    @property
    def failed(self) -> bool:
        """Whether the kernel raised, once all is done."""
        return bool(self.words[8 * _FAILED] != b"\0")


def job(kernel: Any, args: tuple[Any, ...], *, chunks: int, threads: int, number: int) -> Job:
    """`kernel(*args, chunk)` for every chunk in 0..chunks-1, for so many threads, numbered by the C
    function `number` if it isn't 0. Who calls keeps `args` alive.
    """
    kinds = tuple(map(type, args))
    values = args
    if np.ndarray in kinds:
        kinds = tuple(_kind(arg) for arg in args)
        values = tuple(word for arg in args for word in _words(arg))
    entry = _entries.get((kernel, kinds)) or _make(kernel, kinds, args)
    packed = entry.pack(chunks, threads, number, 0, 0, *values)
    return Job(entry.address, ctypes.create_string_buffer(packed, entry.size + 8 * chunks))


def _kind(arg: Any) -> Any:
    return (arg.dtype.num, arg.ndim) if isinstance(arg, np.ndarray) else type(arg)


def _words(arg: Any) -> tuple[Any, ...]:
    """An argument as numba hands it on: of an array its owners, sizes, place, shape, strides."""
    if not isinstance(arg, np.ndarray):
        return (arg,)
    return 0, 0, arg.size, arg.itemsize, arg.ctypes.data, *arg.shape, *arg.strides


def _make(kernel: Any, kinds: tuple[Any, ...], args: tuple[Any, ...]) -> _Entry:
    with global_compiler_lock:
        if (kernel, kinds) not in _entries:
            _entries[kernel, kinds] = _compile(kernel, args)
        return _entries[kernel, kinds]


def _compile(kernel: Any, args: tuple[Any, ...]) -> _Entry:
    types = *(kernel.typeof_pyval(arg) for arg in args), numba.int64
    kernel.compile(types)
    found = kernel.overloads[types]
    convention = found.target_context.call_conv
    called = convention.get_function_type(found.fndesc.restype, found.fndesc.argtypes)
    place = found.library.get_pointer_to_function(found.fndesc.llvm_func_name)

    library = found.target_context.codegen().create_library(f"chunks of {kernel.__name__}")
    module = library.create_ir_module("chunks")
    name = f"zoo_chunks_{len(_entries)}_{kernel.__name__}"
    kinds = _take_chunks(module, name=name, called=called, place=place)
    library.add_ir_module(module)
    library.finalize()
    words = struct.Struct(f"={_FIRST}q{kinds}")
    return _Entry(library.get_pointer_to_function(name), words.pack, words.size, library)


def _take_chunks(module: Any, *, name: str, called: Any, place: int) -> str:
    """Write the function that takes chunks; returns how `struct` packs the words of arguments."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_WORD]), name)
    builder = ir.IRBuilder(function.append_basic_block())
    words = builder.inttoptr(function.args[0], _WORD.as_pointer())
    zero, one = ir.Constant(_WORD, 0), ir.Constant(_WORD, 1)

    def word(number: int) -> Any:
        return builder.gep(words, [ir.Constant(_WORD, number)])

    kinds, given = "", []
    for number, kind in enumerate(called.args[2:-1], start=_FIRST):
        kinds += "d" if isinstance(kind, ir.FloatType | ir.DoubleType) else "q"
        given.append(_as_kind(builder, builder.load(word(number)), kind))
    result, error = (builder.alloca(kind.pointee) for kind in called.args[:2])
    kernel = builder.inttoptr(ir.Constant(_WORD, place), called.as_pointer())
    taken = word(_FIRST + len(kinds))
    chunks, threads = builder.load(word(_CHUNKS)), builder.load(word(_THREADS))

    numbering, thread_at = builder.load(word(_NUMBER)), builder.alloca(_WORD)
    with builder.if_else(builder.icmp_signed("!=", numbering, zero)) as (numbered, unnumbered):
        with numbered:
            kind = ir.FunctionType(ir.IntType(32), [])
            thread = builder.call(builder.inttoptr(numbering, kind.as_pointer()), [])
            builder.store(builder.sext(thread, _WORD), thread_at)
        with unnumbered:
            came = builder.atomic_rmw("add", word(_ENTERED), one, "monotonic")
            builder.store(came, thread_at)
    first = builder.sdiv(builder.mul(chunks, builder.load(thread_at)), threads)

    with cgutils.for_range(builder, chunks) as loop:
        chunk = builder.srem(builder.add(first, loop.index), chunks)
        before = builder.atomic_rmw("xchg", builder.gep(taken, [chunk]), one, "monotonic")
        with builder.if_then(builder.icmp_signed("==", before, zero)):
            status = builder.call(kernel, [result, error, *given, chunk])
            no, yes = (ir.Constant(status.type, value) for value in (_RAISED, 0))
            raised = builder.or_(
                builder.icmp_signed("==", status, no), builder.icmp_signed(">", status, yes)
            )
            with builder.if_then(raised):
                builder.store(ir.Constant(_WORD, -1), word(_FAILED))
    builder.ret_void()
    return kinds


def _as_kind(builder: Any, value: Any, kind: Any) -> Any:
    """A word as an argument of a kind."""
    if isinstance(kind, ir.PointerType):
        return builder.inttoptr(value, kind)
    if isinstance(kind, ir.IntType):
        return value if kind.width == 64 else builder.trunc(value, kind)
    real = builder.bitcast(value, ir.DoubleType())
    return builder.fptrunc(real, kind) if isinstance(kind, ir.FloatType) else real
