"""Text files as people have them: gzipped or not, UTF-8, UTF-16 or latin-1, with a BOM."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TextIO, cast

from zoo.errors import DataError, RequestError, UnavailableError

_HEAD = 4096


def _as_latin1(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


# Bytes that aren't UTF-8 are taken for latin-1 one by one, so that a file of gigabytes needn't be
# read twice to learn its encoding.
codecs.register_error("zoo-latin1", _as_latin1)


@contextlib.contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a text file, plain or gzipped whatever its name says; line ends as they are in the file.

    RequestError: no such file, or a folder. DataError: empty, not text, or (also raised inside the
    block, while reading) a gzip file that is damaged or cut short. UnavailableError: not readable.
    """
    try:
        with contextlib.ExitStack() as stack:
            file: IO[bytes] = stack.enter_context(open(path, "rb"))
            if file.read(2) == b"\x1f\x8b":
                file.seek(0)
                file = cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=file)))
            else:
                file.seek(0)
            head = file.read(_HEAD)
            file.seek(0)
            encoding, errors = _encoding(head, path=path)
            yield stack.enter_context(
                io.TextIOWrapper(file, encoding=encoding, errors=errors, newline="")
            )
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is a damaged or truncated gzip file: {error}") from error
    except FileNotFoundError as error:
        raise RequestError(f"no such file: {path}") from error
    except IsADirectoryError as error:
        raise RequestError(f"{path} is a folder, not a file") from error
    except OSError as error:
        raise UnavailableError(f"cannot read {path}: {error.strerror or error}") from error


def _encoding(head: bytes, *, path: Path) -> tuple[str, str]:
    if not head.strip():
        raise DataError(f"{path} is empty")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", "replace"
    if head.startswith(b"PK\x03\x04"):
        raise DataError(f"{path} is a zip archive or a spreadsheet, not text: save it as CSV")
    if b"\0" in head:
        raise DataError(f"{path} is not a text file")
    return "utf-8-sig", "zoo-latin1"
