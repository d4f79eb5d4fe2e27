"""A trained model of molecules' properties, ready to use: what `zoo.load` returns for GIN."""

from __future__ import annotations

from pathlib import Path

from zoo.artifact import Spec, read_weights
from zoo.files import sha256_file
from zoo.models.gin import GIN, GINArguments


class PropertyModel:
    def __init__(self, *, spec: Spec, modules: list[GIN], sha256: str = "") -> None:
        self.spec, self.sha256 = spec, sha256
        self.modules = [module.eval() for module in modules]

    @property
    def module(self) -> GIN:
        return self.modules[0]


def load_property_model(path: Path) -> PropertyModel:
    spec, tensors = read_weights(path)
    arguments = GINArguments(**spec.arguments)
    module = GIN(arguments=arguments)
    module.load_state_dict(dict(tensors))
    return PropertyModel(spec=spec, modules=[module], sha256=sha256_file(path))
