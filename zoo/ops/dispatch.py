"""How an op is registered with torch, and who computes it.

Each op is a `torch.library` custom op: kernel on CPU, the plain reference elsewhere, a fake
implementation for tracing, an autograd formula made of other custom ops (so that second
derivatives exist), and an autocast rule (kernels read float32 and float64 through numpy, which
has no bfloat16).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

REFERENCES: dict[str, Callable[..., Tensor]] = {}
"""Op name -> its reference with the same arguments: the decomposition table of exports."""


_plain = 0


@contextlib.contextmanager
def plain_torch() -> Iterator[None]:
    """References instead of kernels: what is traced here holds torch's own operators alone.

    It holds for all threads (torch.compile can read a global, and nothing of a thread's own): what
    another one computes meanwhile is the same, and slower.
    """
    global _plain
    _plain += 1
    try:
        yield
    finally:
        _plain -= 1


def kernels_enabled() -> bool:
    """False within `plain_torch`, or when ZOO_KERNELS=reference switches the CPU kernels off."""
    return not _plain and os.environ.get("ZOO_KERNELS", "") != "reference"


def use_kernel(x: Tensor) -> bool:
    """True where a CPU kernel computes; other devices take the reference, which compilers fuse."""
    return x.device.type == "cpu" and kernels_enabled()


def define(
    *,
    name: str,
    cpu: Callable[..., Tensor],
    reference: Callable[..., Tensor],
    fake: Callable[..., Tensor],
    save: Callable[..., None],
    backward: Callable[..., Any],
) -> Callable[..., Tensor]:
    """Register one op; returns the callable. `cpu` and `reference` take the same arguments."""

    def compute(*args: Any) -> Tensor:
        # Here, below autocast: a half-precision module without autocast has no kernel.
        known = args[0].dtype in (torch.float32, torch.float64)
        return cpu(*args) if known and use_kernel(args[0]) else reference(*args)

    schema = torch.library.infer_schema(cpu, mutates_args=())
    op = torch.library.custom_op(name, compute, mutates_args=(), schema=schema)
    op.register_fake(fake)
    op.register_autograd(backward, setup_context=save)
    op.register_autocast("cpu", torch.float32)
    REFERENCES[name] = reference
    return op
