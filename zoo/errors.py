"""What goes wrong, in a few kinds. Each message is one to three lines: what, where, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LISTED = 20


class ZooError(Exception):
    """The work failed. The command line prints the message and exits with `exit_code`."""

    exit_code = 1


class RequestError(ZooError):
    """The request was wrong: an unknown name or key, a bad config, a missing column or file."""

    exit_code = 2


class DataError(ZooError):
    """Raw data or rows are not what they should be."""


class WeightsError(ZooError):
    """Weights, a checkpoint or a cache are damaged, tampered with, or of another format."""


class UnavailableError(ZooError):
    """A network, a disk or a tool isn't there; the message names the host, path or tool."""


class StoppedError(ZooError):
    """Stopped by SIGTERM, after saving."""

    exit_code = 143


def nearest(*, name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was most likely meant to be, or None."""
    folded: dict[str, str] = {}
    for candidate in known:
        folded.setdefault(candidate.casefold(), candidate)
    close = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.5)
    return folded[close[0]] if close else None


def unknown(*, kind: str, name: str, known: Iterable[str], hint: str = "") -> RequestError:
    """An error for a `name` that is none of `known`: the nearest one, then the list, or `hint` (how
    to get the list) in its place.
    """
    names = list(dict.fromkeys(known))
    near = nearest(name=name, known=names)
    first = f"unknown {kind} {name!r}" + (f"; nearest: {near!r}" if near else "")
    if hint:
        return RequestError(f"{first}\n{hint}")
    shown = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    return RequestError(f"{first}\nknown: {shown or 'none'}")
