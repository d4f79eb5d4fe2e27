"""Sending records to an MLflow run: batches, files, models, data sets, the end.

Sending the same records twice does no harm, so whoever is in doubt sends again.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from zoo.training.tracking_records import LONGEST_TAG, Record, groups, metric_name, shorten
from zoo.training.tracking_store import NEVER, Connection, reason

# MLflow takes 1000 metrics and 100 parameters or tags at once, in at most 1 MB: 30 parameters of
# 6000 characters that JSON escapes fit.
_METRICS, _PARAMS = 500, 30
_DIGEST = 36


class Refused(Exception):
    """MLflow, or what was to be sent, is such that sending again will never help."""


def send_groups(
    connection: Connection, records: Sequence[Record], *, say: Callable[[str], None]
) -> Iterator[int]:
    """Send records in order, yielding how many more are done; raises as `send` does."""
    for group in groups(records):
        for line in send(connection, group):
            say(f"MLflow refused {line}")
        yield len(group)


def send(connection: Connection, records: Sequence[Record]) -> list[str]:
    """Send one group of records; returns what MLflow refused for good, one line each.

    Raises whatever means that the store can't be reached: the caller keeps the group.
    """
    single = {"artifact": _artifact, "model": _model, "dataset": _dataset, "status": _status}
    act = single.get(records[0]["kind"])
    if act is None:
        return _batch(connection, records)
    try:
        act(connection, records[0])
    except Exception as error:
        if isinstance(error, Refused) or getattr(error, "error_code", None) in NEVER:
            record = records[0]
            what = record.get("name") or record.get("path") or record.get("status")
            return [f"{record['kind']} {what}: {reason(error)}"]
        raise
    return []


def _batch(connection: Connection, records: Sequence[Record]) -> list[str]:
    from mlflow.entities import Metric, Param, RunTag

    metrics = [
        Metric(metric_name(name), float(value), record["time"], record["step"])
        for record in records
        if record["kind"] == "metrics"
        for name, value in record["values"].items()
    ]
    tags: dict[str, str] = {}
    params: dict[str, str] = {}
    for record in records:
        for name, value in record["values"].items() if record["kind"] != "metrics" else ():
            key = metric_name(name)
            if record["kind"] == "tags":
                tags[key] = shorten(value, limit=LONGEST_TAG)
            elif connection.params.get(key, params.get(key, value)) != value:
                # A parameter of a run can't change in MLflow, but a resumed run may be told to.
                tags[metric_name(f"changed.{name}")] = value
            elif key not in connection.params:
                params[key] = value
    refused = _write(connection, "metrics", metrics, most=_METRICS)
    refused += _write(connection, "params", [Param(*item) for item in params.items()], most=_PARAMS)
    refused += _write(connection, "tags", [RunTag(*item) for item in tags.items()], most=_PARAMS)
    connection.params.update(params)
    return refused


def _write(connection: Connection, kind: str, values: list[Any], *, most: int) -> list[str]:
    refused: list[str] = []
    for start in range(0, len(values), most):
        part = values[start : start + most]
        try:
            connection.client.log_batch(connection.run_id, **{kind: part})
        except Exception as error:
            if getattr(error, "error_code", None) not in NEVER:
                raise
            if len(part) > 1:
                refused += _write(connection, kind, part, most=1)
            else:
                refused.append(f"{kind} {part[0].key}: {reason(error)}")
    return refused


def _artifact(connection: Connection, record: Record) -> None:
    path = connection.folder / record["path"]
    if not path.exists():
        raise Refused("no such file by now")
    connection.client.log_artifact(connection.run_id, str(path), record["folder"])


def _model(connection: Connection, record: Record) -> None:
    import mlflow.pyfunc
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model, ModelSignature

    script = connection.folder / record["script"]
    artifacts = {name: connection.folder / path for name, path in record["artifacts"].items()}
    for path in (script, *artifacts.values()):
        if not path.exists():
            raise Refused(f"no such file by now: {path}")
    client, run_id = connection.client, connection.run_id
    # Not mlflow.pyfunc.log_model: it takes its store and run from the state of the whole process.
    logged = client.create_logged_model(
        connection.experiment_id, name=record["name"], source_run_id=run_id
    )
    try:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "model"
            with _model_faults():
                mlflow.pyfunc.save_model(
                    path=str(folder),
                    python_model=str(script),
                    artifacts={name: str(path) for name, path in artifacts.items()} or None,
                    signature=record["signature"]
                    and ModelSignature.from_dict(
                        {name: json.dumps(part) for name, part in record["signature"].items()}
                    ),
                    pip_requirements=list(record["requirements"]),
                    mlflow_model=Model(
                        artifact_path=logged.artifact_location,
                        model_uuid=logged.model_id,
                        run_id=run_id,
                        model_id=logged.model_id,
                    ),
                )
            for cache in list(folder.rglob("__pycache__")):
                shutil.rmtree(cache, ignore_errors=True)
            client.log_model_artifacts(logged.model_id, str(folder))
    except Exception:
        with contextlib.suppress(Exception):
            client.finalize_logged_model(logged.model_id, "FAILED")
        raise
    client.finalize_logged_model(logged.model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])


def _dataset(connection: Connection, record: Record) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(
        name=record["name"],
        digest=record["digest"][:_DIGEST],
        source_type="zoo",
        source=json.dumps({"name": record["name"], "digest": record["digest"]}),
    )
    context = InputTag("mlflow.data.context", record["context"])
    connection.client.log_inputs(connection.run_id, [DatasetInput(dataset, [context])])


def _status(connection: Connection, record: Record) -> None:
    connection.client.set_terminated(
        connection.run_id, status=record["status"], end_time=record["time"]
    )


@contextlib.contextmanager
def _model_faults() -> Iterator[None]:
    """Building a model runs its script here: what that raises will be raised again next time."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise Refused(f"the model can't be built: {reason(error)}") from error
