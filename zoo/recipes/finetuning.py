"""What `zoo finetune` does, by name, and what `zoo resume` does with such a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.recipes import run_folder
from zoo.recipes.finetune_request import FinetuneRequest


def start(
    name: str | Path,
    *,
    data: str | Path,
    labels: Sequence[str],
    folder: str | Path | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """See `zoo.finetune`."""
    wanted = [labels] if isinstance(labels, str) else list(labels)
    given = {"model": _from_anywhere(name), "data": data, "labels": wanted, **options}
    request = registry.validate(FinetuneRequest, given, where="finetune")
    from zoo.recipes.finetune import finetune

    return finetune(request, folder=None if folder is None else Path(folder))


def _from_anywhere(name: str | Path) -> str:
    """A path as an absolute one, since a run is resumed from wherever; a name as it is."""
    path = Path(name).expanduser()
    return str(path.absolute()) if isinstance(name, Path) or path.exists() else str(name)


def read_request(folder: Path) -> FinetuneRequest | None:
    """The request that a run in a folder was started with; None where it is another kind of run."""
    path = folder / run_folder.CONFIG
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("task") != "finetune":
        return None
    return registry.validate(FinetuneRequest, content, where=str(path))
