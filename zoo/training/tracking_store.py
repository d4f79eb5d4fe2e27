"""Reaching MLflow: its switches, its store and the run in it."""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit, urlunsplit

from filelock import FileLock

from zoo.training.tracking_records import shorten

# MLflow 3.17 reads DO_NOT_TRACK only as the word "true": "1" does not switch it off.
_FORCED = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
_DEFAULTS = {
    # One retry and ten seconds: what does not answer by then is spooled and tried again later.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    # Otherwise the end of a run is announced on stdout, where --json prints its one object.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # Otherwise a uv.lock in the working directory replaces the requirements that a model states.
    "MLFLOW_UV_AUTO_DETECT": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
_SQLITE = "sqlite:///"
_LOCK_SECONDS = 120
# What MLflow answers when the request itself can never succeed.
NEVER = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "INVALID_STATE"}

_HUSHED: set[int] = set()
_SHOWN: list[Callable[..., None]] = []


@dataclass(frozen=True, kw_only=True)
class Connection:
    """An MLflow run that can be written to. `params` is what it holds by now."""

    client: Any
    run_id: str
    experiment_id: str
    folder: Path
    params: dict[str, str] = field(default_factory=dict)


def prepare_environment() -> None:
    """Set MLflow's switches, before it is imported: no telemetry, short waits, no chatter.

    Telemetry is off whatever the user has set; the rest gives way to the user's own values.
    """
    os.environ.update(_FORCED)
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)


def resolve_uri(uri: str | None, *, otherwise: str | None = None) -> str:
    """`uri`, else MLFLOW_TRACKING_URI, else `otherwise`, else a database in the working directory.

    The path of a database is made absolute, since the working directory may change.
    """
    given = uri or os.environ.get("MLFLOW_TRACKING_URI") or otherwise or f"{_SQLITE}mlflow.db"
    database = sqlite_path(given)
    if database is None or database.is_absolute():
        return given
    query = given.partition("?")[2]
    return f"{_SQLITE}{database.absolute().as_posix()}" + (f"?{query}" if query else "")


def sqlite_path(uri: str) -> Path | None:
    """The file of a SQLite tracking store; None for any other store."""
    path = uri.removeprefix(_SQLITE).partition("?")[0]
    return Path(path) if uri.startswith(_SQLITE) and path else None


def without_secrets(uri: str) -> str:
    """`uri` with no user name, password or query, fit for a message or a file."""
    if uri.startswith(_SQLITE) or "://" not in uri:
        return uri
    parts = urlsplit(uri)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """Keep off stderr what MLflow and its like log and warn of in this thread, and in no other.

    The user's own use of MLflow stays as talkative as it was.
    """
    thread = threading.get_ident()
    _HUSHED.add(thread)
    try:
        yield
    finally:
        _HUSHED.discard(thread)


def connect(
    *,
    uri: str,
    experiment: str,
    run_name: str,
    run_id: str | None,
    folder: Path,
    say: Callable[[str], None],
) -> Connection:
    """Open the store and the run: the run `run_id` where the store has it, else a new one.

    Raises whatever MLflow or the disk raises; all of it means that the store can't be reached.
    """
    import mlflow.pyfunc

    _install_hush()
    database = sqlite_path(uri)
    if database is not None:
        database.parent.mkdir(parents=True, exist_ok=True)
    # Two processes that create one database at the same moment both fail in MLflow's migrations.
    lock: contextlib.AbstractContextManager[Any] = (
        FileLock(f"{database}.lock", timeout=_LOCK_SECONDS)
        if database is not None
        else contextlib.nullcontext()
    )
    with lock:
        client = mlflow.MlflowClient(tracking_uri=uri)
        experiment_id = _experiment(client, name=experiment, database=database)
    if run_id is not None:
        found = _existing(client, run_id=run_id, folder=folder)
        if found is not None:
            return found
        say(f"MLflow at {without_secrets(uri)} has no run {run_id}: logging to a new one")
    run = client.create_run(
        experiment_id,
        run_name=run_name,
        tags={"mlflow.user": _user(), "mlflow.source.name": "zoo", "mlflow.source.type": "LOCAL"},
    )
    return Connection(
        client=client, run_id=run.info.run_id, experiment_id=experiment_id, folder=folder
    )


def reason(error: BaseException) -> str:
    """Why the store can't be reached, in a few words."""
    text = str(error) or type(error).__name__
    for symptom, plain in (
        ("Connection refused", "connection refused"),
        ("timed out", "no answer in time"),
        ("timeout", "no answer in time"),
        ("resolve", "unknown host"),
        ("Connection reset", "connection lost"),
        ("Connection aborted", "connection lost"),
        ("database is locked", "the database is locked"),
        ("readonly database", "the database is read-only"),
        ("unable to open database", "the database can't be opened"),
    ):
        if symptom in text:
            return plain
    return shorten(text.splitlines()[0], limit=200)


def _experiment(client: Any, *, name: str, database: Path | None) -> str:
    found = client.get_experiment_by_name(name)
    if found is None:
        # Beside the database, wherever the run was started from. Experiments may share a folder
        # (what they hold is named by unguessable ids), and MLflow loses its way in escaped names.
        folder = re.sub(r"[^\w.-]", "_", name)
        place = database and (database.absolute().parent / "mlruns" / folder).as_uri()
        try:
            return str(client.create_experiment(name, artifact_location=place))
        except Exception:
            # Another process may have been first; if not, the reason why is the better error.
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def _existing(client: Any, *, run_id: str, folder: Path) -> Connection | None:
    try:
        run = client.get_run(run_id)
    except Exception as error:
        if getattr(error, "error_code", None) in {*NEVER, "RESOURCE_DOES_NOT_EXIST"}:
            return None
        raise
    if run.info.lifecycle_stage == "deleted":
        return None
    client.update_run(run_id, status="RUNNING")
    return Connection(
        client=client,
        run_id=run_id,
        experiment_id=run.info.experiment_id,
        folder=folder,
        params=dict(run.data.params),
    )


def _install_hush() -> None:
    """Make loggers and warnings ask whether they speak in a hushed thread. Needs mlflow imported.

    Adding the same filter twice adds it once.
    """
    for name in ("urllib3.connectionpool", "urllib3.util.retry"):
        logging.getLogger(name).addFilter(_audible)
    for name in ("mlflow", "alembic", "sqlalchemy.engine"):
        for handler in logging.getLogger(name).handlers:
            handler.addFilter(_audible)
    # MLflow's own warning filters go before any of ours, so ours sits where warnings are shown.
    if not _SHOWN:
        _SHOWN.append(warnings.showwarning)
        warnings.showwarning = _show_warning


def _audible(record: logging.LogRecord) -> bool:
    return record.thread not in _HUSHED


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if threading.get_ident() not in _HUSHED:
        _SHOWN[0](message, category, filename, lineno, file, line)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a user id that has no name.
        return "unknown"
