"""Exported models: a pickle, as the library's, that only the version that wrote it reads."""

from __future__ import annotations

import os
import pickle

from ._errors import Error

FORMAT = "poptorch stand-in"


def write(filename, version, content):
    """Write `content`, a dict, to `filename`; its folders are made."""
    filename = os.fspath(filename)
    if os.path.isdir(filename):
        filename = os.path.join(filename, "model.poptorch")
    folder = os.path.dirname(filename)
    if folder:
        os.makedirs(folder, exist_ok=True)
    with open(filename, "wb") as file:
        pickle.dump({"format": FORMAT, "version": version, **content}, file, protocol=4)


def read(filename, version):
    """What `write` wrote; Error for any other file, or another version's."""
    try:
        with open(filename, "rb") as file:
            content = pickle.load(file)
    except pickle.UnpicklingError as error:
        raise Error(f"Invalid file {filename}: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise Error(f"Invalid file {filename}")
    if content["version"] != version:
        raise Error(f"Invalid file {filename}: version {content['version']}, not {version}")
    return content
