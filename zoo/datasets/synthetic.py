"""Where made-up raw data is kept: written once into the user's cache."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from zoo import hub
from zoo.errors import UnavailableError
from zoo.files import disk

_TEMPORARY: dict[str, Path] = {}


def made_up_folder(*, name: str, write: Callable[[Path], None]) -> Path:
    """The folder called `name`, made by `write` where it isn't there yet.

    Processes that ask at once may each write one; the first to finish stays. Where the cache can't
    be written, it is a temporary folder that goes when the process ends.
    """
    folder = hub.cache_dir() / "synthetic" / name
    if folder.is_dir():
        return folder
    try:
        with disk(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{name}."))
    except UnavailableError:
        return _temporary_folder(name, write)
    try:
        write(partial)
        with disk(folder):
            partial.chmod(0o755)  # mkdtemp makes it private
            with contextlib.suppress(FileExistsError):
                _rename(partial, folder)
    except UnavailableError:
        return _temporary_folder(name, write)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _rename(partial: Path, folder: Path) -> None:
    """FileExistsError if another process was first."""
    try:
        os.rename(partial, folder)
    except OSError as error:
        if folder.is_dir():
            raise FileExistsError(str(folder)) from error
        raise


def _temporary_folder(name: str, write: Callable[[Path], None]) -> Path:
    if name not in _TEMPORARY:
        with disk(Path(tempfile.gettempdir())):
            folder = Path(tempfile.mkdtemp(prefix=f"{name.partition('-')[0]}-synthetic-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        write(folder)
        _TEMPORARY[name] = folder
    return _TEMPORARY[name]
