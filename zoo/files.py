"""Files that are written whole or not at all, and the hash that names them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from zoo.errors import UnavailableError


def sha256_file(path: str | Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_file(path: Path, data: bytes) -> None:
    """Write a file through to the disk. For a place that nobody reads yet; OSError as it comes."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` at `path`, whole or not at all. UnavailableError if the disk refuses."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, prefix=f".{path.name}.partial-")
        try:
            write_file(partial, data)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
        sync_folder(path.parent)


def replace_folder(path: Path, files: dict[str, bytes]) -> None:
    """Put a folder of `files` at `path` in place of an older one, never a mixture of both.

    A folder can't be renamed onto another, so the older one steps aside first; `find_folder` finds
    it there if the process is killed between the two renames.
    """
    partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
    old = path.with_name(f"{path.name}.old-{os.getpid()}")
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, prefix=f"{path.name}.partial-")
        _settle(path)
        try:
            partial.mkdir()
            for name, data in files.items():
                write_file(partial / name, data)
            sync_folder(partial)
            if path.exists():
                os.rename(path, old)
            os.rename(partial, path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            _settle(path)
        sync_folder(path.parent)


def find_folder(path: Path) -> Path:
    """`path`, or where its content stands if a replacement was killed half-way."""
    if not path.exists():
        for old in _siblings(path.parent, prefix=f"{path.name}.old-"):
            return old
    return path


@contextlib.contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turn what the system says of a full or read-only disk into an error that names the path."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(f"cannot write {path}: {error.strerror or error}") from error


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last through a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sweep(folder: Path, *, prefix: str) -> None:
    """Remove what processes that are gone left half-written: siblings named `prefix` + their id."""
    for leftover in _siblings(folder, prefix=prefix):
        if not _alive(int(leftover.name.removeprefix(prefix))):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


def _settle(path: Path) -> None:
    """Drop the older folder where the new one arrived, and put it back where it did not."""
    for old in _siblings(path.parent, prefix=f"{path.name}.old-"):
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.rename(old, path)


def _siblings(folder: Path, *, prefix: str) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(
        entry
        for entry in folder.iterdir()
        if entry.name.startswith(prefix) and entry.name.removeprefix(prefix).isdecimal()
    )


def _alive(pid: int) -> bool:
    if pid == os.getpid():
        return False  # an id used again: this process has nothing half-written when it sweeps
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
