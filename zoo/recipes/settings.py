"""What a recipe's YAML may say: one config class for each task."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from zoo.models.gin import GINArguments
from zoo.models.nbfnet import NBFNetArguments
from zoo.models.schnet import SchNetArguments
from zoo.training.settings import TrainSettings

_ENTRY = r"^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9][A-Za-z0-9_-]*)?$"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _absolute(folder: Path | None) -> Path | None:
    # A run is resumed from wherever, so its config can't hold a relative path.
    return folder and folder.expanduser().absolute()


class BatchSettings(_Strict):
    """The fixed shape of a batch: about `graphs` real graphs; slots chosen to fit unless given."""

    graphs: int = Field(100, ge=1, description="graphs of a pack, on average")
    nodes: int = Field(0, ge=0, description="node slots; 0 chooses")
    edges: int = Field(0, ge=0, description="edge slots; 0 chooses")
    slots: int = Field(0, ge=0, description="graph slots; 0 chooses")
    skip_oversize: bool = Field(False, description="leave out (and count) graphs that fit no pack")


class Target(_Strict):
    """The published number, how it came about, and where it stands."""

    metric: str = Field(description="which of the recipe's metrics")
    value: float = Field(description="the published value")
    unit: str = Field("", description="of the value")
    protocol: str = Field(description="data, split and selection behind it")
    source: str = Field(description="the paper")


class EnergyDataSettings(_Strict):
    """Which molecules with geometries, and how they are split."""

    adapter: Literal["qm9"] = Field(description="the adapter in zoo/datasets that reads it")
    property: str = Field(description="the property to predict")
    split_seed: int = Field(0, ge=0, description="seed of the stored random split")
    folder: Path | None = Field(None, description="read raw files from here, whatever their hash")
    synthetic: int = Field(0, ge=0, description="molecules to make up instead; 0 reads real data")
    limit: int = Field(0, ge=0, description="train on this many molecules only; 0 means all")

    _from_anywhere = field_validator("folder")(_absolute)


class EnergyModelSettings(_Strict):
    """An architecture and its arguments."""

    architecture: Literal["schnet"] = Field(description="a model in zoo/models")
    arguments: SchNetArguments = Field(SchNetArguments(), description="what it is built from")


class EnergyConfig(_Strict):
    """A recipe for one property of molecules with geometries."""

    entry: str = Field(pattern=_ENTRY, description="the entry this config is for")
    task: Literal["energy"] = Field(description="the recipe in zoo/recipes that runs it")
    loss: Literal["smooth_l1", "mae", "mse"] = Field("smooth_l1", description="of the scaled label")
    loss_beta: float = Field(
        0.03, gt=0, description="scaled error at which smooth_l1 turns from square to absolute"
    )
    data: EnergyDataSettings
    batch: BatchSettings = BatchSettings()
    model: EnergyModelSettings
    train: TrainSettings
    target: Target | None = None


class PropertyDataSettings(_Strict):
    """Which graphs with labels, and how they are split."""

    adapter: str = Field(
        pattern=r"^[a-z0-9_]+\.[a-z0-9_]+$",
        description="the adapter in zoo/datasets and its set: moleculenet.esol",
    )
    split: str = Field("scaffold", description="the split's protocol, as the adapter names it")
    split_seed: int = Field(0, ge=0, description="seed of a split that is drawn")
    folder: Path | None = Field(None, description="read raw files from here, whatever their hash")
    synthetic: int = Field(0, ge=0, description="graphs to make up instead; 0 reads real data")
    limit: int = Field(0, ge=0, description="train on this many graphs only; 0 means all")

    _from_anywhere = field_validator("folder")(_absolute)


class PropertyModelSettings(_Strict):
    """An architecture and its arguments; the data say how many outputs there are."""

    architecture: Literal["gin"] = Field(description="a model in zoo/models")
    arguments: GINArguments = Field(GINArguments(), description="what it is built from")


class PropertyConfig(_Strict):
    """A recipe for labels of whole graphs: quantities, or one of two or more classes."""

    entry: str = Field(pattern=_ENTRY, description="the entry this config is for")
    task: Literal["property"] = Field(description="the recipe in zoo/recipes that runs it")
    loss: Literal["smooth_l1", "mae", "mse"] = Field(
        "mse", description="of scaled quantities; classes have cross entropy"
    )
    loss_beta: float = Field(
        1.0, gt=0, description="scaled error at which smooth_l1 turns from square to absolute"
    )
    data: PropertyDataSettings
    batch: BatchSettings = BatchSettings()
    model: PropertyModelSettings
    train: TrainSettings
    target: Target | None = None


class LinkDataSettings(_Strict):
    """Which graph, whose missing facts are to be found."""

    adapter: str = Field(
        pattern=r"^[a-z0-9_]+\.[a-z0-9_]+$",
        description="the adapter in zoo/datasets and its set: kg.fb15k237_v1",
    )
    folder: Path | None = Field(
        None, description="read train, valid and test files from here, whatever they hold"
    )
    synthetic: int = Field(0, ge=0, description="facts to make up instead; 0 reads real data")
    limit: int = Field(0, ge=0, description="ask for this many facts an epoch only; 0 means all")

    _from_anywhere = field_validator("folder")(_absolute)


class QuerySettings(_Strict):
    """What a batch asks."""

    graphs: int = Field(64, ge=1, description="queries of a batch, each answered on the graph")
    negatives: int = Field(32, ge=1, description="untrue tails that each true one is told from")
    hide: Literal["pair", "fact"] = Field(
        "fact", description="edges taken out: the fact asked for, or all between its head and tail"
    )


class LinkModelSettings(_Strict):
    """An architecture and its arguments; the data say how many relations there are."""

    architecture: Literal["nbfnet"] = Field(description="a model in zoo/models")
    arguments: NBFNetArguments = Field(NBFNetArguments(), description="what it is built from")


class LinkConfig(_Strict):
    """A recipe for the missing facts of a graph."""

    entry: str = Field(pattern=_ENTRY, description="the entry this config is for")
    task: Literal["link"] = Field(description="the recipe in zoo/recipes that runs it")
    temperature: float = Field(
        0.5,
        ge=0,
        description="how evenly untrue tails count: small, the likeliest alone; 0, all alike",
    )
    data: LinkDataSettings
    batch: QuerySettings = QuerySettings()
    model: LinkModelSettings
    train: TrainSettings
    target: Target | None = None
