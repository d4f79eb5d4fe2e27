"""Entry points of the batching kernels; numba is imported at the first call, not before."""

from __future__ import annotations

import numpy as np

_BLOCK = 4096


def count_within(pos: np.ndarray, node_ptr: np.ndarray, cutoff: float, out: np.ndarray) -> None:
    """out[g] = ordered pairs of different nodes of graph g closer than `cutoff`."""
    from zoo.batching import plan_kernel
    from zoo.ops.launcher import launch

    chunks = max(1, len(out) // _BLOCK)
    launch(plan_kernel.count_within, pos, node_ptr, cutoff, out, chunks, chunks=chunks)
