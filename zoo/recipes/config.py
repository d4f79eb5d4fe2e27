"""Recipe configs: one flat, typed YAML each, with named presets and command-line overrides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from zoo import registry
from zoo.errors import RequestError, unknown
from zoo.recipes.settings import EnergyConfig, LinkConfig, PropertyConfig

Config = EnergyConfig | PropertyConfig | LinkConfig
"""A whole recipe, resolved."""

_Config = TypeVar("_Config", bound=Config)

_TASKS: dict[str, type[EnergyConfig] | type[PropertyConfig] | type[LinkConfig]] = {
    "energy": EnergyConfig,
    "property": PropertyConfig,
    "link": LinkConfig,
}


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


def with_overrides(config: _Config, overrides: Sequence[str], *, where: str) -> _Config:
    """A config with `a.b=c` laid over it. Errors as in `load_config`; `where` is its file."""
    changed = _validated(config.model_dump(), overrides, full=config.entry, where=where)
    if not isinstance(changed, type(config)):
        raise RequestError(f"{where}: task={changed.task} can't be set here: it is another recipe")
    return changed


def energy_config(config: Config, *, what: str) -> EnergyConfig:
    """The config, which `what` can deal with only if it is an energy recipe's (RequestError)."""
    if isinstance(config, EnergyConfig):
        return config
    raise RequestError(f"{what} is for recipes of the task energy; {config.entry} is {config.task}")


def _validated(raw: dict[str, Any], overrides: Sequence[str], *, full: str, where: str) -> Config:
    for override in overrides:
        nested = _parse_override(override)
        if "entry" in nested:
            raise RequestError(
                f"override {override!r}: entry names the recipe, and isn't a setting"
            )
        raw = registry.merged(raw, nested)
    return as_config({**raw, "entry": full}, where=where)


def as_config(raw: Mapping[str, Any], *, where: str) -> Config:
    """Plain values as the config of the task that they name. Errors as in `load_config`."""
    task = raw.get("task")
    if task is None:
        raise RequestError(f"{where}: task is missing\nknown: {', '.join(_TASKS)}")
    if task not in _TASKS:
        raise unknown(kind=f"task in {where}", name=str(task), known=_TASKS)
    return registry.validate(_TASKS[task], raw, where=where)


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
