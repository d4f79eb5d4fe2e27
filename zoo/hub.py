"""Where files come from: the package, the user's cache, the mirrors; and the user's raw data.

Every file is held to its sha256 wherever it was found. With `ZOO_OFFLINE=1` no socket is opened.
`ZOO_CACHE` moves the cache; `ZOO_DATA` names folders of raw data.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import sys
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from zoo.errors import DataError, UnavailableError, WeightsError
from zoo.files import disk, sha256_file

if TYPE_CHECKING:
    from zoo.registry import Weights

PACKAGED = Path(__file__).parent / "weights"

_CHUNK = 1 << 16


def cache_dir() -> Path:
    """The folder for what is fetched and built: `$ZOO_CACHE`, or the system's place for caches."""
    chosen = os.environ.get("ZOO_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("gnn-zoo")


def offline() -> bool:
    """Whether `ZOO_OFFLINE` forbids the network."""
    return os.environ.get("ZOO_OFFLINE", "0") not in ("", "0")


def fetch(
    *,
    filename: str,
    sha256: str,
    mirrors: Sequence[str],
    folder: Path,
    what: str,
    timeout: float = 30,
) -> Path:
    """The file in `folder`, from the mirrors in their order if it isn't there already.

    A file there with another hash is damaged and is fetched anew. A mirror that sends nothing for
    `timeout` seconds is given up for the next. Several processes may ask at once: one fetches.
    `what` names the thing in messages. UnavailableError if no mirror has it, the disk refuses or
    the network is forbidden; WeightsError if all that the mirrors have is another file.
    """
    path = folder / filename
    if _is(path, sha256):
        return path
    if not mirrors or offline():
        raise _not_there(path, sha256=sha256, mirrors=mirrors, what=what)
    with _locked(folder, filename):
        if _is(path, sha256):
            return path
        failures = []
        for mirror in mirrors:
            failure = _download(mirror, path=path, sha256=sha256, what=what, timeout=timeout)
            if failure is None:
                return path
            failures.append(failure)
    kind = WeightsError if all(wrong for _, wrong in failures) else UnavailableError
    reasons = "; ".join(reason for reason, _ in failures)
    raise kind(f"could not fetch {what} ({filename}): {reasons}\n{_by_hand(path, sha256)}")


def find_raw(*, filename: str, sha256: str) -> Path | None:
    """The raw file in the folders of `ZOO_DATA`, at any depth, as it is or gzipped; None if absent.

    Among files of that name the one counts whose bytes, unzipped or as they lie, have the hash.
    `v1/train.txt` is one in a folder v1. DataError if there are files of that name and none has it.
    """
    others = []
    folder, _, name = filename.rpartition("/")
    for candidate in raw_files({name, f"{name}.gz"}):
        if folder and candidate.parent.name != folder:
            continue
        if sha256 in (_sha256_unzipped(candidate), sha256_file(candidate)):
            return candidate
        others.append(candidate)
    if others:
        shown = ", ".join(str(path) for path in others[:3]) + (", ..." if len(others) > 3 else "")
        raise DataError(
            f"{filename} in ZOO_DATA is not the file that is expected: {shown}\n"
            f"expected sha256 {sha256}"
        )
    return None


def raw_files(names: set[str]) -> Iterator[Path]:
    """The files of these names in the folders of `ZOO_DATA`, at any depth, whatever they hold."""
    seen = set()
    for root in os.environ.get("ZOO_DATA", "").split(os.pathsep):
        if not root:
            continue
        root = os.path.expanduser(root)
        if not os.path.isdir(root):
            warnings.warn(f"ZOO_DATA names {root}, which is not a folder", stacklevel=3)
        for folder, below, files in os.walk(root, followlinks=True):
            real = os.path.realpath(folder)
            if real in seen:  # a link that leads back up
                below.clear()
                continue
            seen.add(real)
            below.sort()
            yield from (Path(folder) / name for name in sorted(names & set(files)))


def locate(*, weights: Weights) -> Path:
    """A weight file on this machine: in the package, else in the cache, else from the mirrors."""
    packaged = PACKAGED / weights.file
    if _is(packaged, weights.sha256):
        return packaged
    if packaged.exists():
        warnings.warn(
            f"{packaged} is damaged (its sha256 is not the registry's); looking elsewhere",
            stacklevel=2,
        )
    return fetch(
        filename=weights.file,
        sha256=weights.sha256,
        mirrors=weights.mirrors,
        folder=cache_dir() / "weights",
        what="the weights",
    )


def open_raw(path: str | Path) -> BinaryIO:
    """Open a raw file for reading bytes, unzipped if its name ends in .gz."""
    if str(path).endswith(".gz"):
        return cast(BinaryIO, gzip.open(path, "rb"))
    return open(path, "rb")


def _is(path: Path, sha256: str) -> bool:
    try:
        return sha256_file(path) == sha256
    except OSError:
        return False


def _by_hand(path: Path, sha256: str) -> str:
    return f"or put a file with sha256 {sha256} at {path}"


def _not_there(path: Path, *, sha256: str, mirrors: Sequence[str], what: str) -> Exception:
    damaged = path.exists()
    state = "is damaged" if damaged else "is not there"
    if mirrors:
        advice = f"ZOO_OFFLINE forbids fetching it from {mirrors[0]}; unset it"
    else:
        advice = "no mirror is known"
    kind = WeightsError if damaged else UnavailableError
    return kind(f"{what}: {path} {state}, and {advice}\n{_by_hand(path, sha256)}")


@contextlib.contextmanager
def _locked(folder: Path, filename: str) -> Iterator[None]:
    """Hold a file's lock, so that of several processes one fetches and the others find it there."""
    from filelock import FileLock

    with disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f".{filename}.lock")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _download(
    mirror: str, *, path: Path, sha256: str, what: str, timeout: float
) -> tuple[str, bool] | None:
    """Fetch one mirror's file to `path`. None if done, else why not and if it was another file."""
    import pooch
    import requests

    part = path.with_name(f".{path.name}.part")
    progress = _progress(what)
    get = pooch.HTTPDownloader(
        progressbar=progress,
        chunk_size=_CHUNK,
        timeout=timeout,
        headers={"Accept-Encoding": "identity"},  # else a length that is cut short goes unseen
    )
    try:
        with disk(path):
            try:
                get(mirror, str(part), None)
            except requests.RequestException as error:
                return f"{mirror} {_reason(error, timeout=timeout)}", False
            got = sha256_file(part)
            if got != sha256:
                size = part.stat().st_size
                return f"{mirror} sent another file ({size} bytes, sha256 {got[:12]}...)", True
            os.replace(part, path)
            return None
    finally:
        if progress:
            progress.close()
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _reason(error: Exception, *, timeout: float) -> str:
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"answers {error.response.status_code}"
    if isinstance(error, requests.Timeout) or "timed out" in str(error).lower():
        return f"sent nothing for {timeout:g} s"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "cut the file short"
    if isinstance(error, requests.ConnectionError):
        return "cannot be reached"
    return f"failed: {error}"


def _progress(what: str) -> Any:
    """A bar on a terminal, for what takes over two seconds; elsewhere none."""
    if not sys.stderr.isatty():
        return False
    from tqdm import tqdm

    return tqdm(total=0, desc=what, unit="B", unit_scale=True, delay=2, leave=False)


def _sha256_unzipped(path: Path) -> str | None:
    digest = hashlib.sha256()
    try:
        with open_raw(path) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except (OSError, EOFError, zlib.error):  # not gzip after all, or cut short
        return None
    return digest.hexdigest()
