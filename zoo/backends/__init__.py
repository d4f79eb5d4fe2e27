"""What compiles and runs a step. Takes a function of tensors; knows no task."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Literal, TypeVar, cast

from zoo.errors import UnavailableError

Backend = Literal["eager", "inductor"]
_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function, *, backend: Backend) -> _Function:
    """The function as this backend runs it.

    `inductor` compiles once, at the first call, for the fixed shape of every batch; it needs g++
    on CPU (UnavailableError says so).
    """
    if backend == "eager":
        return function
    import torch

    if not torch.cuda.is_available() and shutil.which("g++") is None:
        raise UnavailableError(
            "the inductor backend needs g++, and there is none on PATH\n"
            "install it (Debian: apt-get install g++) or use train.backend=eager"
        )
    return cast(_Function, torch.compile(function, fullgraph=True, dynamic=False))
