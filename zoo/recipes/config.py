"""Recipe configs: one flat, typed YAML each, with named presets and command-line overrides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from zoo import registry
from zoo.errors import RequestError, unknown
from zoo.models.schnet import SchNetArguments
from zoo.training.settings import TrainSettings


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DataSettings(_Strict):
    """Which data, and how it is split."""

    adapter: Literal["qm9"] = Field(description="the adapter in zoo/datasets that reads it")
    property: str = Field(description="the property to predict")
    split_seed: int = Field(0, ge=0, description="seed of the stored random split")
    folder: Path | None = Field(None, description="read raw files from here, whatever their hash")
    synthetic: int = Field(0, ge=0, description="molecules to make up instead; 0 reads real data")
    limit: int = Field(0, ge=0, description="train on this many molecules only; 0 means all")

    @field_validator("folder")
    @classmethod
    def _from_anywhere(cls, folder: Path | None) -> Path | None:
        # A run is resumed from wherever, so its config can't hold a relative path.
        return folder and folder.expanduser().absolute()


class BatchSettings(_Strict):
    """The fixed shape of a batch: about `graphs` real graphs; slots chosen to fit unless given."""

    graphs: int = Field(100, ge=1, description="graphs of a pack, on average")
    nodes: int = Field(0, ge=0, description="node slots; 0 chooses")
    edges: int = Field(0, ge=0, description="edge slots; 0 chooses")
    slots: int = Field(0, ge=0, description="graph slots; 0 chooses")
    skip_oversize: bool = Field(False, description="leave out (and count) graphs that fit no pack")


class ModelSettings(_Strict):
    """An architecture and its arguments."""

    architecture: Literal["schnet"] = Field(description="a model in zoo/models")
    arguments: SchNetArguments = Field(SchNetArguments(), description="what it is built from")


class Target(_Strict):
    """The published number, how it came about, and where it stands."""

    metric: str = Field(description="which of the recipe's metrics")
    value: float = Field(description="the published value")
    unit: str = Field("", description="of the value")
    protocol: str = Field(description="data, split and selection behind it")
    source: str = Field(description="the paper")


class Config(_Strict):
    """A whole recipe, resolved."""

    entry: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9][A-Za-z0-9_-]*)?$",
        description="the entry this config is for",
    )
    task: Literal["energy"] = Field(description="the recipe in zoo/recipes that runs it")
    loss: Literal["smooth_l1", "mae", "mse"] = Field("smooth_l1", description="of the scaled label")
    loss_beta: float = Field(
        0.03, gt=0, description="scaled error at which smooth_l1 turns from square to absolute"
    )
    data: DataSettings
    batch: BatchSettings = BatchSettings()
    model: ModelSettings
    train: TrainSettings
    target: Target | None = None


def is_file(name: str | Path) -> bool:
    """Whether a name means a recipe's file: `mine.yaml`, or `mine.yaml:tag`."""
    return str(name).partition(":")[0].endswith((".yaml", ".yml"))


def load_config(name: str | Path, *, preset: str = "full", overrides: Sequence[str] = ()) -> Config:
    """The config of an entry (`schnet-qm9.U0`) or a YAML file (`mine.yaml`, its first tag, or
    `mine.yaml:homo`), with a preset and `a.b=c` over it.

    RequestError for an unknown name, preset or key (with the nearest), or a value out of range.
    """
    if is_file(name):
        file, _, tag = str(name).partition(":")
        path = Path(file)
        raw, where = registry.read_yaml(path), file
        tags = _blocks(raw, "tags", where=where)
        tag = tag or next(iter(tags), "")
        if tag and tag not in tags:
            raise unknown(kind=f"tag in {file}", name=tag, known=tags)
        own = str(raw.get("entry", re.sub(r"[^A-Za-z0-9_-]", "-", path.stem)))
        raw, full = registry.merged(raw, tags.get(tag, {})), f"{own}.{tag}" if tag else own
    else:
        entry, tag = registry.resolve(str(name))
        raw = registry.recipe(entry=entry, tag=tag)
        full = f"{entry.name}.{tag}"
        where = f"config of {full}"
    presets = _blocks(raw, "presets", where=where)
    if preset != "full":
        if preset not in presets:
            raise unknown(kind="preset", name=preset, known=[*presets, "full"])
        raw = registry.merged(raw, presets[preset])
    return _validated(raw, overrides, full=full, where=where)


def with_overrides(config: Config, overrides: Sequence[str], *, where: str) -> Config:
    """A config with `a.b=c` laid over it. Errors as in `load_config`; `where` is its file."""
    return _validated(config.model_dump(), overrides, full=config.entry, where=where)


def _validated(raw: dict[str, Any], overrides: Sequence[str], *, full: str, where: str) -> Config:
    for override in overrides:
        nested = _parse_override(override)
        if "entry" in nested:
            raise RequestError(
                f"override {override!r}: entry names the recipe, and isn't a setting"
            )
        raw = registry.merged(raw, nested)
    return registry.validate(Config, {**raw, "entry": full}, where=where)


def _blocks(raw: dict[str, Any], key: str, *, where: str) -> dict[str, dict[str, Any]]:
    """Take named overrides (presets, tags) out of a recipe; an empty one changes nothing."""
    blocks = raw.pop(key, None) or {}
    if not isinstance(blocks, dict):
        raise RequestError(f"{where}: {key}: names with settings below each are expected")
    for name, block in blocks.items():
        if block is not None and not isinstance(block, dict):
            raise RequestError(f"{where}: {key}.{name}: settings are expected, not {block!r}")
    return {str(name): block or {} for name, block in blocks.items()}


def _parse_override(text: str) -> dict[str, Any]:
    """`a.b=c` as a nested mapping, the value read as YAML 1.2."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise RequestError(f"override {text!r} isn't key=value, such as train.lr=5e-4")
    nested: Any = registry.read_yaml(f"value: {value}", name=f"override {text!r}")["value"]
    for part in reversed(key.strip().split(".")):
        nested = {part: nested}
    result: dict[str, Any] = nested
    return result


def describe(config: Config) -> list[dict[str, Any]]:
    """Every field with value, default, allowed values and meaning, for `zoo config`."""
    return list(_describe(config, ""))


def _describe(model: BaseModel, prefix: str) -> Sequence[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            rows.extend(_describe(value, f"{prefix}{name}."))
            continue
        choices = getattr(field.annotation, "__args__", ())
        bounds = [_bound(m) for m in field.metadata]
        allowed = (
            " | ".join(map(str, choices))
            if choices and all(isinstance(c, str) for c in choices)
            else ", ".join(bounds)
        )
        rows.append(
            {
                "key": f"{prefix}{name}",
                "value": value if not isinstance(value, Path) else str(value),
                "default": None if field.is_required() else field.default,
                "allowed": allowed,
                "meaning": field.description or "",
            }
        )
    return rows


def _bound(limit: Any) -> str:
    """A pydantic limit as people write it: `>= 0`."""
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    return next((f"{s} {getattr(limit, n)}" for n, s in signs.items() if hasattr(limit, n)), "")
