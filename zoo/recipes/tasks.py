"""What a training run asks of a task, and which task a config means."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
from torch import nn

from zoo.artifact import Spec
from zoo.batching.loader import Loader, PackLoader
from zoo.batching.pack import Batch
from zoo.batching.shape import FixedSize
from zoo.recipes.config import Config
from zoo.recipes.settings import EnergyConfig, LinkConfig
from zoo.training.task import Task


class RecipeLoader(Loader, Protocol):
    """A loader that knows how full its batches are."""

    def example(self) -> Batch:
        """A batch, for those who compile."""

    def filling(self) -> dict[str, np.ndarray]:
        """Real over slots of each batch of the epoch, for nodes, edges and graphs."""

    def efficiency(self) -> dict[str, float]:
        """Real over slots, of the whole epoch."""


class RecipeTask(Task, Protocol):
    """A task of the loop that also knows its data, its metrics' units and its plots."""

    shape: FixedSize
    split_sha256: str
    digest: str
    skipped: dict[str, int]
    """Graphs of each split that fit no pack."""
    units: dict[str, str]
    """Of each metric."""
    outputs: list[str]
    """Columns that predictions have, with units."""
    inputs: dict[str, str]
    """Columns that a served model takes, and their types for MLflow."""

    @property
    def train_loader(self) -> RecipeLoader: ...

    def sizes(self) -> dict[str, int]:
        """Graphs of each split."""

    def words(self) -> str:
        """What is trained on and how it is batched, for people."""

    def efficiency(self, split: str) -> dict[str, float]:
        """Real over slots of the batches of a split."""

    def predictions(self, module: nn.Module, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Store indices of a split and what is predicted for them, in the labels' units."""

    def metrics(self, rows: np.ndarray, predicted: np.ndarray) -> dict[str, float]: ...

    def take_over(self, *, spec: Spec, module: nn.Module) -> None:
        """Evaluate this module with the label scaling that its weights carry."""

    def write_model(self, folder: Path, module: nn.Module) -> None:
        """Write into a run's folder what a trained model is besides its best checkpoint."""

    def plots(self, folder: Path, rows: np.ndarray, predicted: np.ndarray) -> list[Path]:
        """Plots of the test split's predictions."""


class PackedTask(RecipeTask, Protocol):
    """A task on graphs in packs."""

    def loader(self, split: str, *, shuffle: bool = False) -> PackLoader:
        """The packs of a split."""


def open_task(config: Config) -> RecipeTask:
    """Read the data of a config and make its task."""
    if isinstance(config, EnergyConfig):
        from zoo.recipes.energy import EnergyTask
        from zoo.recipes.energy import open_data as open_energy_data

        return EnergyTask(config=config, data=open_energy_data(config))
    if isinstance(config, LinkConfig):
        from zoo.recipes.link import LinkTask, open_knowledge

        return LinkTask(config=config, data=open_knowledge(config))
    from zoo.recipes.property import PropertyTask
    from zoo.recipes.property_data import open_data

    return PropertyTask.of(config=config, data=open_data(config))


def shown(value: float, unit: str) -> str:
    """A metric for people: four digits and its unit, small energies in meV."""
    if unit == "eV" and abs(value) < 1:
        return f"{1000 * value:.1f} meV"
    return f"{value:.4g} {unit}".rstrip()


def plain_name(metric: str) -> str:
    """A metric's name for people: MAE, ROC-AUC."""
    if metric.startswith("hits@"):
        return metric.replace("hits@", "Hits@").replace("_", " ")
    known = {"roc_auc": "ROC-AUC", "ap": "AP", "r2": "R²", "accuracy": "accuracy", "f1": "F1"}
    return known.get(metric, metric.upper())
