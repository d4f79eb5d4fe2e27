"""QM9: 130,831 small organic molecules with B3LYP/6-31G(2df,p) geometries and 12 properties.

Ramakrishnan, Dral, Rupp, von Lilienfeld, Scientific Data 1, 140022 (2014). The standard set: the
133,885 molecules less the 3,054 whose geometry failed the authors' consistency check. Energies are
converted from Hartree to eV.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

import numpy as np

from zoo import hub
from zoo.batching.store import Store, make_store, open_store, write_store
from zoo.datasets.facts import DatasetFacts, Property, Source
from zoo.datasets.splits import random_split, split_digest
from zoo.errors import DataError, UnavailableError
from zoo.files import sha256_file

HARTREE = 27.211386245988
"""eV in a Hartree (CODATA 2018)."""

_TOTAL = "total energy (separated nuclei and electrons are zero)"
_PROPERTIES = (
    Property(name="mu", unit="D", description="dipole moment"),
    Property(name="alpha", unit="a0^3", description="isotropic polarisability"),
    Property(name="homo", unit="eV", description="energy of the highest occupied orbital"),
    Property(name="lumo", unit="eV", description="energy of the lowest unoccupied orbital"),
    Property(name="gap", unit="eV", description="LUMO less HOMO"),
    Property(name="r2", unit="a0^2", description="electronic spatial extent"),
    Property(name="zpve", unit="eV", description="zero-point vibrational energy"),
    Property(name="U0", unit="eV", description="internal energy at 0 K", reference=_TOTAL),
    Property(name="U", unit="eV", description="internal energy at 298.15 K", reference=_TOTAL),
    Property(name="H", unit="eV", description="enthalpy at 298.15 K", reference=_TOTAL),
    Property(name="G", unit="eV", description="free energy at 298.15 K", reference=_TOTAL),
    Property(name="cv", unit="cal/mol/K", description="heat capacity at 298.15 K"),
)
_COLUMNS = {
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
ATOM_ENERGIES = {
    # Hartree, the same method's free atoms, as distributed with the data set.
    "U0": {"H": -0.500273, "C": -37.846772, "N": -54.583861, "O": -75.064579, "F": -99.718730},
    "U": {"H": -0.498857, "C": -37.845355, "N": -54.582445, "O": -75.063163, "F": -99.717314},
    "H": {"H": -0.497912, "C": -37.844411, "N": -54.581501, "O": -75.062219, "F": -99.716370},
    "G": {"H": -0.510927, "C": -37.861317, "N": -54.598897, "O": -75.079532, "F": -99.733544},
}
"""Free atoms' energies in Hartree: total less the atoms' sum is the (negative) atomisation energy."""

ELEMENTS = {"H": 1, "C": 6, "N": 7, "O": 8, "F": 9}
_PARTS = (
    Source(
        filename="qm9_part1.csv",
        sha256="19f0a5d595462d52cd82eef3370f3e9eb55a1f52cb14985657200349568deff3",
        size=69693764,
    ),
    Source(
        filename="qm9_part2.csv",
        sha256="2bca113fdc0b28a13563c80ed9b240e934f3da6c64c64fe74ddb4f0f36036e61",
        size=76868612,
    ),
    Source(
        filename="qm9_part3.csv",
        sha256="9c5efb5733d2af149db8d95d36ff198b4ffed12d9f7b344220a1e5877d5c6a43",
        size=79083002,
    ),
)
SPLIT_SIZES = {"train": 110_000, "valid": 10_000, "test": 10_831}

FACTS = DatasetFacts(
    name="qm9",
    title="QM9",
    licence="CC0 1.0",
    citation="R. Ramakrishnan, P. O. Dral, M. Rupp, O. A. von Lilienfeld, "
    "Scientific Data 1, 140022 (2014)",
    properties=_PROPERTIES,
    sources=_PARTS,
    counts={"molecules": 130_831, **SPLIT_SIZES},
    notes=(
        "geometries and properties are B3LYP/6-31G(2df,p)",
        "without the 3,054 molecules that failed the authors' consistency check",
        "energies in eV (1 Hartree = 27.211386245988 eV)",
    ),
)


def _numbers(text: str) -> np.ndarray:
    return np.fromstring(text, np.float64, sep=",")


def parse_part(path: Path) -> dict[str, np.ndarray]:
    """Read one CSV of the packaged distribution: index [M], ptr [M + 1], z [A], pos [A, 3] (Å),
    y [M, 12] in the units of `FACTS`.

    DataError names the file and molecule where the atom counts disagree.
    """
    import pandas as pd

    columns = ["Index", "N_atoms", "Elements", "XYZ_Ang", *_COLUMNS.values()]
    try:
        table = pd.read_csv(path, usecols=columns)
    except ValueError as error:
        raise DataError(f"{path} isn't a QM9 table: {error}") from error
    counts = table["N_atoms"].to_numpy(np.int64)
    strip = str.maketrans({"[": None, "]": None, "'": None, " ": None})
    symbols = ",".join(table["Elements"]).translate(strip)
    # Element symbols of QM9 have one letter: with separators gone, a byte is an atom.
    letters = np.frombuffer(symbols.replace(",", "").encode(), np.uint8)
    code = np.zeros(256, np.uint8)
    for symbol, number in ELEMENTS.items():
        code[ord(symbol)] = number
    z = code[letters]
    pos = _numbers(",".join(table["XYZ_Ang"]).translate(strip)).reshape(-1, 3)
    if len(z) != counts.sum() or len(pos) != counts.sum() or (z == 0).any():
        raise DataError(f"{path}: atom counts, elements and positions disagree; get the file anew")
    y = table[list(_COLUMNS.values())].to_numpy(np.float64)
    hartree = [i for i, p in enumerate(_PROPERTIES) if p.unit == "eV"]
    y[:, hartree] *= HARTREE
    return {
        "index": table["Index"].to_numpy(np.int32),
        "ptr": np.concatenate([[0], np.cumsum(counts)]),
        "z": z,
        "pos": pos.astype(np.float32),
        "y": y,
    }


def _package_folder() -> Path | None:
    """Where the qm9pack distribution keeps its CSVs. Found, not imported: importing it needs
    pkg_resources, which current setuptools no longer has.
    """
    spec = importlib.util.find_spec("qm9pack")
    places = (spec and spec.submodule_search_locations) or []
    return next((Path(p) / "data" for p in places if (Path(p) / "data").is_dir()), None)


def _raw_files(folder: Path | None) -> list[Path]:
    if folder is not None:
        paths = sorted(folder.glob("qm9_part*.csv"))
        if not paths:
            raise DataError(f"{folder} holds no qm9_part*.csv")
        return paths
    package = _package_folder()
    found = []
    for source in _PARTS:
        path = package / source.filename if package else None
        if path is None or not path.exists() or path.stat().st_size != source.size:
            path = hub.find_raw(filename=source.filename, sha256=source.sha256)
        if path is None:
            raise UnavailableError(
                f"QM9's {source.filename} is not on this machine\n"
                "install it with pip install 'gnn-zoo[qm9]', or name its folder in ZOO_DATA"
            )
        found.append(path)
    return found


def load(*, folder: Path | None = None) -> Store:
    """The data set as a flat store: node z, pos (Å); graph index (the published number), y [M, 12].

    `folder` reads raw files from there (any number of molecules) instead of the published ones,
    whose count is checked. Parsed once into the user's cache.
    """
    paths = _raw_files(folder)
    keys = [f"{p.name}:{p.stat().st_size}:{p.stat().st_mtime_ns}" for p in paths]
    digest = hashlib.sha256("\n".join(["qm9-1", *keys]).encode()).hexdigest()
    place = hub.cache_dir() / "stores" / f"qm9-{digest[:16]}"
    try:
        return open_store(folder=place, digest=digest)
    except DataError:
        pass  # missing, damaged or made from other files: parse anew
    if folder is None:
        for path, source in zip(paths, _PARTS, strict=True):
            if not path.name.endswith(".gz") and sha256_file(path) != source.sha256:
                raise DataError(f"{path} is damaged (its sha256 differs); install qm9pack again")
    store = _parse(paths, digest)
    if folder is None and len(store) != FACTS.counts["molecules"]:
        raise DataError(f"QM9 has {len(store):,} molecules, not {FACTS.counts['molecules']:,}")
    try:
        return write_store(folder=place, store=store)
    except UnavailableError:
        return store  # a read-only cache costs parsing again next time, nothing else


def _parse(paths: list[Path], digest: str) -> Store:
    parts = [parse_part(p) for p in paths]
    sizes = np.concatenate([np.diff(p["ptr"]) for p in parts])
    index = np.concatenate([p["index"] for p in parts])
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    # The parts are in no order of their own: sort by published number, so that splits mean the same
    # molecules whichever distribution they were read from.
    order = np.argsort(index, kind="stable")
    begin, new_sizes = ptr[:-1][order], sizes[order]
    new_ptr = np.concatenate([[0], np.cumsum(new_sizes)])
    rows = np.arange(new_ptr[-1]) + np.repeat(begin - new_ptr[:-1], new_sizes)
    return make_store(
        node_ptr=new_ptr,
        node={
            "z": np.concatenate([p["z"] for p in parts])[rows],
            "pos": np.concatenate([p["pos"] for p in parts])[rows],
        },
        graph={"index": index[order], "y": np.concatenate([p["y"] for p in parts])[order]},
        digest=digest,
    )


def split(*, store: Store, seed: int) -> tuple[dict[str, np.ndarray], str]:
    """Train, valid and test indices (sorted int64) and their sha256; 110,000 / 10,000 / 10,831 of
    the whole set, the same shares of a smaller one.
    """
    scale = len(store) / FACTS.counts["molecules"]
    sizes = dict(SPLIT_SIZES)
    if scale != 1:
        sizes = {name: max(1, int(size * scale)) for name, size in SPLIT_SIZES.items()}
        sizes["train"] = len(store) - sizes["valid"] - sizes["test"]
    parts = random_split(count=len(store), sizes=sizes, seed=seed)
    digest = split_digest(parts)
    published = FACTS.splits.get(f"random-{seed}")
    if scale == 1 and published is not None and digest != published:
        raise DataError(
            f"the random split of seed {seed} came out as {digest[:12]}, not {published[:12]}: "
            "this numpy draws other permutations"
        )
    return parts, digest
