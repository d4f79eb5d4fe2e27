"""What entries there are, and their cards. Needs no torch.

`registry.yaml` has one block per entry: recipe, weights and measured results. A card joins it with
the recipe (target, protocol) and the adapter (licence, citation, units, counts, splits): each fact
has one home.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from zoo.errors import RequestError, nearest, unknown

REGISTRY = Path(__file__).parent / "registry.yaml"
RECIPES = Path(__file__).parent / "recipes"

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
_Model = TypeVar("_Model", bound=BaseModel)


class _Strict(BaseModel):
    # Built when first used: a listing of names stays quick.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Weights(_Strict):
    """A weight file: its name, hash, bytes, licence, and where it can be fetched."""

    file: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\.safetensors$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(gt=0)
    licence: str
    mirrors: list[str] = []


class Tag(_Strict):
    """One of an entry's variants, with what was measured with its weights and on what machine."""

    weights: Weights | None = None
    measured: dict[str, float] = {}
    measured_on: str = ""
    note: str = ""


class Entry(_Strict):
    """A name in the registry. Its first tag is the one meant by the bare name; `aliases` are names
    it had before.
    """

    name: _Name
    recipe: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*\.yaml$")
    tags: dict[_Name, Tag] = Field(min_length=1)
    summary: str = ""
    aliases: list[_Name] = []


@dataclass(frozen=True, kw_only=True)
class PropertyCard:
    """A quantity, its unit, and what its zero is where that can be mistaken."""

    name: str
    unit: str
    description: str = ""
    reference: str = ""


@dataclass(frozen=True, kw_only=True)
class DatasetCard:
    """What an adapter declares about its source."""

    name: str
    title: str
    licence: str
    citation: str
    properties: list[PropertyCard]
    counts: dict[str, int]
    splits: dict[str, str]
    notes: list[str]


@dataclass(frozen=True, kw_only=True)
class Card:
    """All there is to know about an entry before using it."""

    name: str
    summary: str
    task: str
    architecture: str
    backend: str
    predicts: list[str]
    dataset: DatasetCard
    target: dict[str, Any]
    measured: dict[str, float]
    measured_on: str
    weights: Weights | None
    limits: list[str]

    def as_dict(self) -> dict[str, Any]:
        """The card as plain values, for JSON."""
        plain = asdict(self)
        plain["weights"] = self.weights and self.weights.model_dump()
        return plain


def read_yaml(source: Path | str, *, name: str = "") -> dict[str, Any]:
    """The mapping in a YAML 1.2 file (Path) or text (str); `name` is what messages call a text.

    RequestError with file and line for what isn't YAML, repeats a key or isn't a mapping.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    where = name or (str(source) if isinstance(source, Path) else "the text")
    try:
        text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
        content = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        what = " ".join(str(error.problem or error.context).split())
        raise RequestError(f"{where}{line}: {what}") from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise RequestError(f"{where}: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise RequestError(f"cannot read {where}: {error.strerror}") from error
    if not isinstance(content, dict):
        raise RequestError(f"{where}: keys and values are expected, not {type(content).__name__}")
    return content


def validate(model: type[_Model], data: Mapping[str, Any], *, where: str) -> _Model:
    """`data` as a `model`, or a RequestError that says where, which key, and the nearest known."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = error.errors()
        # A misspelt key also leaves the right one missing: the misspelling says more.
        first = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")
        key = ".".join(str(part) for part in first["loc"])
        message = f"{where}: {key}: {first['msg']}"
        if first["type"] == "extra_forbidden":
            known = _fields_at(model, first["loc"][:-1])
            near = nearest(name=str(first["loc"][-1]), known=known)
            message = f"{where}: unknown key {key!r}" + (f"; nearest: {near!r}" if near else "")
            if known:
                message += f"\nknown here: {', '.join(known)}"
        raise RequestError(message) from error


@functools.cache
def entries() -> dict[str, Entry]:
    """Every entry by its name, in the registry's order."""
    found: dict[str, Entry] = {}
    for name, block in read_yaml(REGISTRY).items():
        where = f"{REGISTRY}: {name}"
        if not isinstance(block, dict):
            raise RequestError(f"{where}: an entry is keys and values")
        found[name] = validate(Entry, {"name": name, **block}, where=where)
    names = [n for entry in found.values() for n in (entry.name, *entry.aliases)]
    if twice := {name for name in names if names.count(name) > 1}:
        raise RequestError(f"{REGISTRY}: the same name or alias twice: {', '.join(sorted(twice))}")
    return found


def full_names() -> list[str]:
    """Every `entry.tag`, in the registry's order."""
    return [f"{entry.name}.{tag}" for entry in entries().values() for tag in entry.tags]


def resolve(name: str) -> tuple[Entry, str]:
    """The entry and tag meant by `entry` (its first tag) or `entry.tag`.

    An older name works and warns; an unknown one is a RequestError with the nearest.
    """
    base, _, tag = name.partition(".")
    known = entries()
    renamed = {alias: entry.name for entry in known.values() for alias in entry.aliases}
    if base in renamed:
        warnings.warn(f"{base} is now called {renamed[base]}", FutureWarning, stacklevel=2)
        base = renamed[base]
    if base not in known:
        names = full_names() if tag else list(known)
        raise unknown(kind="entry", name=name, known=names, hint="`zoo ls` lists them")
    entry = known[base]
    if "." not in name:
        return entry, next(iter(entry.tags))
    if tag not in entry.tags:
        raise unknown(kind=f"tag of {base}", name=tag, known=entry.tags)
    return entry, tag


def recipe(*, entry: Entry, tag: str) -> dict[str, Any]:
    """An entry's recipe as its YAML says it, with the tag's overrides laid over the rest."""
    config = read_yaml(RECIPES / entry.recipe)
    overrides = config.pop("tags", None) or {}
    return merged(config, overrides.get(tag) or {})


def card(name: str) -> Card:
    """The card of an entry. Reads the adapter's facts, and none of its data."""
    entry, tag = resolve(name)
    block = entry.tags[tag]
    config = recipe(entry=entry, tag=tag)
    where = RECIPES / entry.recipe
    dataset = _dataset(_get(config, "data", "adapter", where=where), where=where)
    return Card(
        name=f"{entry.name}.{tag}",
        summary=entry.summary,
        task=_get(config, "task", where=where),
        architecture=_get(config, "model", "architecture", where=where),
        backend=str(config.get("train", {}).get("backend", "eager")),
        predicts=_predicts(config["data"], dataset),
        dataset=dataset,
        target=config.get("target") or {},
        measured=block.measured,
        measured_on=block.measured_on,
        weights=block.weights,
        limits=[*dataset.notes, *([block.note] if block.note else [])],
    )


def _predicts(data: Mapping[str, Any], dataset: DatasetCard) -> list[str]:
    """The property that a recipe's `data` asks for; all of the data set's where it asks none."""
    return [data["property"]] if "property" in data else [p.name for p in dataset.properties]


def adapter(name: str, *, where: str = "") -> tuple[ModuleType, Any]:
    """The adapter module of `qm9` or, for a module that reads several sets, of `moleculenet.esol`;
    and the set's DatasetFacts.

    Imports no torch. An unknown name is a RequestError with the nearest; `where` says whose name it
    is.
    """
    stem, _, part = name.partition(".")
    try:
        module = importlib.import_module(f"zoo.datasets.{stem}")
    except ModuleNotFoundError as error:
        if error.name != f"zoo.datasets.{stem}":
            raise
    else:
        if part in _sets(module):
            return module, _sets(module)[part]
    stems = sorted(path.stem for path in (Path(__file__).parent / "datasets").glob("[a-z]*.py"))
    known = [
        f"{stem}.{part}" if part else stem
        for stem in stems
        for part in _sets(importlib.import_module(f"zoo.datasets.{stem}"))
    ]
    raise unknown(kind="adapter" + (f" in {where}" if where else ""), name=name, known=known)


def _sets(module: ModuleType) -> dict[str, Any]:
    """The facts that a module of zoo.datasets declares, by the name of the set; "" is its only."""
    if hasattr(module, "FACTS"):
        return {"": module.FACTS}
    return dict(getattr(module, "SETS", {}))


def _dataset(name: str, *, where: Path) -> DatasetCard:
    _, facts = adapter(name, where=str(where))
    return DatasetCard(
        name=facts.name,
        title=facts.title,
        licence=facts.licence,
        citation=facts.citation,
        properties=[
            PropertyCard(name=p.name, unit=p.unit, description=p.description, reference=p.reference)
            for p in facts.properties
        ],
        counts=dict(facts.counts),
        splits=dict(facts.splits),
        notes=list(facts.notes),
    )


def _get(config: Mapping[str, Any], *keys: str, where: Path) -> str:
    value: Any = config
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            raise RequestError(f"{where}: {'.'.join(keys)} is missing")
        value = value[key]
    return str(value)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `over` laid on it, mapping by mapping; neither is changed."""
    both = dict(base)
    for key, value in over.items():
        inner = both.get(key)
        nested = isinstance(value, Mapping) and isinstance(inner, Mapping)
        both[key] = merged(inner, value) if nested else value  # type: ignore[arg-type]
    return both


def _fields_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The field names of the model that `path` (keys and positions) leads to inside `model`."""
    at: Any = model
    for step in path:
        if isinstance(at, type) and issubclass(at, BaseModel):
            field = at.model_fields.get(str(step))
            at = field.annotation if field else None
        else:  # a container: its last argument is what it holds
            at = get_args(at)[-1] if get_args(at) else None
        at = _model_in(at)
    return list(at.model_fields) if isinstance(at, type) and issubclass(at, BaseModel) else []


def _model_in(annotation: Any) -> Any:
    """The model of an optional or annotated one; anything else as it is."""
    for part in get_args(annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            origin = getattr(annotation, "__origin__", None)
            return annotation if origin in (dict, list, tuple) else part
    return annotation
