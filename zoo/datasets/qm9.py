"""QM9: 130,831 small organic molecules with B3LYP/6-31G(2df,p) geometries and 12 properties.

Ramakrishnan, Dral, Rupp, von Lilienfeld, Scientific Data 1, 140022 (2014). The standard set: the
133,885 molecules less the 3,054 whose geometry failed the authors' consistency check. Energies are
converted from Hartree to eV.
"""

from __future__ import annotations

import hashlib
import importlib.util
import warnings
from pathlib import Path

import numpy as np

from zoo import hub
from zoo.batching.store import Store, cached_store
from zoo.datasets.facts import DatasetFacts, Property, Source
from zoo.datasets.qm9_raw import (
    ATOM_ENERGIES,
    COLUMNS,
    ELEMENTS,
    HARTREE,
    read_original,
    read_tables,
)
from zoo.datasets.qm9_synthetic import synthesize as synthesize
from zoo.datasets.qm9_synthetic import synthetic_folder as synthetic_folder
from zoo.datasets.splits import random_split, split_digest
from zoo.errors import DataError, RequestError, UnavailableError, WeightsError, unknown
from zoo.files import sha256_file

_READER = "qm9-2"
"""Goes up when the same raw files become another store."""

GEOMETRY = "DFT (B3LYP/6-31G(2df,p))"
"""How the geometries were made: what a model trained on them expects."""

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
_FIGSHARE = (
    "https://ndownloader.figshare.com/files",
    "https://springernature.figshare.com/ndownloader/files",
)
_ORIGINALS = (
    Source(
        filename="dsgdb9nsd.xyz.tar.bz2",
        sha256="3a63848ac80691bdb8d41834b575afad345b9300d7a2db0c38adb7f6eaa8360c",
        size=86144227,
        mirrors=tuple(f"{place}/3195389" for place in _FIGSHARE),
    ),
    Source(
        filename="uncharacterized.txt",
        sha256="3aa5115d540b356de94791d4a74c3bf1ed91c469ecf52a4f5d7cc0506fe02e24",
        size=486752,
        mirrors=tuple(f"{place}/3195404" for place in _FIGSHARE),
    ),
)
SPLIT_SIZES = {"train": 110_000, "valid": 10_000, "test": 10_831}
_INDEX_SHA256 = "54e3c2872ae88920eb296f5a973cb52c0c571e445ca3d744bfedff5d4722f08c"
"""Of the published numbers of all molecules, ascending, as little-endian int32."""

FACTS = DatasetFacts(
    name="qm9",
    title="QM9",
    licence="CC0 1.0",
    citation="R. Ramakrishnan, P. O. Dral, M. Rupp, O. A. von Lilienfeld, "
    "Scientific Data 1, 140022 (2014)",
    properties=_PROPERTIES,
    sources=(*_PARTS, *_ORIGINALS),
    counts={"molecules": 130_831, **SPLIT_SIZES},
    splits={
        "random-0": "cd7b4d53512c0daaa9472b459b25bf66f13bb13d1baebaeaa1f7761a4a509fef",
        "random-1": "9fefc5c00e8336ec2ce5968551c2076ec7e0e88acead3078e9ebf782475b9c8b",
        "random-2": "dd3509758efa078b68c8756e1713317a9bbfd1202c8ff95a0e8cc44c27a90938",
    },
    notes=(
        "geometries and properties are B3LYP/6-31G(2df,p)",
        "without the 3,054 molecules that failed the authors' consistency check",
        "energies in eV (1 Hartree = 27.211386245988 eV)",
        "read from qm9pack's tables, or from the original archive (sha256 as published by others; "
        "its reader was tested on archives made up in that layout, not on the published one)",
    ),
)


def load(*, folder: Path | None = None) -> Store:
    """The data set as a flat store: node z, pos (Å); graph index (the published number), y [M, 12]
    in the units of `FACTS`.

    `folder` reads raw files from there (any number of molecules, either distribution) instead of
    the published ones, whose count is checked. Parsed once into the user's cache. DataError for
    damaged files, UnavailableError where there are none and none can be had.
    """
    if folder is None:
        digest = hashlib.sha256(f"{_READER} published".encode()).hexdigest()
        return cached_store(folder=_place(digest), digest=digest, make=_published)
    paths = _files_in(folder)
    keys = [f"{p.name}:{p.stat().st_size}:{p.stat().st_mtime_ns}" for p in paths]
    digest = hashlib.sha256("\n".join([_READER, *keys]).encode()).hexdigest()
    return cached_store(folder=_place(digest), digest=digest, make=lambda: _read(paths))


def _place(digest: str) -> Path:
    return hub.cache_dir() / "stores" / f"qm9-{digest[:16]}"


def _read(paths: list[Path]) -> Store:
    if paths[0].name == _ORIGINALS[0].filename:
        return read_original(archive=paths[0], left_out=paths[1])
    return read_tables(paths)


def _published() -> Store:
    """The whole set from the published files, held to the published count."""
    store = _read(_published_files())
    if len(store) != FACTS.counts["molecules"]:
        raise DataError(
            f"QM9 has {FACTS.counts['molecules']:,} molecules, these are {len(store):,}"
        )
    numbers = np.asarray(store.graph["index"], "<i4").tobytes()
    if hashlib.sha256(numbers).hexdigest() != _INDEX_SHA256:
        raise DataError("the molecules' numbers are not those of the standard set of QM9")
    return store


def _files_in(folder: Path) -> list[Path]:
    """The raw files in a folder: tables, or the original archive with its list."""
    tables = sorted(folder.glob("qm9_part*.csv"))
    if tables:
        return tables
    originals = [folder / source.filename for source in _ORIGINALS]
    missing = [path.name for path in originals if not path.exists()]
    if missing:
        raise RequestError(
            f"{folder} holds no raw files of QM9: neither qm9_part*.csv nor {' and '.join(missing)}"
        )
    return originals


def _package_folder() -> Path | None:
    """Where the qm9pack distribution keeps its CSVs. Found, not imported: importing it needs
    pkg_resources, which current setuptools no longer has.
    """
    spec = importlib.util.find_spec("qm9pack")
    places = (spec and spec.submodule_search_locations) or []
    return next((Path(p) / "data" for p in places if (Path(p) / "data").is_dir()), None)


def _packaged(source: Source) -> Path | None:
    folder = _package_folder()
    path = folder / source.filename if folder else None
    if path is None or not path.exists():
        return None
    if sha256_file(path) != source.sha256:
        warnings.warn(f"{path} is damaged (another sha256); looking elsewhere", stacklevel=2)
        return None
    return path


def _published_files() -> list[Path]:
    """The tables from the package or ZOO_DATA; else the originals from ZOO_DATA, the user's cache
    or the mirrors.
    """

    def local(source: Source) -> Path | None:
        return hub.find_raw(filename=source.filename, sha256=source.sha256)

    tables = [path for source in _PARTS if (path := _packaged(source) or local(source))]
    if len(tables) == len(_PARTS):
        return tables
    try:
        return [local(source) or _fetched(source) for source in _ORIGINALS]
    except (UnavailableError, WeightsError) as error:
        raise UnavailableError(
            "QM9 is not on this machine: pip install 'gnn-zoo[qm9]', or name its folder in "
            f"ZOO_DATA\n{error}"
        ) from error


def _fetched(source: Source) -> Path:
    return hub.fetch(
        filename=source.filename,
        sha256=source.sha256,
        mirrors=source.mirrors,
        folder=hub.cache_dir() / "raw" / "qm9",
        what="QM9",
    )


def atom_energies(*, property: str) -> dict[str, float]:
    """Free atoms' energies in eV by element symbol, for a total energy; else RequestError."""
    if property not in ATOM_ENERGIES:
        raise unknown(kind="total energy of qm9", name=property, known=ATOM_ENERGIES)
    return {symbol: HARTREE * value for symbol, value in ATOM_ENERGIES[property].items()}


def atomisation_energies(*, store: Store, property: str) -> np.ndarray:
    """Total energy less the free atoms' (negative where bound), in eV: float64 [M]."""
    by_number = np.zeros(1 + max(ELEMENTS.values()))
    for symbol, value in atom_energies(property=property).items():
        by_number[ELEMENTS[symbol]] = value
    molecule = np.repeat(np.arange(len(store)), store.nodes_per_graph())
    atoms = np.bincount(molecule, by_number[store.node["z"]], minlength=len(store))
    totals: np.ndarray = store.graph["y"][:, list(COLUMNS).index(property)]
    return totals - atoms


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
