"""Made-up molecules in QM9's raw format, for tests and for smoke runs without the real set.

Trees of H, C, N, O and F with plausible bond lengths and no overlaps, of QM9's sizes. Properties
are smooth functions of the geometry (pairs, and charges that depend on the neighbourhood), so that
a model can learn them; they are no chemistry.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zoo.datasets.qm9_raw import ATOM_ENERGIES, ELEMENTS
from zoo.datasets.synthetic import made_up_folder
from zoo.errors import RequestError
from zoo.files import disk

_VERSION = 1
"""Goes up when a seed gives other molecules."""
_PARTS = 3
_BOHR = 0.529177210903  # Å
_DEBYE = 4.80320471  # in an electron's charge times Å
_ROTATION = 505.379  # GHz amu Å²

_SYMBOLS = tuple(ELEMENTS)
_VALENCE = dict(zip(_SYMBOLS, (1, 4, 3, 2, 1), strict=True))
_MASS = np.array([1.008, 12.011, 14.007, 15.999, 18.998])
_RADIUS = np.array([0.31, 0.76, 0.71, 0.66, 0.57])
_PULL = np.array([0.22, 0.26, 0.30, 0.34, 0.40])  # on electrons
_DEPTH = np.array([0.10, 0.13, 0.11, 0.12, 0.09])  # Hartree
_POLARISABILITY = np.array([2.5, 8.5, 6.5, 5.0, 3.5])
_HOMO = np.array([-0.20, -0.24, -0.25, -0.30, -0.35])
_LUMO = np.array([0.06, -0.01, 0.00, -0.04, 0.02])
_ZERO_POINT = np.array([0.0105, 0.0046, 0.0052, 0.0041, 0.0030])
_HEAT = np.array([0.9, 2.2, 2.0, 2.1, 2.3])

_HEADER = (
    "XYZ_file,Index,SMILES,InChi,N_atoms,Stoichiometry,Elements,XYZ_Ang,Mulliken_pop,"
    "Harmonic_Freq_cmi,RotA_GHz,RotB_GHz,RotC_GHz,Dipole_debye,Polarizability_bohr3,HOMO_au,LUMO_au,"
    "HOMO_LUMO_gap_au,R2_bohr2,ZPVE_au,InternalEnergy_0K_au,InternalEnergy_298K_au,"
    "Enthalphy_298K_au,GibbsFreeEnergy_298K_au,Heatcapacity_Cv_cal_mol_K"
)


@dataclass(frozen=True, kw_only=True)
class Molecule:
    """A made-up molecule as its raw file has it: `parents[i]` is the atom that i was bonded to (-1
    for the first), `pos` [N, 3] Å, `charges` [N], and `properties` in the file's units and order:
    three rotational constants (GHz), then those of `qm9_raw.COLUMNS`, Hartree for energies.
    """

    number: int
    symbols: tuple[str, ...]
    parents: tuple[int, ...]
    pos: np.ndarray
    charges: np.ndarray
    frequencies: np.ndarray
    properties: tuple[str, ...]


def synthesize(*, path: Path, seed: int, size: int) -> None:
    """Write `size` made-up molecules into the folder `path` as QM9's three tables, in no order.

    A molecule depends on the seed and its number alone. UnavailableError where the disk refuses.
    """
    if size < _PARTS:
        raise RequestError(f"a made-up QM9 has at least {_PARTS} molecules, not {size}")
    order = np.random.default_rng(seed).permutation(size) + 1
    with disk(path):
        path.mkdir(parents=True, exist_ok=True)
        for part, numbers in enumerate(np.array_split(order, _PARTS), start=1):
            rows = [_row(molecule(seed=seed, number=int(number))) for number in numbers]
            (path / f"qm9_part{part}.csv").write_text("\n".join([_HEADER, *rows, ""]))


def synthetic_folder(*, seed: int, size: int) -> Path:
    """The folder of a made-up set, written once into the user's cache."""
    return made_up_folder(
        name=f"qm9-{_VERSION}-{seed}-{size}",
        write=lambda path: synthesize(path=path, seed=seed, size=size),
    )


def molecule(*, seed: int, number: int) -> Molecule:
    """One molecule of 3 to 29 atoms."""
    rng = np.random.default_rng((seed, number))
    while (grown := _grow(rng)) is None:
        pass
    symbols, parents, pos = grown
    pos = np.round(pos, 10)
    kind = np.array([_SYMBOLS.index(symbol) for symbol in symbols])
    charges, values = _properties(kind, pos)
    modes = 3 * len(symbols) - 6
    return Molecule(
        number=number,
        symbols=tuple(symbols),
        parents=tuple(parents),
        pos=pos,
        charges=charges,
        frequencies=np.sort(rng.uniform(150, 3700, modes)),
        properties=tuple(
            number_text(value, places)
            for value, places in zip(values, (5, 5, 5, 4, 2, 4, 4, 4, 4, *5 * (6,), 3), strict=True)
        ),
    )


def _grow(rng: np.random.Generator) -> tuple[list[str], list[int], np.ndarray] | None:
    """Elements, parents and positions of a random tree; None when it ran into itself."""
    size = int(np.clip(np.rint(rng.normal(18, 3)), 3, 29))
    least = -(-(size - 2) // 3)  # of heavy atoms, to carry the hydrogens
    heavy = int(np.clip(np.rint(rng.normal(size / 2, 0.8)), least, min(9, size - 1)))
    symbols = ["C"]
    free = 2 * heavy + 2 - (size - heavy)  # valences to spare if all were carbon
    for _ in range(heavy - 1):
        symbol = str(rng.choice(_SYMBOLS[1:], p=(0.72, 0.11, 0.155, 0.015)))
        if _VALENCE["C"] - _VALENCE[symbol] > free:
            symbol = "C"
        free -= _VALENCE["C"] - _VALENCE[symbol]
        symbols.append(symbol)
    symbols = sorted(symbols, key=lambda s: s == "F") + ["H"] * (size - heavy)  # F ends a branch
    pos = np.zeros((size, 3))
    parents, left = [-1], [_VALENCE[symbols[0]]]
    for atom in range(1, size):
        for parent in rng.permutation(np.flatnonzero(left)):
            place = _place(rng, symbols=symbols, pos=pos[:atom], parent=int(parent), heavy=heavy)
            if place is not None:
                break
        else:
            return None
        pos[atom] = place
        parents.append(int(parent))
        left[parent] -= 1
        left.append(_VALENCE[symbols[atom]] - 1 if atom < heavy else 0)
    return symbols, parents, pos + rng.normal(0, 1, 3)


def _place(
    rng: np.random.Generator, *, symbols: list[str], pos: np.ndarray, parent: int, heavy: int
) -> np.ndarray | None:
    """A place for the next atom at bond length from its parent and clear of all others."""
    atom = len(pos)
    bond = sum(_RADIUS[_SYMBOLS.index(symbols[i])] for i in (atom, parent))
    bond = np.clip(bond * (rng.uniform(0.86, 1.03) if atom < heavy else 1.0), 0.95, 1.58)
    way = rng.normal(size=(32, 3))
    places = pos[parent] + bond * way / np.linalg.norm(way, axis=1, keepdims=True)
    others = np.delete(pos, parent, axis=0)
    if not len(others):
        return np.asarray(places[0])
    gaps = np.linalg.norm(places[:, None] - others, axis=2).min(axis=1)
    clear = np.flatnonzero(gaps >= (2.05 if atom < heavy else 1.5))
    if not len(clear):
        return None
    # Heavy atoms anywhere that is clear, for variety; hydrogens where they crowd least.
    return np.asarray(places[clear[0] if atom < heavy else gaps.argmax()])


def _properties(kind: np.ndarray, pos: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Charges [N] that sum to zero, and the values of `Molecule.properties`."""
    size = len(kind)
    between = np.linalg.norm(pos[:, None] - pos, axis=2)
    near = np.exp(-((between / 1.3) ** 2))
    charges = ((_PULL[kind][None, :] - _PULL[kind][:, None]) * -near).sum(axis=1) * -5
    i, j = np.triu_indices(size, 1)
    r = between[i, j]
    swing = 1 - np.exp(-1.8 * (r - _RADIUS[kind[i]] - _RADIUS[kind[j]]))
    energy = (np.sqrt(_DEPTH[kind[i]] * _DEPTH[kind[j]]) * (swing**2 - 1)).sum()
    energy += (charges[i] * charges[j] * _BOHR / np.sqrt(r**2 + 0.25)).sum()
    by_kind = np.array([ATOM_ENERGIES["U0"][symbol] for symbol in _SYMBOLS])
    total = by_kind[kind].sum() + energy
    warm = total + 0.00285 + 0.00035 * size
    mass, nuclear = _MASS[kind], np.array(list(ELEMENTS.values()))[kind].astype(float)
    apart = pos - (mass[:, None] * pos).sum(axis=0) / mass.sum()
    inertia = np.eye(3) * (mass[:, None] * apart**2).sum() - (apart.T * mass) @ apart
    rotations = _ROTATION / np.maximum(np.linalg.eigvalsh(inertia), 1e-2)
    spread = pos - (nuclear[:, None] * pos).sum(axis=0) / nuclear.sum()
    homo = round(float((_HOMO[kind] + 0.1 * charges).mean()), 4)
    lumo = round(float((_LUMO[kind] - 0.2 * charges**2).mean()), 4)
    return charges, [
        *rotations,
        _DEBYE * float(np.linalg.norm(charges @ pos)),
        float((_POLARISABILITY[kind] * (1 - 0.3 * charges)).sum()),
        homo,
        lumo,
        lumo - homo,
        float((nuclear * (spread**2).sum(axis=1)).sum()) / _BOHR**2,
        float(_ZERO_POINT[kind].sum() + 0.001 * (near.sum() - size)),
        total,
        warm,
        warm + 0.000944,
        warm + 0.000944 - 0.0235 - 0.00065 * size,
        float(_HEAT[kind].sum()),
    ]


def number_text(value: float, places: int) -> str:
    """A number as the raw files write it: `1.5`, `0.`, `2.1997E-6`."""
    if 0 < abs(value) < 1e-5 and places > 5:
        digits, power = f"{value:.{places - 6}E}".split("E")
        return f"{digits}E{int(power)}"
    return f"{value:.{places}f}".rstrip("0")


def smiles(molecule: Molecule) -> str:
    """SMILES of the tree, every hydrogen count spelt out."""

    def written(atom: int) -> str:
        below = [i for i, parent in enumerate(molecule.parents) if parent == atom]
        hydrogens = sum(molecule.symbols[i] == "H" for i in below)
        count = f"H{hydrogens}" if hydrogens > 1 else "H" * hydrogens
        branches = [written(i) for i in below if molecule.symbols[i] != "H"]
        return f"[{molecule.symbols[atom]}{count}]" + "".join(
            f"({branch})" if number < len(branches) - 1 else branch
            for number, branch in enumerate(branches)
        )

    return written(0)


def inchi(molecule: Molecule) -> str:
    """The first layer of an InChI, which is the formula."""
    counts = {symbol: molecule.symbols.count(symbol) for symbol in ("C", "H", "F", "N", "O")}
    formula = "".join(f"{s}{n if n > 1 else ''}" for s, n in counts.items() if n)
    return f"InChI=1S/{formula}"


def _row(molecule: Molecule) -> str:
    def listed(values: list[str]) -> str:
        return f'"[{",".join(values)}]"'

    symbols = molecule.symbols
    positions = ["[" + ",".join(number_text(x, 10) for x in row) + "]" for row in molecule.pos]
    return ",".join(
        [
            f'"dsgdb9nsd_{molecule.number:06d}.xyz"',
            str(molecule.number),
            f'"{smiles(molecule)}"',
            f'"{inchi(molecule)}"',
            str(len(symbols)),
            listed([str(symbols.count(symbol)) for symbol in _SYMBOLS]),
            listed([f"'{symbol}'" for symbol in symbols]),
            listed(positions),
            listed([number_text(charge, 6) for charge in molecule.charges]),
            listed([number_text(frequency, 4) for frequency in molecule.frequencies]),
            *molecule.properties,
        ]
    )
