"""Rows in segments, some empty, with padding, in order and out of order."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Segments:
    """Rows x [E, F] of segments that `ptr` [N + 1] bounds; `perm` names them if out of order."""

    x: Tensor
    ptr: Tensor
    perm: Tensor | None

    @property
    def used(self) -> Tensor:
        """The rows that belong to a segment, in order: int64."""
        count = int(self.ptr[-1])
        return torch.arange(count) if self.perm is None else self.perm[:count].long()

    def rows(self, n: int) -> Tensor:
        """The numbers of the rows of segment n."""
        return self.used[int(self.ptr[n]) : int(self.ptr[n + 1])]


def segments(
    sizes: list[int],
    *,
    features: int,
    padding: int = 3,
    shuffled: bool = False,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Segments:
    """Segments of these sizes; rows of padding are NaN."""
    random = torch.Generator().manual_seed(seed)
    ptr = torch.tensor([0, *sizes]).cumsum(0).to(torch.int32)
    total = int(ptr[-1]) + padding
    x = torch.randn(total, features, generator=random, dtype=torch.float64).to(dtype)
    perm = torch.randperm(total, generator=random).to(torch.int32) if shuffled else None
    given = Segments(x=x, ptr=ptr, perm=perm)
    idle = torch.ones(total, dtype=torch.bool)
    idle[given.used] = False
    x[idle] = torch.nan
    return given
