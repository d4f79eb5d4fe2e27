"""SDF and xyz files, record by record: one that is broken costs one row, never the rest."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zoo.chem.rdkit_log import caught
from zoo.chem.textfile import open_text

# A record of more lines than this is no molecule: the file lacks its separators.
_LONGEST_RECORD = 1_000_000


class Block(NamedTuple):
    """A record's text and the line, from 1, where it starts; `reason` if it isn't whole."""

    line: int
    text: str
    reason: str = ""


class Frame(NamedTuple):
    """An xyz frame: numbers [n], positions [n, 3] in Å, whether it is periodic."""

    numbers: NDArray[np.int64]
    positions: NDArray[np.float64]
    periodic: bool


def sdf_blocks(path: Path) -> Iterator[Block]:
    """The records of an SDF file, each without its `$$$$`."""
    with open_text(path) as stream:
        start, lines = 1, list[str]()
        number = 0
        for number, raw in enumerate(stream, start=1):
            line = raw.rstrip("\r\n")
            if line.startswith("$$$$"):
                yield Block(start, "\n".join(lines) + "\n")
                start, lines = number + 1, []
            elif len(lines) < _LONGEST_RECORD:
                lines.append(line)
        if any(line.strip() for line in lines):
            yield Block(start, "\n".join(lines) + "\n")


def sdf_columns(text: str) -> dict[str, str]:
    """A record's title (as `name`) and data fields. They are read here rather than by RDKit, which
    drops them together with a molecule it refuses.
    """
    lines = text.split("\n")
    fields: dict[str, str] = {}
    name: str | None = None
    in_data = False
    for line in lines:
        if line.startswith(">") and "<" in line and (in_data or name is None):
            name = line[line.index("<") + 1 : max(line.rfind(">"), line.index("<") + 1)]
            fields[name], in_data = "", False
        elif name is not None:
            if line.strip():
                fields[name] += ("\n" if fields[name] else "") + line
                in_data = False
            else:
                in_data = True
    title = lines[0].strip()
    return {"name": title, **fields} if title and "name" not in fields else fields


def sdf_mol(text: str) -> tuple[Any, str]:
    """(RDKit's Mol with the hydrogens that are written, or None; why it is refused)."""
    from rdkit import Chem

    # Not MolFromMolBlock, which says on another log what it stumbles over.
    supplier: Any = Chem.SDMolSupplier()
    with caught() as error:
        try:
            supplier.SetData(text, sanitize=True, removeHs=False)
            mol = supplier[0]
        except Exception:  # IndexError where RDKit sees no record at all, and others
            mol = None
    if mol is None:
        said = error()
        return None, f"RDKit refuses this mol block{': ' if said else ''}{said}"
    return mol, ""


def xyz_blocks(path: Path) -> Iterator[Block]:
    """The frames of an xyz file. A line with a single whole number begins one, and no atom's line
    looks like that, so that reading goes on at the next frame whatever is wrong with this one.
    """
    with open_text(path) as stream:
        start, frame = 0, list[str]()
        for number, raw in enumerate(stream, start=1):
            line = raw.rstrip("\r\n")
            # The second line is a comment, which may well be a number.
            if line.strip().isdecimal() and len(frame) != 1:
                if frame:
                    yield _frame_block(start, frame)
                start, frame = number, [line]
            elif frame or line.strip():
                start = start if frame else number
                if len(frame) < _LONGEST_RECORD:
                    frame.append(line)
        if frame:
            yield _frame_block(start, frame)


def xyz_columns(text: str) -> dict[str, Any]:
    """A frame's own values: the scalars of an extended comment line, or the comment as it is."""
    comment = text.split("\n")[1]
    if "Properties=" not in comment and "Lattice=" not in comment:
        return {"comment": comment.strip()} if comment.strip() else {}
    from ase.io import extxyz

    read_values: Callable[[str], Mapping[str, Any]] = extxyz.key_val_str_to_dict
    try:
        values: Mapping[str, Any] = read_values(comment)
    except Exception:  # whatever ASE stumbles over will refuse the frame too, with a reason
        return {"comment": comment.strip()}
    return scalars({k: v for k, v in values.items() if k not in ("Lattice", "Properties", "pbc")})


def xyz_frame(text: str) -> Frame:
    """Read one frame. ValueError with the reason if it can't be read."""
    count, comment, *lines = text.split("\n")
    if "Properties=" in comment or "Lattice=" in comment:
        return _extended_frame(text)
    numbers, positions = [], []
    for at, line in enumerate(lines[: int(count)], start=1):
        cells = line.split()
        try:
            numbers.append(_atomic_number(cells[0]))
            positions.append([float(cell) for cell in cells[1:4]])
            if len(positions[-1]) < 3:
                raise ValueError
        except (IndexError, ValueError) as error:
            raise ValueError(f"atom {at} is not 'symbol x y z': {line.strip()!r}") from error
    return Frame(np.array(numbers, np.int64), np.array(positions, float).reshape(-1, 3), False)


def scalars(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that fit into a cell, as plain Python values."""
    plain = {str(k): v.item() if isinstance(v, np.generic) else v for k, v in values.items()}
    return {k: v for k, v in plain.items() if isinstance(v, str | int | float | bool)}


def _extended_frame(text: str) -> Frame:
    from ase.io.extxyz import read_xyz

    try:
        atoms = next(iter(read_xyz(io.StringIO(text), index=0)))
    except Exception as error:  # ASE raises many kinds
        words = str(error).strip().splitlines()
        said = words[0] if words else type(error).__name__
        raise ValueError(f"not extended xyz: {said}") from error
    return Frame(atoms.numbers, atoms.positions, bool(atoms.pbc.any()))


def _frame_block(start: int, lines: list[str]) -> Block:
    while len(lines) > 2 and not lines[-1].strip():
        lines.pop()
    text = "\n".join(lines) + "\n"
    if not lines[0].strip().isdecimal():
        return Block(start, text, "a frame begins with the number of its atoms, alone on a line")
    count, given = int(lines[0]), len(lines) - 2
    if given != count and any(line.strip() for line in lines[2:]):
        return Block(start, text, f"{max(given, 0)} lines of atoms where {count} should follow")
    if given < 0 < count:
        return Block(start, text, f"0 lines of atoms where {count} should follow")
    return Block(start, text)


def _atomic_number(symbol: str) -> int:
    from ase.data import atomic_numbers

    if symbol.isdecimal():
        return int(symbol)
    return int(atomic_numbers.get(symbol.capitalize(), 0))
