"""What `zoo finetune` is asked to do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Kind = Literal["regression", "binary", "multiclass"]
Split = Literal["scaffold", "scaffold-balanced", "random", "column", "kfold"]

VISITS = 40_000
"""Molecules that are looked at in training, over all epochs, where the epochs aren't given."""


class FinetuneRequest(BaseModel):
    """A model, a table and how the one is tuned on the other; kept with the run."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    task: Literal["finetune"] = Field("finetune", description="what this is a request for")
    model: str = Field(description="an entry, weight file, checkpoint or run to start from")
    data: Path = Field(description=".csv .tsv .txt .sdf (or with .gz) or .parquet")
    smiles: str | None = Field(
        None, description="the column with SMILES; by default the one so called"
    )
    labels: list[str] = Field(min_length=1, description="the columns to learn")
    kinds: dict[str, Kind] = Field({}, description="what a label is, where it isn't as inferred")
    split: Split = Field("scaffold", description="how training, validation and test part")
    split_column: str | None = Field(
        None, description="split=column: train, valid or test of a row"
    )
    folds: int = Field(5, ge=3, le=20, description="split=kfold: parts, each the test set once")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="of split, new weights, order and dropout")
    epochs: int = Field(
        0, ge=0, description="passes over the training split; 0 chooses by its size"
    )
    patience: int = Field(
        10, ge=0, description="epochs without gain before stopping; 0 never stops"
    )
    lr: float = Field(1e-3, gt=0, description="learning rate of the new output layer")
    body_lr: float = Field(0.3, gt=0, le=1, description="that of the rest, as a share of lr")
    freeze: bool = Field(False, description="train the output layer alone")
    ensemble: int = Field(1, ge=1, le=50, description="models that differ in seed, averaged")
    graphs: int = Field(
        0, ge=0, description="molecules of a batch; 0 chooses by the training split"
    )
    precision: Literal["float32", "bf16"] = Field("float32", description="of matrix products")
    largest_fragment: bool = Field(
        False, description="of salts and mixtures, keep the largest part"
    )
    on_error: Literal["raise", "skip"] = Field("raise", description="what to do with invalid rows")
    scratch: bool = Field(True, description="compare with the same network untrained before")
    forest: bool = Field(True, description="compare with a random forest on fingerprints")
    tracking: bool = Field(True, description="log to MLflow")

    @field_validator("data")
    @classmethod
    def _from_anywhere(cls, data: Path) -> Path:
        # A run is resumed from wherever, so it can't hold a relative path.
        return Path(os.path.abspath(data.expanduser()))

    def budget(self, molecules: int) -> int:
        """Epochs for a training split of so many molecules."""
        return self.epochs or min(60, max(3, round(VISITS / molecules)))

    def pack(self, molecules: int) -> int:
        """Molecules of a batch, for a training split of so many."""
        return self.graphs or min(64, max(8, molecules // 30))
