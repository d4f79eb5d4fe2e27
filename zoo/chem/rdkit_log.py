"""What RDKit would print on stderr, caught and made readable."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

_TIME = re.compile(r"^\[\d\d:\d\d:\d\d\]\s*")
_PREFIX = re.compile(r"^(SMILES Parse Error:|ERROR:|WARNING:)\s*", re.IGNORECASE)
# Lines that repeat the input, point into it, or say only that something failed.
_NOISE = re.compile(r"^(Failed parsing|moving to the beginning)")
_WHERE = re.compile(r"^check for mistakes (around position \d+)")


@contextlib.contextmanager
def caught() -> Iterator[Callable[[], str]]:
    """Silence RDKit inside the block; the yielded function gives its error in one short line."""
    from rdkit import rdBase

    capture = getattr(rdBase, "CaptureErrorLog", None)  # older RDKits can only be silenced
    with rdBase.BlockLogs():
        if capture is None:
            yield lambda: ""
        else:
            with capture() as log:
                yield lambda: first_error(str(log.messages))


def first_error(text: str) -> str:
    """The first line of RDKit's log that says something, without time stamp and level, and where in
    the SMILES it is, if RDKit knows.
    """
    first = where = ""
    for line in text.splitlines():
        message = _PREFIX.sub("", _TIME.sub("", line)).strip()
        position = _WHERE.match(message)
        if position:
            where = where or f" {position[1]}"
        elif _TIME.match(line) and not first and not _NOISE.match(message):
            # "... while parsing: CC(C" and "... for input: 'CC(C'" repeat the cell.
            first = re.sub(r"\s*(while parsing|for input):.*$", "", message)
    return first + where if first else ""
