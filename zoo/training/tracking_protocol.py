"""What the training loop asks of a run's log, and the log of a run that is not tracked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self


class Tracking(Protocol):
    """What the loop asks of a run's log. Every method returns at once and none raises."""

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the run; waits while it is being made, None if it can't be."""

    @property
    def uri(self) -> str:
        """Where the run is tracked, fit for printing; empty where it isn't."""

    @property
    def unsent(self) -> Path | None:
        """The file that keeps what MLflow did not get, or None."""

    def params(self, flat: Mapping[str, Any]) -> None:
        """Log the config; nested mappings are flattened."""

    def metrics(self, values: Mapping[str, float], *, step: int) -> None:
        """Log numbers at a step; NaN and infinities too."""

    def tags(self, values: Mapping[str, Any]) -> None:
        """Log what may change or isn't a setting: versions, hashes, the state of the run."""

    def artifact(self, path: Path, *, folder: str | None = None) -> None:
        """Log a file or a directory, which must stay as it is until `close`."""

    def model(
        self,
        *,
        script: Path,
        artifacts: Mapping[str, Path],
        signature: Any,
        requirements: Sequence[str],
        name: str = "model",
    ) -> None:
        """Log an MLflow model: a script that calls mlflow.models.set_model, and its files."""

    def dataset(self, *, name: str, digest: str, context: str = "training") -> None:
        """Log what the run was trained or evaluated on."""

    def close(self, status: str = "FINISHED", *, patience: float | None = None) -> None:
        """End the log with MLflow's status FINISHED, FAILED or KILLED."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class NoTracker:
    """A log that keeps nothing, for runs with tracking switched off."""

    run_id: str | None = None
    uri: str = ""
    unsent: Path | None = None

    def params(self, flat: Mapping[str, Any]) -> None: ...

    def metrics(self, values: Mapping[str, float], *, step: int) -> None: ...

    def tags(self, values: Mapping[str, Any]) -> None: ...

    def artifact(self, path: Path, *, folder: str | None = None) -> None: ...

    def model(
        self,
        *,
        script: Path,
        artifacts: Mapping[str, Path],
        signature: Any,
        requirements: Sequence[str],
        name: str = "model",
    ) -> None: ...

    def dataset(self, *, name: str, digest: str, context: str = "training") -> None: ...

    def close(self, status: str = "FINISHED", *, patience: float | None = None) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
