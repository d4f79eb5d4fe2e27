"""Sending later what MLflow did not get while a run went on.

`python -m zoo.training.replay RUN_FOLDER` does it from a shell.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from zoo.errors import RequestError, UnavailableError, ZooError
from zoo.training.tracking_records import (
    SPOOL,
    Record,
    known_run,
    settle_spool,
    spooled,
    take_spool,
    write_run,
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


def replay(folder: Path, *, uri: str | None = None) -> str:
    """Send what lies spooled in a run's `folder` to MLflow; returns the id of the run.

    It goes to `uri`, else to MLFLOW_TRACKING_URI, else to where the run was meant to be logged.
    Raises RequestError when nothing lies there, UnavailableError when MLflow can't be reached; what
    was not sent stays spooled.
    """
    prepare_environment()
    folder = Path(folder).absolute()
    if not spooled(folder):
        raise RequestError(f"nothing to send: {folder} holds no {SPOOL}")
    target = resolve_uri(uri)
    run_id: str | None = None

    def connection(header: Record) -> Connection:
        nonlocal target, run_id
        target = resolve_uri(uri, otherwise=header.get("uri"))
        experiment = str(header.get("experiment", "zoo"))
        opened = connect(
            uri=target,
            experiment=experiment,
            run_name=str(header.get("run_name", folder.name)),
            run_id=run_id or header.get("run_id") or known_run(folder),
            folder=folder,
            say=say,
        )
        run_id = opened.run_id
        note_run(opened, uri=target, experiment=experiment)
        return opened

    try:
        with hushed():
            empty_spool(folder, connection=connection, say=say)
    except Exception as error:
        raise UnavailableError(
            f"MLflow at {without_secrets(target)} can't be reached: {reason(error)}\n"
            f"the log stays in {folder / SPOOL}"
        ) from error
    if run_id is None:
        raise RequestError(f"nothing to send: another process took the {SPOOL} of {folder}")
    return run_id


def empty_spool(
    folder: Path, *, connection: Callable[[Record], Connection], say: Callable[[str], None]
) -> None:
    """Send all that lies spooled in `folder` through the connection that its header calls for.

    Whatever fails is raised, and what was not sent yet stays spooled.
    """
    while (taken := take_spool(folder)) is not None:
        header, records = taken
        sent = 0
        try:
            for done in send_groups(connection(header), records, say=say):
                sent += done
        finally:
            settle_spool(folder, records[sent:], header=header)


def note_run(connection: Connection, *, uri: str, experiment: str) -> None:
    """Write beside the run where it is tracked; a folder that can't be written is no obstacle."""
    with contextlib.suppress(OSError):
        write_run(
            connection.folder,
            run_id=connection.run_id,
            uri=without_secrets(uri),
            experiment=experiment,
        )


def say(line: str) -> None:
    """One line on stderr."""
    print(f"tracking: {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """The shell's side of `replay`: sends each folder's spool; returns the exit status."""
    if not arguments or any(argument.startswith("-") for argument in arguments):
        print("usage: python -m zoo.training.replay RUN_FOLDER ...", file=sys.stderr)
        return RequestError.exit_code
    try:
        for argument in arguments:
            print(f"sent to MLflow run {replay(Path(argument))}")
    except ZooError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
