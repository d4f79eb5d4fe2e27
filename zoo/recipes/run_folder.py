"""The folder of a training run: config.json, checkpoints, plots, result.json."""

from __future__ import annotations

import contextlib
import datetime
import json
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.errors import RequestError
from zoo.files import disk, find_folder, replace_file
from zoo.recipes.config import Config, as_config

CONFIG, RESULT = "config.json", "result.json"


def new_folder(config: Config) -> Path:
    """A folder for a run of a recipe."""
    return stamped(config.entry, seed=config.train.seed)


def stamped(name: str, *, seed: int) -> Path:
    """A folder for a run: `runs/<name>-s<seed>-<time>-<random>` where the command was given."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{name}-s{seed}-{stamp}-{secrets.token_hex(2)}"


def read_config(folder: Path) -> Config:
    """The config that a run was started with (RequestError where there is no run)."""
    path = folder / CONFIG
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"no run at {folder}: {CONFIG} is missing") from error
    except ValueError as error:
        raise RequestError(f"{path} is damaged: {error}") from error
    return as_config(content, where=str(path))


def check_free(folder: Path) -> None:
    """RequestError where there is a run already."""
    if (folder / CONFIG).exists():
        raise RequestError(f"{folder} holds a run already\ncontinue it with: zoo resume {folder}")


@contextlib.contextmanager
def claimed(folder: Path, *, content: str, resume: bool) -> Iterator[None]:
    """Make or take up a run's folder and hold it: two processes that train in one would mix their
    checkpoints. `content` is the JSON of what was asked for. RequestError for the second.
    """
    from filelock import FileLock, Timeout

    with disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock", timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            raise RequestError(f"another process is training in {folder}\nwait for it") from error
        except NotImplementedError:  # a file system without locks: trust the user
            pass
    try:
        if not resume:
            check_free(folder)
            replace_file(folder / CONFIG, content.encode())
        yield
    finally:
        lock.release()


def has_checkpoint(folder: Path) -> bool:
    """Whether there is one to go on from; a run killed before its first has none."""
    return find_folder(folder / "checkpoints" / "last").exists()


def finished(folder: Path) -> bool:
    return (folder / RESULT).exists()


def write_result(folder: Path, result: Mapping[str, Any]) -> Path:
    replace_file(folder / RESULT, json.dumps(result, indent=1).encode())
    return folder / RESULT


def read_result(folder: Path) -> dict[str, Any]:
    """What a finished run came to. RequestError where the file is damaged."""
    try:
        result: dict[str, Any] = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except ValueError as error:
        raise RequestError(f"{folder / RESULT} is damaged: {error}") from error
    return result
