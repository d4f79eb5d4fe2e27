"""The training part of a recipe's config."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class TrainSettings(BaseModel):
    """How a recipe is trained."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    epochs: int = Field(ge=1, description="passes over the training split")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="seeds weights, shuffling and dropout")
    lr: float = Field(1e-3, gt=0, description="peak learning rate of AdamW")
    body_lr: float = Field(
        1.0, gt=0, le=1, description="rate of all but the output layers, as a share of lr"
    )
    weight_decay: float = Field(0.01, ge=0, description="AdamW's decoupled weight decay")
    schedule: Literal["cosine", "plateau", "constant"] = Field(
        "cosine", description="learning rate after warm-up"
    )
    warmup_steps: int = Field(500, ge=0, description="steps of linear warm-up")
    plateau_epochs: int = Field(5, ge=1, description="epochs without gain before lr halves")
    ema_decay: float = Field(
        0.999, ge=0, lt=1, description="moving average of weights, per step; 0 switches it off"
    )
    clip_norm: float = Field(10.0, gt=0, description="largest norm of the gradient")
    accumulate: int = Field(1, ge=1, description="packs per optimiser step and replica")
    patience: int = Field(
        0, ge=0, description="epochs without a better validation before stopping; 0 never stops"
    )
    precision: Literal["float32", "bf16"] = Field(
        "float32", description="of matrix products (weights stay float32)"
    )
    backend: Literal["eager", "inductor"] = Field("eager", description="what runs a step")
    device: Literal["cpu", "cuda"] = Field("cpu", description="where a step runs")
    replicas: int = Field(1, ge=1, description="data-parallel processes")
    checkpoint_steps: int = Field(
        500, ge=1, description="steps between checkpoints (also one each epoch)"
    )
    tracking: bool = Field(True, description="log to MLflow")
