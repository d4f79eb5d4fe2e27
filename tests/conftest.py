"""What tests of several rooms share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of the session's own (ZOO_CACHE): made-up data is written and parsed once."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOO_CACHE", str(folder))
        patch.delenv("ZOO_DEBUG", raising=False)
        patch.delenv("ZOO_KERNELS", raising=False)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield folder


@pytest.fixture(scope="session")
def trained(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run on made-up data: schnet-qm9.U0, two epochs."""
    from tiny import TINY

    import zoo

    folder = tmp_path_factory.mktemp("trained") / "run"
    zoo.run("schnet-qm9", *TINY, preset="smoke", folder=folder)
    return folder
