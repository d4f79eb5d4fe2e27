"""Facts in files: a head, a relation and a tail a line, as TSV, CSV or N-Triples."""

from __future__ import annotations

import csv
import io
import re
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from zoo import hub
from zoo.errors import DataError
from zoo.files import disk

Triple = tuple[str, str, str]
PARTS = ("train", "valid", "test")
ENDINGS = (".txt", ".tsv", ".csv", ".nt")
_NTRIPLE = re.compile(r'(<[^>]*>|_:\S+)\s+(<[^>]*>)\s+(<[^>]*>|_:\S+|"(?:[^"\\]|\\.)*"\S*)\s*\.\s*')


def read_triples(path: Path) -> list[Triple]:
    """The facts of a file, zipped or not. DataError for a line that is none, naming it, for a file
    without any, and for one that isn't text.
    """
    with disk(path), hub.open_raw(path) as file:
        return triples_in(file, where=str(path))


def triples_in(file: IO[bytes], *, where: str) -> list[Triple]:
    """The facts in an open file. Lines end as on any system; a comma separates where no tab does;
    lines in N-Triples are known by their angle brackets.
    """
    try:
        text = file.read().decode("utf-8-sig")
    except (UnicodeDecodeError, EOFError, OSError) as error:
        raise DataError(f"{where} can't be read as text: {error}") from error
    found = list(_triples(text.splitlines(), where=where))
    if not found:
        raise DataError(f"{where} holds no facts")
    return found


def _triples(lines: Iterable[str], *, where: str) -> Iterator[Triple]:
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("# "):
            continue
        if match := _NTRIPLE.fullmatch(text):
            cells = [cell.removeprefix("<").removesuffix(">") for cell in match.groups()]
        elif "\t" in text:
            cells = [cell.strip() for cell in line.split("\t")]
        else:
            cells = [cell.strip() for cell in next(csv.reader(io.StringIO(text)))]
        if len(cells) != 3 or not all(cells):
            raise DataError(
                f"{where}, line {number}: {len(cells)} columns, not a head, a relation and a tail: "
                f"{text[:80]!r}"
            )
        yield cells[0], cells[1], cells[2]


def read_folder(folder: Path) -> dict[str, list[Triple]]:
    """The facts of train, valid and test in a folder: of each one file, `train.txt` say. DataError
    where one is missing or there are several.
    """
    found = {}
    for part in PARTS:
        names = [f"{part}{ending}{zipped}" for ending in ENDINGS for zipped in ("", ".gz")]
        paths = [folder / name for name in names if (folder / name).is_file()]
        if len(paths) != 1:
            what = "several files" if paths else "no file"
            raise DataError(
                f"{folder} has {what} of facts for {part}: one of {part}{{{','.join(ENDINGS)}}}"
            )
        found[part] = read_triples(paths[0])
    return found


def read_archive(path: Path) -> dict[str, list[Triple]]:
    """The facts of train.txt, valid.txt and test.txt in a tar archive."""
    found = {}
    try:
        with disk(path), tarfile.open(path) as archive:
            for member in archive.getmembers():
                part = Path(member.name).stem
                if part in PARTS and (file := archive.extractfile(member)) is not None:
                    found[part] = triples_in(file, where=f"{path}, {member.name}")
    except tarfile.TarError as error:
        raise DataError(f"{path} can't be read as an archive: {error}") from error
    if missing := [part for part in PARTS if part not in found]:
        raise DataError(f"{path} holds no {missing[0]}.txt")
    return found
