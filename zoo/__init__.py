"""gnn-zoo: scientific graph neural networks by name.

    import zoo
    model = zoo.load("schnet-qm9")        # weights, preprocessing, units and card
    model.predict(atoms)                  # ase.Atoms, SMILES, a CSV, an SDF, an extxyz ...
    zoo.run("schnet-qm9", seed=1)         # train the recipe, tracked by MLflow

Importing this loads neither torch nor any model; the functions do, when called.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd
    from torch import nn

    from zoo.recipes.energy_model import EnergyModel
    from zoo.recipes.exported_model import ExportedModel
    from zoo.recipes.link_model import LinkModel
    from zoo.recipes.property_model import PropertyModel
    from zoo.registry import Card

__version__ = "0.1.0"
__all__ = [
    "card",
    "check",
    "create",
    "evaluate",
    "export",
    "fetch",
    "finetune",
    "list",
    "load",
    "predict",
    "resume",
    "run",
]


def list(pattern: str = "*", *, weights: bool | None = None) -> builtins.list[str]:
    """Names of entries that match a glob; `weights=True` those with trained weights only."""
    from fnmatch import fnmatchcase

    from zoo import registry

    names = []
    for entry in registry.entries().values():
        for number, (tag, block) in enumerate(entry.tags.items()):
            full = f"{entry.name}.{tag}"
            if weights is not None and weights != (block.weights is not None):
                continue
            if fnmatchcase(full, pattern) or (number == 0 and fnmatchcase(entry.name, pattern)):
                names.append(full)
    return names


def card(name: str) -> Card:
    """Everything known of an entry: data, units, licence, target, measured results, weights.

    RequestError for an unknown name, with the nearest.
    """
    from zoo import registry

    return registry.card(name)


def create(architecture: str, **arguments: Any) -> nn.Module:
    """An architecture without trained weights: `zoo.create("schnet", features=64)`.

    RequestError for an unknown architecture or argument, with the nearest.
    """
    from zoo.recipes import building

    return building.create(architecture, arguments)


def load(name: str | Path) -> EnergyModel | PropertyModel | LinkModel | ExportedModel:
    """A trained model by entry name, weight file, checkpoint, run directory or exported file.

    The file is verified by sha256 (names) and its header; nothing is unpickled, and with weights in
    the package or cache no socket is opened. RequestError for an unknown name or one that has no
    weights, WeightsError for a damaged file, UnavailableError when it can't be had.
    """
    from zoo.recipes import building

    return building.load(name)


def fetch(name: str) -> Path:
    """Make sure that an entry's weights are on this machine; returns the file. Errors as `load`."""
    from zoo import hub, registry
    from zoo.errors import RequestError

    entry, tag = registry.resolve(name)
    weights = entry.tags[tag].weights
    if weights is None:
        raise RequestError(
            f"{entry.name}.{tag} has no trained weights yet; train it: zoo run {name}"
        )
    return hub.locate(weights=weights)


def run(
    name: str | Path,
    *overrides: str,
    preset: str = "full",
    seed: int | None = None,
    folder: str | Path | None = None,
) -> dict[str, Any]:
    """Train an entry's recipe (or a YAML file's), tracked by MLflow; returns the result.

    `overrides` are `a.b=c` as on the command line. The run lies in `folder` (default: a new one
    under runs/) and can be resumed there. StoppedError after SIGTERM, with everything saved.
    """
    from zoo.training.signals import stop_signals

    with stop_signals():  # from here on, through the imports and the reading of data too
        from zoo.recipes import running

        return running.start(name, overrides=overrides, preset=preset, seed=seed, folder=folder)


def resume(folder: str | Path) -> dict[str, Any]:
    """Go on with a run from its last checkpoint, to the bit; returns the result as `run` does."""
    from zoo.training.signals import stop_signals

    with stop_signals():
        from zoo.recipes import running

        return running.resume(folder)


def evaluate(name: str | Path, *overrides: str, split: str = "test") -> dict[str, Any]:
    """Metrics of weights (an entry's, a file, checkpoint or run) over a whole split of the data."""
    from zoo.recipes import running

    return running.evaluate(name, overrides=overrides, split=split)


def finetune(
    name: str | Path,
    *,
    data: str | Path,
    labels: Sequence[str],
    folder: str | Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Tune a model of molecules on a table of SMILES and labels, tracked by MLflow; returns the
    result, with a comparison on the test split: this model, the same from scratch, a random forest
    on fingerprints, the mean.

    `options` are the fields of `zoo.recipes.finetune_request.FinetuneRequest`: smiles, kinds, split
    (scaffold, scaffold-balanced, random, column, kfold), seed, epochs, freeze, body_lr, ensemble,
    on_error and so on. RequestError or DataError for what is wrong with them or the table, before
    any training.
    """
    from zoo.recipes import finetuning

    return finetuning.start(name, data=data, labels=labels, folder=folder, options=options)


def predict(name: str | Path, source: Any, **options: Any) -> pd.DataFrame:
    """`zoo.load(name).predict(source, **options)`."""
    return load(name).predict(source, **options)


def export(
    name: str | Path,
    *overrides: str,
    format: str,
    out: str | Path | None = None,
    preset: str = "full",
    packs: int = 0,
) -> dict[str, Any]:
    """Write an entry's model as something that runs without the zoo; returns where it is.

    `format` is pt2 (torch.export), aoti (an AOTInductor package for this kind of machine), onnx, or
    ipu: a folder that trains and predicts under PopTorch, with the recipe's `overrides`, `preset`
    and so many `packs` of data (0: all). The others hold weights, and `zoo.load` reads them back.
    RequestError for an unknown format or an entry without weights, UnavailableError where a tool is
    missing.
    """
    from zoo.recipes import exporting

    return exporting.export(
        name, form=format, out=out, overrides=overrides, preset=preset, packs=packs
    )


def check(
    name: str,
    *overrides: str,
    backend: str = "ipu",
    example: str | Path | None = None,
    preset: str = "full",
) -> dict[str, Any]:
    """Whether a backend (ipu, export, inductor) can compile an entry's steps, or `FILE.py:Class`.

    A class of the user's is made without arguments and brings its inputs by a static `example()`,
    or by `example`, a program of torch.export. The result's `ok` says whether it goes, `findings`
    names file, line and operator of what stands in the way and what to write instead. For `ipu`
    this is told from facts about PopTorch 3.4; nothing is run there.
    """
    from zoo.recipes import checking

    return checking.check_named(
        name, backend=backend, example=example, overrides=overrides, preset=preset
    )
