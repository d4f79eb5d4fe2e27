"""The smallest runs that still go through everything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from zoo.recipes.config import Config, load_config

TINY = (
    "data.synthetic=120",
    "batch.graphs=8",
    "train.epochs=2",
    "train.tracking=false",
    "train.checkpoint_steps=1",
)
"""Overrides of the smoke preset: seven steps an epoch (two packs each)."""


def tiny(*overrides: str, name: str = "schnet-qm9") -> Config:
    """The config of a tiny run."""
    return load_config(name, preset="smoke", overrides=[*TINY, *overrides])


def history(folder: Path) -> list[dict[str, float]]:
    """The epochs of a run, as its last checkpoint knows them."""
    text = (folder / "checkpoints" / "last" / "state.json").read_text()
    rows: list[dict[str, float]] = json.loads(text)["state"]["progress"]["history"]
    return rows


def untrained() -> str:
    """An entry whose weights don't ship."""
    import zoo

    return next(name for name in zoo.list() if name not in zoo.list(weights=True))


def strict_json(text: str) -> Any:
    """What a strict reader makes of it: NaN and Infinity are no JSON."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def zoo_command(*arguments: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """The real command, in a process of its own."""
    import os

    return subprocess.Popen(
        [sys.executable, "-m", "zoo.cli", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
