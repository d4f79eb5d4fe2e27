"""CPU kernels of `zoo.ops.batch_norm`: serial, nogil, one chunk of rows a call."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.ops.dropout_kernel import key_of, limit_of
from zoo.ops.setup import njit

Array = Any


@njit
def mixed(value: Any) -> Any:
    """As in `zoo.ops.dropout_kernel`, where the numbers of places are explained."""
    value = np.uint32(np.uint32(value ^ (value >> np.uint32(16))) * np.uint32(0x7FEB352D))
    value = np.uint32(np.uint32(value ^ (value >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(value ^ (value >> np.uint32(16)))


def dropping(seed: int, stream: int, p: float) -> tuple[Any, Any, float]:
    """What the kernels need to drop values: key, limit (0: none) and scale."""
    return key_of(seed, stream), limit_of(p), 1 / (1 - p)


def combine(parts: Array, count: int) -> tuple[Array, Array]:
    """Mean and biased variance from each chunk's mean and sum of squares about it."""
    chunks = parts.shape[0]
    ends = count * np.arange(chunks + 1) // chunks
    sizes = np.diff(ends).astype(np.float64)[:, None]
    if count < 1:
        return np.zeros(parts.shape[2], parts.dtype), np.ones(parts.shape[2], parts.dtype)
    means, squares = parts[:, 0].astype(np.float64), parts[:, 1].astype(np.float64)
    mean = (sizes * means).sum(0) / count
    variance = (squares + sizes * (means - mean) ** 2).sum(0) / count
    return mean.astype(parts.dtype), variance.astype(parts.dtype)


@njit
def moments(x: Array, count: int, parts: Array, chunks: int, chunk: int) -> None:
    """The mean of the chunk's rows, and the sum of their squares about it."""
    begin, end = count * chunk // chunks, count * (chunk + 1) // chunks
    mean, squares = parts[chunk, 0], parts[chunk, 1]
    mean[:] = 0
    squares[:] = 0
    for i in range(begin, end):
        row = x[i]
        for f in range(mean.shape[0]):
            mean[f] += row[f]
    if end > begin:
        share = x.dtype.type(1) / x.dtype.type(end - begin)
        for f in range(mean.shape[0]):
            mean[f] *= share
    for i in range(begin, end):
        row = x[i]
        for f in range(mean.shape[0]):
            away = row[f] - mean[f]
            squares[f] += away * away


@njit
def apply(
    x: Array,
    count: int,
    mean: Array,
    scale: Array,
    bias: Array,
    relu: bool,
    key: Any,
    limit: Any,
    factor: float,
    out: Array,
    chunks: int,
    chunk: int,
) -> None:
    """out = dropout(relu((x - mean) * scale + bias)) in the chunk's real rows, zero in others."""
    rows, features = x.shape
    zero, times = x.dtype.type(0), x.dtype.type(factor)
    for i in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
        row, to = x[i], out[i]
        if i >= count:
            to[:] = zero
            continue
        for f in range(features):
            y = (row[f] - mean[f]) * scale[f] + bias[f]
            to[f] = zero if relu and y <= zero else y
        if limit > 0:
            first = np.uint32(key + np.uint32(i * features))
            for f in range(features):
                to[f] = zero if mixed(np.uint32(first + np.uint32(f))) < limit else to[f] * times


@njit
def sums(
    grad: Array,
    x: Array,
    count: int,
    mean: Array,
    inverse: Array,
    weight: Array,
    bias: Array,
    relu: bool,
    key: Any,
    limit: Any,
    factor: float,
    parts: Array,
    chunks: int,
    chunk: int,
) -> None:
    """Sums over the chunk's rows of the gradient, and of the gradient times normalised x."""
    features = x.shape[1]
    zero, times = x.dtype.type(0), x.dtype.type(factor)
    plain, along = parts[chunk, 0], parts[chunk, 1]
    plain[:] = zero
    along[:] = zero
    for i in range(count * chunk // chunks, count * (chunk + 1) // chunks):
        row, g = x[i], grad[i]
        first = np.uint32(key + np.uint32(i * features))
        if limit > 0:
            for f in range(features):
                normal = (row[f] - mean[f]) * inverse[f]
                shut = relu and normal * weight[f] + bias[f] <= zero
                shut |= mixed(np.uint32(first + np.uint32(f))) < limit
                d = zero if shut else g[f] * times
                plain[f] += d
                along[f] += d * normal
        else:
            for f in range(features):
                normal = (row[f] - mean[f]) * inverse[f]
                d = zero if relu and normal * weight[f] + bias[f] <= zero else g[f]
                plain[f] += d
                along[f] += d * normal


@njit
def back(
    grad: Array,
    x: Array,
    count: int,
    mean: Array,
    inverse: Array,
    weight: Array,
    bias: Array,
    plain: Array,
    along: Array,
    relu: bool,
    key: Any,
    limit: Any,
    factor: float,
    out: Array,
    chunks: int,
    chunk: int,
) -> None:
    """The gradient with respect to x; `plain` and `along` are the means of what `sums` sums."""
    rows, features = x.shape
    zero, times = x.dtype.type(0), x.dtype.type(factor)
    for i in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
        to = out[i]
        if i >= count:
            to[:] = zero
            continue
        row, g = x[i], grad[i]
        first = np.uint32(key + np.uint32(i * features))
        if limit > 0:
            for f in range(features):
                normal = (row[f] - mean[f]) * inverse[f]
                shut = relu and normal * weight[f] + bias[f] <= zero
                shut |= mixed(np.uint32(first + np.uint32(f))) < limit
                d = zero if shut else g[f] * times
                to[f] = (d - plain[f] - normal * along[f]) * weight[f] * inverse[f]
        else:
            for f in range(features):
                normal = (row[f] - mean[f]) * inverse[f]
                d = zero if relu and normal * weight[f] + bias[f] <= zero else g[f]
                to[f] = (d - plain[f] - normal * along[f]) * weight[f] * inverse[f]
