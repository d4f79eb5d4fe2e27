"""From a name to a module or a trained model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import nn

from zoo import artifact, hub, registry
from zoo.errors import RequestError, WeightsError, unknown
from zoo.models.schnet import SchNet, SchNetArguments
from zoo.recipes.energy_model import EnergyModel, load_energy_model

if TYPE_CHECKING:
    from zoo.recipes.exported_model import ExportedModel
    from zoo.recipes.link_model import LinkModel
    from zoo.recipes.property_model import PropertyModel

Model: TypeAlias = "EnergyModel | PropertyModel | LinkModel"


def _gin(given: Mapping[str, Any]) -> nn.Module:
    from zoo.models.gin import GIN, GINArguments  # with ops that loading another model can spare

    return GIN(arguments=registry.validate(GINArguments, given, where="gin"))


def _nbfnet(given: Mapping[str, Any]) -> nn.Module:
    from zoo.models.nbfnet import NBFNet, NBFNetArguments

    return NBFNet(arguments=registry.validate(NBFNetArguments, given, where="nbfnet"))


_ARCHITECTURES: dict[str, Callable[[Mapping[str, Any]], nn.Module]] = {
    "schnet": lambda given: SchNet(
        arguments=registry.validate(SchNetArguments, given, where="schnet")
    ),
    "gin": _gin,
    "nbfnet": _nbfnet,
}


def _property(path: Path) -> PropertyModel:
    from zoo.recipes.property_model import load_property_model

    return load_property_model(path)


def _link(path: Path) -> LinkModel:
    from zoo.recipes.link_model import load_link_model

    return load_link_model(path)


_TASKS: dict[str, Callable[[Path], Model]] = {
    "energy": load_energy_model,
    "property": _property,
    "link": _link,
}


def create(architecture: str, arguments: Mapping[str, Any]) -> nn.Module:
    """See `zoo.create`."""
    if architecture not in _ARCHITECTURES:
        raise unknown(kind="architecture", name=architecture, known=_ARCHITECTURES)
    return _ARCHITECTURES[architecture](arguments)


def load(name: str | Path) -> Model | ExportedModel:
    """See `zoo.load`."""
    if str(name).endswith((".pt2", ".onnx")):
        from zoo.recipes.exported_model import load_exported

        return load_exported(Path(name).expanduser())
    return load_file(find_weights(name))


def load_file(path: Path) -> Model:
    """The trained model in a weight file. Errors as in `zoo.load`."""
    task = artifact.read_spec(path).task
    if task not in _TASKS:
        raise WeightsError(f"{path} is for the task {task!r}, which this gnn-zoo doesn't know")
    model = _TASKS[task](path)
    _doubt(path, sha256=model.sha256)
    return model


def _doubt(path: Path, *, sha256: str) -> None:
    """Warn of a file that is called like one that ships and is another."""
    for entry in registry.entries().values():
        for tag in entry.tags.values():
            known = tag.weights
            if known and known.file == path.name and sha256 != known.sha256:
                warnings.warn(
                    f"{path} is called like {entry.name}'s weights and is another file (sha256)",
                    stacklevel=3,
                )


def find_weights(name: str | Path) -> Path:
    """The weight file meant by an entry's name, a file, a checkpoint or a run directory."""
    text = str(name)
    known = text.partition(".")[0] in registry.entries()
    # A folder that is called as an entry is (`zoo cp schnet-qm9 schnet-qm9`) is meant as ./...
    path_like = isinstance(name, Path) or "/" in text or text.endswith(".safetensors")
    if path_like or (text and not known and Path(text).is_dir()):
        return artifact.weights_path(Path(name).expanduser())
    entry, tag = registry.resolve(text)
    weights = entry.tags[tag].weights
    if weights is None:
        raise RequestError(
            f"{entry.name}.{tag} has no trained weights yet\n"
            f"train it with `zoo run {entry.name}.{tag}`; `zoo ls` shows which entries have weights"
        )
    return hub.locate(weights=weights)
