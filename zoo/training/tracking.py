"""A run's log in MLflow, kept from a background thread that training never waits for."""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from zoo.errors import StoppedError
from zoo.training.replay import empty_spool, note_run, replay, say
from zoo.training.tracking_protocol import NoTracker, Tracking
from zoo.training.tracking_records import (
    SPOOL,
    Record,
    append_spool,
    flatten,
    inside,
    json_float,
    known_run,
    metric_name,
    plain_signature,
    spooled,
)
from zoo.training.tracking_send import send_groups
from zoo.training.tracking_store import (
    Connection,
    connect,
    hushed,
    prepare_environment,
    reason,
    resolve_uri,
    without_secrets,
)
from zoo.training.versions import versions

__all__ = [
    "NoTracker",
    "Tracker",
    "Tracking",
    "flatten",
    "known_run",
    "metric_name",
    "replay",
    "versions",
]

# Records gather for this long, so that many steps of them cost one transaction.
_GATHER_SECONDS = 2.0
# A store that was away is tried again no sooner than this.
_RETRY_SECONDS = 60.0
# How long the end of a run waits for MLflow, and how long when a scheduler wants us gone.
_PATIENCE_SECONDS = 45.0
_HURRY_SECONDS = 8.0
_ID_SECONDS = 30.0


def _now() -> int:
    return time.time_ns() // 1_000_000


class Tracker:
    """An MLflow run, written from a background thread. See `Tracking` for its methods.

    `folder` is the run's own directory: artifacts in it are spooled by relative path, and what
    MLflow does not get is kept there. `run_id` resumes an existing run. Nothing here raises or
    waits but `run_id`, until the run exists, and `close`, a bounded time, for what is still unsent.
    """

    def __init__(
        self,
        *,
        experiment: str,
        run_name: str,
        folder: Path,
        run_id: str | None = None,
        uri: str | None = None,
    ) -> None:
        prepare_environment()
        self._uri = resolve_uri(uri)
        self._experiment = experiment
        self._run_name = run_name
        self._folder = Path(folder).absolute()
        self._run_id = run_id
        self._connection: Connection | None = None
        self._unsent: deque[Record] = deque()
        self._wake = threading.Condition()
        self._known, self._closing, self._done = (threading.Event() for _ in range(3))
        self._closed = False
        self._away = False
        self._retry_at = 0.0
        self._told: set[str] = set()
        self._worker = threading.Thread(target=self._work, name="zoo-tracking", daemon=True)
        self._worker.start()
        atexit.register(self._at_exit)

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the run; waits while it is being made, None if it can't be."""
        self._known.wait(_ID_SECONDS)
        return self._run_id

    @property
    def uri(self) -> str:
        """Where the run is tracked, without any password in it."""
        return without_secrets(self._uri)

    @property
    def unsent(self) -> Path | None:
        """The file that keeps what MLflow did not get, or None."""
        return self._folder / SPOOL if spooled(self._folder) else None

    def params(self, flat: Mapping[str, Any]) -> None:
        """Log the config; nested mappings are flattened."""
        self._put({"kind": "params", "values": flatten(flat)})

    def metrics(self, values: Mapping[str, float], *, step: int) -> None:
        """Log numbers at a step; NaN and infinities too."""
        numbers = {name: json_float(value) for name, value in values.items()}
        self._put({"kind": "metrics", "values": numbers, "step": step, "time": _now()})

    def tags(self, values: Mapping[str, Any]) -> None:
        """Log what may change or isn't a setting: versions, hashes, the state of the run."""
        self._put({"kind": "tags", "values": flatten(values)})

    def artifact(self, path: Path, *, folder: str | None = None) -> None:
        """Log a file or a directory, which must stay as it is until `close`."""
        place = inside(Path(path), folder=self._folder)
        self._put({"kind": "artifact", "path": place, "folder": folder})

    def model(
        self,
        *,
        script: Path,
        artifacts: Mapping[str, Path],
        signature: Any,
        requirements: Sequence[str],
        name: str = "model",
    ) -> None:
        """Log an MLflow model: a script that calls mlflow.models.set_model, and its files.

        `script` is run here once. `signature` is an MLflow ModelSignature, or what its `from_dict`
        takes with lists for JSON: `{"inputs": [{"name": "smiles", "type": "string"}], ...}`, so
        that no caller needs to import MLflow. `requirements` are pip's lines, all of them.
        """
        places = {key: inside(Path(path), folder=self._folder) for key, path in artifacts.items()}
        self._put(
            {
                "kind": "model",
                "script": inside(Path(script), folder=self._folder),
                "artifacts": places,
                "signature": plain_signature(signature),
                "requirements": list(requirements),
                "name": name,
            }
        )

    def dataset(self, *, name: str, digest: str, context: str = "training") -> None:
        """Log what the run was trained or evaluated on: an MLflow input, and a tag."""
        self._put({"kind": "tags", "values": {f"dataset.{context}": f"{name} {digest}"}})
        self._put({"kind": "dataset", "name": name, "digest": digest, "context": context})

    def close(self, status: str = "FINISHED", *, patience: float | None = None) -> None:
        """End the log with MLflow's status FINISHED, FAILED or KILLED.

        Waits at most `patience` seconds (45 unless told) for what is unsent; the rest is spooled.
        """
        with self._wake:
            if self._closed:
                return
            self._unsent.append({"kind": "status", "status": status, "time": _now()})
            self._closed = True
            self._closing.set()
            self._wake.notify()
        atexit.unregister(self._at_exit)
        try:
            self._done.wait(_PATIENCE_SECONDS if patience is None else patience)
        finally:
            # Also when Ctrl-C ends the waiting: nothing that was logged gets lost.
            self._keep("it takes too long")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, StoppedError | KeyboardInterrupt):
            self.close("KILLED", patience=_HURRY_SECONDS)
        else:
            self.close("FINISHED" if error is None else "FAILED")

    def _at_exit(self) -> None:
        self.close("KILLED", patience=_HURRY_SECONDS)

    def _put(self, record: Record) -> None:
        with self._wake:
            if not self._closed:
                self._unsent.append(record)
                self._wake.notify()

    def _work(self) -> None:
        try:
            with hushed():
                closing = False
                while not closing:
                    # Read first: what was logged before the end was asked for is in this round.
                    closing = self._closing.is_set()
                    self._deliver(last=closing)
                    if not closing:
                        self._gather()
        finally:
            self._known.set()
            self._done.set()

    def _gather(self) -> None:
        with self._wake:
            while not self._unsent and not self._closing.is_set():
                self._wake.wait()
        self._closing.wait(_GATHER_SECONDS)

    def _deliver(self, *, last: bool) -> None:
        if not last and time.monotonic() < self._retry_at:
            self._keep("it is away")
            return
        try:
            connection = self._connection or self._connect()
            if spooled(self._folder):
                empty_spool(self._folder, connection=lambda header: connection, say=self._tell)
            with self._wake:
                records = list(self._unsent)
            for done in send_groups(connection, records, say=self._tell):
                with self._wake:
                    # Fewer are left when the end of the run gave up waiting and spooled them.
                    for _ in range(min(done, len(self._unsent))):
                        self._unsent.popleft()
                    if self._closed and not self._unsent:
                        break
        except Exception as error:
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            self._keep(reason(error))
        else:
            if self._away:
                self._away = False
                say(f"MLflow at {self.uri} answers again and has what was kept for it")
        finally:
            self._known.set()

    def _connect(self) -> Connection:
        self._connection = connect(
            uri=self._uri,
            experiment=self._experiment,
            run_name=self._run_name,
            run_id=self._run_id,
            folder=self._folder,
            say=self._tell,
        )
        self._run_id = self._connection.run_id
        note_run(self._connection, uri=self._uri, experiment=self._experiment)
        return self._connection

    def _keep(self, why: str) -> None:
        """Move what is unsent to the spool, and say so once for each time MLflow goes away."""
        with self._wake:
            left = list(self._unsent)
            self._unsent.clear()
        if not left:
            return
        first, self._away = not self._away, True
        header = {
            "kind": "run",
            "experiment": self._experiment,
            "run_name": self._run_name,
            "run_id": self._run_id,
            "uri": self.uri,
        }
        lost = f"MLflow at {self.uri} does not answer ({why}): the run goes on,"
        try:
            append_spool(self._folder, left, header=header)
        except OSError as error:
            # Whenever it happens: a disk may fill up long after the first loss was told.
            self._tell(f"{lost} its log can't be kept either: {error}", once="unkept")
            return
        if first:
            say(
                f"{lost} its log is kept in {self._folder / SPOOL}; send it later with: "
                f"python -m zoo.training.replay {self._folder}"
            )

    def _tell(self, line: str, *, once: str = "") -> None:
        if (once or line) not in self._told:
            self._told.add(once or line)
            say(line)
