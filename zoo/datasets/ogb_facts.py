"""What is known of OGB's molecular sets."""

from __future__ import annotations

from zoo.datasets import moleculenet_facts
from zoo.datasets.facts import DatasetFacts, Property
from zoo.datasets.moleculenet_facts import activities

MOLECULENET = {"molhiv": "hiv", "molesol": "esol", "molfreesolv": "freesolv", "molbace": "bace"}
"""Sets whose graphs are the rows of one of MoleculeNet's tables, in its order."""

CONTENT = {
    "molesol": "47cfdcea3e4fa113e6a73de60ac4fad238c7f59527fed71ded86993d4acb777f",
    "molfreesolv": "b6b5a847d81828fdc21a8d8fc459fa64ae668022981fce5746d2465fe54f704f",
    "molbace": "3c3f8073b1a5bbc28aeac9c00f0602bb916c40029ac3902dbf31fd63aefe5db5",
    "molbbbp": "eb2a8c1bfe79b7044e04ba5ef5f865107aa540afcd46216274555a53e199b167",
}
"""`ogb_raw.content_sha256` of the official files, where it is known."""

UNNAMED = ("molpcba",)
"""Sets whose tasks are called by their column."""

SPLIT_SIZES = {
    "molesol": (902, 113, 113),
    "molfreesolv": (513, 64, 65),
    "molbace": (1210, 151, 152),
    "molbbbp": (1631, 204, 204),
    "molhiv": (32901, 4113, 4113),
    "molpcba": (350343, 43793, 43793),
}
"""Graphs of the official train, valid and test parts, where they are known."""

_PLACE = "http://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/"
_UNTRIED = (
    "official files of this set were not at hand: the reader was tested on those of molesol, "
    "molfreesolv, molbace and molbbbp"
)
_HELD = "official files are held to their sha256"


def zipped(name: str) -> str:
    """What OGB calls the set's zip, and the folder in it."""
    return "lipophilicity" if name == "mollipo" else name.removeprefix("mol")


def _set(name: str, *, table: str, graphs: int, notes: tuple[str, ...] = ()) -> DatasetFacts:
    """The set of this name, with the properties of MoleculeNet's `table`."""
    facts = moleculenet_facts.SETS[table]
    return _facts(
        name, facts.title, facts.properties, metric=facts.metric, graphs=graphs, notes=notes
    )


def _facts(
    name: str,
    title: str,
    properties: tuple[Property, ...],
    *,
    metric: str,
    graphs: int,
    notes: tuple[str, ...] = (),
) -> DatasetFacts:
    sizes = dict(zip(("train", "valid", "test"), SPLIT_SIZES.get(name, ()), strict=False))
    return DatasetFacts(
        name=f"ogb.{name}",
        title=f"ogbg-{name} ({title})",
        licence="MIT",
        citation="W. Hu et al., Open Graph Benchmark, NeurIPS 2020 (arXiv:2005.00687)",
        properties=properties,
        sources=(),
        counts={"graphs": graphs, **sizes},
        splits=_SPLITS.get(name, {}),
        notes=(
            *notes,
            _HELD if name in CONTENT else _UNTRIED,
            f"official files: {_PLACE}{zipped(name)}.zip, to be unzipped into a folder that "
            "ZOO_DATA names; it isn't fetched, since its sha256 isn't known here",
        ),
        metric=metric,
    )


_SAME = (
    "where the official files aren't at hand it is made from MoleculeNet's table, which gives the "
    "same graphs and split"
)
_HIV = (
    "where the official files aren't at hand it is made from MoleculeNet's HIV.csv with the "
    "scaffold split derived from it (32,901/4,113/4,113 rows), without the 7 molecules that RDKit "
    "2026.09 refuses; the labels of its valid and test parts agree one by one with those of "
    "somebody else's run of OGB's loader; that the rows are in OGB's order is inferred from this"
)

_SPLITS = {
    **{name: moleculenet_facts.SETS[table].splits for name, table in MOLECULENET.items()},
    "molbbbp": {
        "scaffold": "3df22e9dc843c39ffc6287eeed584468634e2aa4ade95c92872125b9800cd78d",
        "random-0": "98e868b9f6206fe351f0840b8d5f72700e3581e30a5374f91fcbb6232cabb242",
        "random-1": "7f1085178ac81032a2eeb73f227bfe32649d154b2c37d89885401eb9ab55cc0f",
        "random-2": "c9214c166303d55ffd67a1c0c8d559a60ff4774095ae600fc30d704000db9bd9",
    },
}

SETS = {
    "molesol": _set("molesol", table="esol", graphs=1128, notes=(_SAME,)),
    "molfreesolv": _set("molfreesolv", table="freesolv", graphs=642, notes=(_SAME,)),
    "molbace": _set("molbace", table="bace", graphs=1513, notes=(_SAME,)),
    "molbbbp": _set("molbbbp", table="bbbp", graphs=2039),
    "molhiv": _set("molhiv", table="hiv", graphs=41127, notes=(_HIV,)),
    "molpcba": _facts(
        "molpcba",
        "PCBA",
        activities("active in a PubChem assay", *(f"pcba-{task}" for task in range(128))),
        metric="ap",
        graphs=437929,
        notes=("its 128 assays are called by their column, from pcba-0",),
    ),
    "mollipo": _set("mollipo", table="lipophilicity", graphs=4200),
    "molclintox": _set("molclintox", table="clintox", graphs=1477),
    "molsider": _set("molsider", table="sider", graphs=1427),
    "moltox21": _set("moltox21", table="tox21", graphs=7831),
    "moltoxcast": _set("moltoxcast", table="toxcast", graphs=8576),
    "molmuv": _set("molmuv", table="muv", graphs=93087),
}
