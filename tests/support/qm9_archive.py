"""Writes made-up molecules in the layout of QM9's original distribution."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from zoo.datasets.qm9_synthetic import Molecule, inchi, molecule, number_text, smiles


def xyz_text(one: Molecule) -> str:
    """One extended XYZ file: exponents as Mathematica writes them, columns parted by tabs."""

    def text(value: float, places: int) -> str:
        return number_text(value, places).replace("E", "*^")

    lines = [str(len(one.symbols)), "gdb " + "\t".join([str(one.number), *one.properties]) + "\t"]
    for symbol, row, charge in zip(one.symbols, one.pos, one.charges, strict=True):
        numbers = [*(text(x, 10) for x in row), text(charge, 6)]
        lines.append("\t".join([symbol, *numbers]))
    lines.append("\t".join(text(x, 4) for x in one.frequencies))
    lines.append("\t".join([smiles(one)] * 2) + "\t")
    lines.append("\t".join([inchi(one)] * 2))
    return "\n".join([*lines, ""])


def left_out_text(molecules: Iterable[Molecule]) -> str:
    """The list of molecules that failed the consistency check, with its heading."""
    rule = "=" * 60
    rows = [f"{m.number:8d}  {smiles(m)}  {smiles(m)}  {3.25:.6f}" for m in molecules]
    heading = ["", "List of molecules among the 133885 that ...", rule, "#  Index  SMILES  D_IJ"]
    return "\n".join([*heading, rule, *rows, rule, ""])


def write_archive(*, path: Path, texts: dict[str, str]) -> None:
    """The archive, without a folder inside."""
    with tarfile.open(path, "w:bz2") as archive:
        for name, text in texts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))


def synthesize_original(*, path: Path, seed: int, size: int, left_out: int) -> None:
    """The molecules of `synthesize(seed=, size=)` in the original layout, and `left_out` more that
    the list names, in between in the archive.
    """
    path.mkdir(parents=True, exist_ok=True)
    molecules = [molecule(seed=seed, number=k) for k in range(1, size + left_out + 1)]
    (path / "uncharacterized.txt").write_text(left_out_text(molecules[size:]))
    order = np.random.default_rng(0).permutation(size + left_out)
    write_archive(
        path=path / "dsgdb9nsd.xyz.tar.bz2",
        texts={f"dsgdb9nsd_{molecules[k].number:06d}.xyz": xyz_text(molecules[k]) for k in order},
    )
