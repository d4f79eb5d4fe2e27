"""QM9's raw files: the tables of the qm9pack distribution, and the original archive.

Both hold the same decimals; both become the same arrays, to the bit.
"""

from __future__ import annotations

import contextlib
import sys
import tarfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from zoo.batching.store import Store, make_store
from zoo.errors import DataError

HARTREE = 27.211386245988
"""eV in a Hartree (CODATA 2018)."""

ELEMENTS = {"H": 1, "C": 6, "N": 7, "O": 8, "F": 9}

ATOM_ENERGIES = {
    # Hartree, the same method's free atoms, as distributed with the data set.
    "U0": {"H": -0.500273, "C": -37.846772, "N": -54.583861, "O": -75.064579, "F": -99.718730},
    "U": {"H": -0.498857, "C": -37.845355, "N": -54.582445, "O": -75.063163, "F": -99.717314},
    "H": {"H": -0.497912, "C": -37.844411, "N": -54.581501, "O": -75.062219, "F": -99.716370},
    "G": {"H": -0.510927, "C": -37.861317, "N": -54.598897, "O": -75.079532, "F": -99.733544},
}
"""Free atoms' energies in Hartree: a total less its atoms' is the (negative) atomisation energy."""

COLUMNS = {
    "mu": "Dipole_debye",
    "alpha": "Polarizability_bohr3",
    "homo": "HOMO_au",
    "lumo": "LUMO_au",
    "gap": "HOMO_LUMO_gap_au",
    "r2": "R2_bohr2",
    "zpve": "ZPVE_au",
    "U0": "InternalEnergy_0K_au",
    "U": "InternalEnergy_298K_au",
    "H": "Enthalphy_298K_au",
    "G": "GibbsFreeEnergy_298K_au",
    "cv": "Heatcapacity_Cv_cal_mol_K",
}
"""The tables' columns of the properties, in the order of the original's header too."""

_IN_HARTREE = [name for name, column in COLUMNS.items() if column.endswith("_au")]
_ROTATIONS = 3  # rotational constants stand before the properties in an original header

Molecules = dict[str, np.ndarray]
"""index [M], sizes [M], z [A] uint8, pos [A, 3] float64 (Å), y [M, 12] as written in the file."""


def read_tables(paths: Sequence[Path]) -> Store:
    """The store of these CSVs. DataError names the file and molecule that is wrong."""
    return _assemble([read_table(path) for path in paths])


def read_original(*, archive: Path, left_out: Path) -> Store:
    """The store of the original archive, without the molecules that `left_out` lists."""
    return _assemble([read_archive(archive, left_out=read_left_out(left_out))])


def read_table(path: Path) -> Molecules:
    """Read one CSV of the packaged distribution."""
    import pandas as pd

    columns = ["Index", "N_atoms", "Elements", "XYZ_Ang", *COLUMNS.values()]
    try:
        # As text: numbers are then read alike on any version of pandas, and exactly rounded.
        table = pd.read_csv(path, usecols=columns, dtype=str)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{path} isn't a QM9 table: {error}") from error
    if table.empty:
        raise DataError(f"{path} holds no molecules")
    missing = table.isna()
    if missing.to_numpy().any():
        row = int(missing.any(axis=1).to_numpy().argmax())
        column = missing.columns[int(missing.iloc[row].to_numpy().argmax())]
        raise DataError(f"{path}: molecule {table['Index'].iloc[row]} has no {column}")
    names = table["Index"].tolist()
    where = [f"{path}: molecule {name}" for name in names]
    sizes = _numbers(table["N_atoms"].tolist(), where).astype(np.int64)
    elements, positions = table["Elements"].tolist(), table["XYZ_Ang"].tolist()
    for at, size in enumerate(sizes.tolist()):
        if elements[at].count(",") != size - 1 or positions[at].count(",") != 3 * size - 1:
            raise DataError(f"{where[at]}: atom count, elements and positions disagree")
    y = [_numbers(table[column].tolist(), where) for column in COLUMNS.values()]
    return {
        "index": _numbers(names, where).astype(np.int32),
        "sizes": sizes,
        "z": _atomic_numbers(elements, sizes=sizes, where=where),
        "pos": _numbers(positions, where).reshape(-1, 3),
        "y": np.stack(y, axis=1),
    }


def read_archive(path: Path, *, left_out: set[int]) -> Molecules:
    """Read the archive of extended XYZ files as a stream: nothing is unpacked to the disk."""
    index, sizes, where = [], [], []
    symbols: list[str] = []
    positions: list[str] = []
    values: list[str] = []
    for name, text in _members(path):
        # Exponents are written as Mathematica does: 2.1997*^-6.
        lines = text.replace("*^", "e").split("\n")
        try:
            size, header = int(lines[0]), lines[1].split()
            number = int(header[1])
            if number in left_out:
                continue
            atoms = "\t".join(lines[2 : 2 + size]).split()
        except (ValueError, IndexError) as error:
            raise DataError(f"{path}: {name} isn't a molecule of QM9: {error}") from error
        row = header[2 + _ROTATIONS :]
        if len(row) != len(COLUMNS) or len(atoms) != 5 * size:
            raise DataError(f"{path}: {name} has {len(row)} properties, {len(atoms)} atom columns")
        index.append(number)
        sizes.append(size)
        where.append(f"{path}: {name}")
        symbols.append(",".join(atoms[::5]))
        del atoms[4::5]  # Mulliken charges
        del atoms[::4]
        positions.append(",".join(atoms))
        values.append(",".join(row))
    if not index:
        raise DataError(f"{path} holds no molecule")
    counts = np.array(sizes, np.int64)
    return {
        "index": np.array(index, np.int32),
        "sizes": counts,
        "z": _atomic_numbers(symbols, sizes=counts, where=where),
        "pos": _numbers(positions, where).reshape(-1, 3),
        "y": _numbers(values, where).reshape(-1, len(COLUMNS)),
    }


def read_left_out(path: Path) -> set[int]:
    """The numbers of a list like uncharacterized.txt: the first word of each row that is one."""
    words = (line.split(maxsplit=1)[:1] for line in path.read_text("utf-8", "replace").splitlines())
    return {int(word[0]) for word in words if word and word[0].isdecimal()}


def _members(path: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each file of the archive, with a bar on a terminal."""
    from tqdm import tqdm

    bar = tqdm(desc=f"reading {path.name}", unit=" molecules", delay=2, leave=False)
    with bar if sys.stderr.isatty() else contextlib.nullcontext():
        try:
            with tarfile.open(path, "r|*") as archive:
                for member in archive:
                    content = archive.extractfile(member) if member.isfile() else None
                    if content is not None and member.name.endswith(".xyz"):
                        yield member.name, content.read().decode()
                        bar.update()
                    archive.members = []  # type: ignore[attr-defined]  # else it keeps them all
        except (tarfile.TarError, OSError, EOFError, UnicodeDecodeError) as error:
            raise DataError(f"{path} is damaged: {error}; get it anew") from error


_STRIP = str.maketrans(dict.fromkeys("[]' "))


def _numbers(rows: list[str], where: list[str]) -> np.ndarray:
    """All numbers of rows of comma-separated text, finite. DataError says `where` one is not."""
    try:
        return _parse(",".join(rows))
    except ValueError:
        for row, place in zip(rows, where, strict=True):
            try:
                _parse(row)
            except ValueError:
                raise DataError(f"{place}: {row[:40]!r} isn't a list of numbers") from None
        raise


def _parse(text: str) -> np.ndarray:
    text = text.translate(_STRIP)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # numpy's word for text left unread
        try:
            values = np.fromstring(text, np.float64, sep=",")
        except DeprecationWarning as error:
            raise ValueError(str(error)) from error
    if len(values) != text.count(",") + 1 or not np.isfinite(values).all():
        raise ValueError("not all are finite numbers")
    return values


def _atomic_numbers(rows: list[str], *, sizes: np.ndarray, where: list[str]) -> np.ndarray:
    """Atomic numbers of rows of comma-separated symbols: uint8 [A]."""
    # Element symbols of QM9 have one letter: with separators gone, a byte is an atom.
    letters = ",".join(rows).translate(_STRIP).replace(",", "").encode("ascii", "replace")
    code = np.zeros(256, np.uint8)
    for symbol, number in ELEMENTS.items():
        code[ord(symbol)] = number
    z: np.ndarray = code[np.frombuffer(letters, np.uint8)]
    if len(z) != sizes.sum() or (z == 0).any():
        for row, place in zip(rows, where, strict=True):
            for symbol in row.translate(_STRIP).split(","):
                if symbol not in ELEMENTS:
                    raise DataError(f"{place}: {symbol!r} is none of QM9's elements")
    return z


def _assemble(parts: Sequence[Molecules]) -> Store:
    """One store of all parts, energies in eV.

    Sorted by published number, so that a split means the same molecules whichever distribution they
    were read from.
    """
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    index, sizes = whole["index"], whole["sizes"]
    order = np.argsort(index, kind="stable")
    twice = index[order][1:] == index[order][:-1]
    if twice.any():
        number = int(index[order][1:][twice][0])
        raise DataError(f"molecule {number} is there twice; give each raw file once")
    begin = (np.cumsum(sizes) - sizes)[order]
    node_ptr = np.concatenate([[0], np.cumsum(sizes[order])])
    rows = np.arange(node_ptr[-1]) + np.repeat(begin - node_ptr[:-1], sizes[order])
    y = whole["y"][order]
    y[:, [name in _IN_HARTREE for name in COLUMNS]] *= HARTREE
    return make_store(
        node_ptr=node_ptr,
        node={"z": whole["z"][rows], "pos": whole["pos"][rows].astype(np.float32)},
        graph={"index": index[order], "y": y},
    )
