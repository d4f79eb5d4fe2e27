"""CPU kernels of `zoo.ops.softmax`: serial, nogil, one chunk of segments a call."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zoo.ops.setup import njit

Array = Any


@njit
def first_row(ptr: Array, chunks: int, chunk: int) -> int:
    """Where a chunk begins: at its share of the entries."""
    return np.searchsorted(ptr[:-1], ptr[-1] * chunk // chunks) if chunk < chunks else len(ptr) - 1


@njit
def exp32(x: Any) -> Any:
    """e^x of a float32 x <= 0, within one unit in the last place, without a branch or a call.

    2^k e^r with |r| <= ln(2) / 2: k shifted into the exponent, e^r by its Taylor series of degree 7
    (remainder 5e-9).
    """
    real = np.float32
    k = np.floor(x * real(1.4426950408889634) + real(0.5))
    # ln(2) in two parts, the first of so few bits that k times it is exact
    r = x - k * real(0.693359375)
    r = r - k * real(-2.12194440054690583e-4)
    p = real(1 / 5040)
    p = p * r + real(1 / 720)
    p = p * r + real(1 / 120)
    p = p * r + real(1 / 24)
    p = p * r + real(1 / 6)
    p = p * r + real(1 / 2)
    p = p * r * r + (r + real(1))
    scale = np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(real)
    # below, the result would be no normal number; NaN stays
    return p * scale if x > real(-87) else (real(0) if x <= real(-87) else x)


@njit
def softmax_column(x: Array, single: bool, out: Array) -> None:
    """One segment of one feature, which lies in one stretch: loops go along it."""
    most = x[0]
    for k in range(1, x.shape[0]):
        most = x[k] if (x[k] > most) | (x[k] != x[k]) else most
    if single:
        for k in range(x.shape[0]):
            out[k] = exp32(x[k] - most)
    else:
        for k in range(x.shape[0]):
            out[k] = math.exp(x[k] - most)
    total = x.dtype.type(0)
    for k in range(x.shape[0]):
        total += out[k]
    share = 1 / total
    for k in range(x.shape[0]):
        out[k] *= share


@njit
def softmax(x: Array, ptr: Array, single: bool, out: Array, chunks: int, chunk: int) -> None:
    """out[k] = exp(x[k]) / sum over k's segment, for each feature; `single` says float32."""
    features = x.shape[1]
    most, total = np.empty(features, x.dtype), np.empty(features, x.dtype)
    flat, flat_out = x.reshape(-1), out.reshape(-1)
    for n in range(first_row(ptr, chunks, chunk), first_row(ptr, chunks, chunk + 1)):
        begin, end = ptr[n], ptr[n + 1]
        if begin == end:
            continue
        if features == 1:
            softmax_column(flat[begin:end], single, flat_out[begin:end])
            continue
        most[:] = x[begin]
        for k in range(begin + 1, end):
            row = x[k]
            for f in range(features):
                most[f] = row[f] if (row[f] > most[f]) | (row[f] != row[f]) else most[f]
        total[:] = 0
        for k in range(begin, end):
            row, powers = x[k], out[k]
            if single:
                for f in range(features):
                    powers[f] = exp32(row[f] - most[f])
            else:
                for f in range(features):
                    powers[f] = math.exp(row[f] - most[f])
            for f in range(features):
                total[f] += powers[f]
        for f in range(features):
            total[f] = 1 / total[f]
        for k in range(begin, end):
            powers = out[k]
            for f in range(features):
                powers[f] *= total[f]


@njit
def softmax_backward(
    grad: Array, out: Array, ptr: Array, result: Array, chunks: int, chunk: int
) -> None:
    """result[k] = out[k] (grad[k] - sum over k's segment of grad out)."""
    features = grad.shape[1]
    total = np.empty(features, grad.dtype)
    for n in range(first_row(ptr, chunks, chunk), first_row(ptr, chunks, chunk + 1)):
        total[:] = 0
        for k in range(ptr[n], ptr[n + 1]):
            g, y = grad[k], out[k]
            for f in range(features):
                total[f] += g[f] * y[f]
        for k in range(ptr[n], ptr[n + 1]):
            g, y, r = grad[k], out[k], result[k]
            for f in range(features):
                r[f] = y[f] * (g[f] - total[f])
