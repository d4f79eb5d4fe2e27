"""How an op is registered with torch, and who computes it.

Each op is a `torch.library` op: kernel on CPU, the plain reference elsewhere, a fake
implementation for tracing, an autograd formula made of other such ops (so that second derivatives
exist), and an autocast rule (kernels read float32 and float64 through numpy, which has no
bfloat16). They are registered piece by piece: what `torch.library.custom_op` wraps around a
kernel costs another 5 µs a call.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import profiler

REFERENCES: dict[str, Callable[..., Any]] = {}
"""Op name -> its reference with the same arguments: the decomposition table of exports."""

SWITCHED_OFF = os.environ.get("ZOO_KERNELS") == "reference"
"""Read once: asking the environment at each call takes as long as a small kernel."""

_LIBRARY: Any = torch.library.Library("zoo", "FRAGMENT")  # type: ignore[no-untyped-call]

_plain = 0
_device_dropout = 0


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


@contextlib.contextmanager
def device_dropout() -> Iterator[None]:
    """Dropout as torch has it, in what is traced here: a device with a generator of its own needs
    no counting in whole numbers, and IPUs have no 64-bit ones.
    """
    global _device_dropout
    _device_dropout += 1
    try:
        yield
    finally:
        _device_dropout -= 1


def dropout_is_torchs() -> bool:
    """True within `device_dropout`."""
    return _device_dropout > 0


def kernels_enabled() -> bool:
    """False within `plain_torch`, or when ZOO_KERNELS=reference switched the CPU kernels off."""
    return not _plain and not SWITCHED_OFF


def use_kernel(x: Tensor) -> bool:
    """True where a CPU kernel computes; other devices take the reference, which compilers fuse."""
    return x.is_cpu and not _plain and not SWITCHED_OFF


def array(tensor: Tensor) -> Any:
    """A tensor's numbers as a contiguous numpy array, for a kernel."""
    tensor = tensor.contiguous()
    return (tensor.detach() if tensor.requires_grad else tensor).numpy()


def define(
    *,
    name: str,
    cpu: Callable[..., Any],
    reference: Callable[..., Any],
    fake: Callable[..., Any],
    save: Callable[..., None] | None = None,
    backward: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Register one op, `name` in the namespace zoo; returns the callable.

    `cpu` and `reference` take the same arguments. An op of whole numbers has no `backward`.
    """

    def compute(*args: Any) -> Any:
        # Here, below autocast: a half-precision module without autocast has no kernel.
        known = args[0].dtype in _KERNEL_TYPES
        return cpu(*args) if known and use_kernel(args[0]) else reference(*args)

    schema = torch.library.infer_schema(cpu, mutates_args=())
    full = f"zoo::{name}"
    _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    _LIBRARY.impl(name, compute, "CompositeExplicitAutograd")
    torch.library.register_fake(full, fake, lib=_LIBRARY)
    if backward is not None:
        torch.library.register_autograd(full, backward, setup_context=save, lib=_LIBRARY)
        torch.library.register_autocast(full, "cpu", torch.float32, lib=_LIBRARY)
    REFERENCES[full] = reference
    op = getattr(torch.ops.zoo, name).default

    def call(*args: Any) -> Any:
        if _nobody_watches(args):
            return cpu(*args) if use_kernel(args[0]) else reference(*args)
        # A tracer that wants plain torch gets it, and no op of ours.
        if _plain or (torch.compiler.is_compiling() and not use_kernel(args[0])):
            return reference(*args)
        return op(*args)

    return call


_KERNEL_TYPES = frozenset((torch.float32, torch.float64, torch.int32, torch.int64))
_PLAIN_CLASSES = frozenset((Tensor, torch.nn.Parameter))
_modes = torch._C._len_torch_dispatch_stack
_transform = torch._C._functorch.peek_interpreter_stack
_traced = torch._C._get_tracing_state


def _nobody_watches(args: tuple[Any, ...]) -> bool:
    """True for an eager call on plain tensors that needs no gradient, no cast and no tracer.

    It is computed at once: torch's dispatcher, with rules written in Python, takes 10 µs, which is
    more than many a kernel.
    """
    if (
        torch.compiler.is_compiling()
        or _plain
        or _modes()
        or _transform() is not None
        or _traced() is not None
        or profiler._is_profiler_enabled
    ):
        return False
    recording = torch.is_grad_enabled()
    for arg in args:
        if isinstance(arg, Tensor) and (
            arg.dtype not in _KERNEL_TYPES
            or (recording and arg.requires_grad)
            or type(arg) not in _PLAIN_CLASSES
        ):
            return False
    return True
