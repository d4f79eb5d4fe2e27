"""Made-up tables of molecules, and an untrained GIN as small as can be to tune on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from zoo.artifact import write_weights
from zoo.batching.store import make_store
from zoo.datasets.facts import Property
from zoo.models.gin import GIN, GINArguments
from zoo.recipes.property import PropertyTask
from zoo.recipes.property_data import make_data
from zoo.recipes.settings import BatchSettings

RINGS = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CCOC1", "c1ccsc1", "C1CCNC1", "c1ccoc1", "C1CC1"]
TAILS = ["C", "CC", "O", "N", "F", "Cl", "C(=O)O", "N#C", "OC", "CCO", "S", "CN", "CCC"]


def smiles(count: int = 104) -> list[str]:
    """Molecules of a ring and a tail, all different."""
    found = [f"{tail}{ring}" for tail in TAILS for ring in RINGS]
    return found[:count]


def table(count: int = 104) -> pd.DataFrame:
    """smiles, a quantity, yes or no, a second yes or no with holes, and one of three classes."""
    texts = smiles(count)
    rng = np.random.default_rng(0)
    oxygen = np.array([text.count("O") + text.count("o") for text in texts])
    size = np.array([len(text) for text in texts])
    return pd.DataFrame(
        {
            "name": [f"m{n}" for n in range(count)],
            "smiles": texts,
            "logS [log mol/L]": size * 0.3 + rng.normal(0, 0.1, count) - 3,
            "active": np.where(oxygen > 0, "active", "inactive"),
            "toxic": np.where(rng.random(count) < 0.2, np.nan, (size % 2).astype(float)),
            "colour": np.array(["red", "green", "blue"])[size % 3],
        }
    )


def base(folder: Path, **arguments: object) -> Path:
    """A weight file of an untrained GIN of eight features, for one yes or no."""
    store = make_store(
        node_ptr=np.array([0, 2, 4]),
        node={"atom": np.zeros((4, 9), np.uint8)},
        graph={"y": np.array([[0.0], [1.0]])},
        edge={
            "src": np.array([1, 0, 1, 0]),
            "dst": np.array([0, 1, 0, 1]),
            "bond": np.zeros((4, 3), np.uint8),
        },
        edge_ptr=np.array([0, 2, 4]),
    )
    data = make_data(
        store=store,
        splits={name: np.arange(2) for name in ("train", "valid", "test")},
        split_sha256="0" * 64,
        properties=[Property(name="hit", unit="", description="", kind="binary")],
        batch=BatchSettings(graphs=2),
        metric="roc_auc",
    )
    torch.manual_seed(0)
    module = GIN(arguments=GINArguments(features=8, layers=2, **arguments))  # type: ignore[arg-type]
    task = PropertyTask(entry="gin-base", data=data, module=module, seed=0)
    path = folder / "base.safetensors"
    write_weights(path=path, tensors=module.state_dict(), spec=task.spec)
    return path
