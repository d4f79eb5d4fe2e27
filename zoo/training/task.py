"""What the loop asks of a recipe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn

from zoo.artifact import Spec
from zoo.batching.loader import Loader
from zoo.batching.pack import Batch

Loss = Callable[[nn.Module, Batch], tuple[Tensor, Tensor]]


class Task(Protocol):
    """A module with its data, and what differs between tasks.

    `loss` is pure in its tensors: the sum of the real labels' losses and their count (both
    scalars), so that a step over any number of packs and replicas is the sum of sums over the sum
    of counts. It is what a backend compiles.
    """

    module: nn.Module
    select: str
    """The validation metric that picks the best epoch."""
    higher_is_better: bool

    @property
    def train_loader(self) -> Loader: ...

    @property
    def spec(self) -> Spec:
        """What the weight file says of itself."""

    def loss(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]: ...

    def evaluate(self, module: nn.Module, split: str) -> dict[str, float]:
        """Metrics over the whole split, the same on every replica."""
