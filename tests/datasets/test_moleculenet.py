"""MoleculeNet: every set's layout, what RDKit refuses, splits of rows, damaged tables."""

from __future__ import annotations

import csv
import gzip
import hashlib
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from random_graphs import same_arrays

from zoo.chem.featurise import graphs_of
from zoo.datasets import moleculenet, molecules
from zoo.datasets.molecules_synthetic import REFUSED, molecule_smiles
from zoo.datasets.splits import split_digest
from zoo.errors import DataError, RequestError, UnavailableError

SIZE = 40
NAMES = list(moleculenet.SETS)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOO_CACHE", str(folder))
        patch.setenv("ZOO_OFFLINE", "1")
        yield folder


def table_of(folder: Path) -> list[dict[str, str]]:
    (path,) = folder.iterdir()
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def labels_of(name: str, row: dict[str, str]) -> list[float]:
    columns = {"esol": "measured log solubility in mols per litre", "freesolv": "expt"}
    columns["lipophilicity"] = "exp"
    cells = [row[columns.get(name, p.name)] for p in moleculenet.SETS[name].properties]
    return [float(cell) if cell else np.nan for cell in cells]


@pytest.mark.parametrize("name", NAMES)
def test_a_made_up_set_is_read_as_a_plain_reader_reads_it(name):
    folder = moleculenet.synthetic_folder(name=name, seed=1, size=SIZE)
    store = moleculenet.load(name=name, folder=folder)
    rows = table_of(folder)
    refused = [number for number, row in enumerate(rows) if row["smiles"] == REFUSED]
    assert bool(refused) == bool(moleculenet.SETS[name].counts["refused"])
    kept = [number for number in range(len(rows)) if number not in refused]
    assert store.graph["row"].tolist() == kept and len(store) == SIZE
    texts = [rows[number]["smiles"] for number in kept]
    assert moleculenet.smiles(name=name, store=store, folder=folder) == texts
    y = np.array([labels_of(name, rows[number]) for number in kept], np.float32)
    assert store.graph["y"].dtype == np.float32
    assert np.array_equal(store.graph["y"], y, equal_nan=True)
    graphs = graphs_of(texts)
    assert np.array_equal(store.node["atom"], graphs.atom)
    assert np.array_equal(store.nodes_per_graph(), graphs.nodes)
    assert np.array_equal(store.edges_per_graph(cutoff=None), graphs.edges)
    for attribute in ("src", "dst", "bond"):
        assert np.array_equal(store.edge[attribute], getattr(graphs, attribute))
    same = [[a == b for a in graphs.scaffolds] for b in graphs.scaffolds]
    groups = store.graph["scaffold"]
    assert (groups[:, None] == groups).tolist() == same
    known = np.isfinite(y)
    assert known.all() == (not moleculenet.SETS[name].counts["unknown"])
    if moleculenet.SETS[name].properties[0].kind == "binary":
        assert set(y[known]) == {0, 1}
        for task in range(y.shape[1]):
            assert {0, 1} <= set(y[:, task])


def test_made_up_molecules_are_real_ones_and_depend_on_their_number_alone():
    texts = [molecule_smiles(seed=0, number=number) for number in range(300)]
    graphs = graphs_of(texts)
    assert not any(graphs.reasons)
    assert len(set(texts)) > 290 and len(set(graphs.scaffolds)) > 60 and "" in graphs.scaffolds
    assert molecule_smiles(seed=0, number=299) == texts[299]
    assert molecule_smiles(seed=1, number=299) != texts[299]


def test_labels_follow_from_the_structure():
    """A line through counts of atoms explains most of them: a model has something to learn."""
    folder = moleculenet.synthetic_folder(name="esol", seed=0, size=400)
    store = moleculenet.load(name="esol", folder=folder)
    molecule = np.repeat(np.arange(len(store)), store.nodes_per_graph())
    counts = np.zeros((len(store), 120))
    np.add.at(counts, (molecule, store.node["atom"][:, 0].astype(int)), 1)
    counts[:, 119] = 1
    y = store.graph["y"][:, 0].astype(float)
    left = y - counts @ np.linalg.lstsq(counts, y, rcond=None)[0]
    assert left.var() < 0.6 * y.var()


def test_the_same_content_is_made_once_wherever_it_lies(tmp_path, monkeypatch):
    folder = moleculenet.synthetic_folder(name="bbbp", seed=1, size=SIZE)
    store = moleculenet.load(name="bbbp", folder=folder)
    (path,) = folder.iterdir()
    (tmp_path / "BBBP.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    monkeypatch.setattr(moleculenet, "read_table", None)
    again = moleculenet.load(name="bbbp", folder=tmp_path)
    assert again.digest == store.digest and same_arrays(again, store)
    (tmp_path / "BBBP.csv.gz").write_bytes(gzip.compress(path.read_bytes() + b"\n"))
    with pytest.raises(TypeError):
        moleculenet.load(name="bbbp", folder=tmp_path)


def row_parts(store, parts):
    return {part: store.graph["row"][index].tolist() for part, index in parts.items()}


def test_splits_are_of_all_rows_and_say_where_they_are_in_the_store():
    folder = moleculenet.synthetic_folder(name="bbbp", seed=2, size=200)
    store = moleculenet.load(name="bbbp", folder=folder)
    rows = table_of(folder)
    (refused,) = [n for n, row in enumerate(rows) if row["smiles"] == REFUSED]
    parts, digest = moleculenet.split(name="bbbp", store=store, seed=5)
    assert digest == moleculenet.split(name="bbbp", store=store, seed=6)[1]
    for index in parts.values():
        assert index.dtype == np.int64 and (np.diff(index) > 0).all()
    assert np.sort(np.concatenate(list(parts.values()))).tolist() == list(range(200))
    groups = [set(store.graph["scaffold"][index].tolist()) for index in parts.values()]
    assert not (groups[0] & groups[1] or groups[0] & groups[2] or groups[1] & groups[2])
    # 201 rows, the refused one among them: 160.8 fit in training, 180.9 with validation.
    found = row_parts(store, parts)
    (part,) = [p for p in found if split_digest(with_row(found, p, refused)) == digest]
    sizes = {p: len(index) for p, index in with_row(found, part, refused).items()}
    assert sizes == {"train": 160, "valid": 20, "test": 21}
    drawn, other = moleculenet.split(name="bbbp", store=store, protocol="random", seed=5)
    assert other != digest
    assert other != moleculenet.split(name="bbbp", store=store, protocol="random", seed=6)[1]
    assert sorted(len(index) for index in drawn.values()) in ([19, 20, 161], [20, 20, 160])


def with_row(found, part, row):
    whole = {p: np.array(index, np.int64) for p, index in found.items()}
    whole[part] = np.sort(np.append(whole[part], row))
    return whole


def test_a_split_stays_when_other_rows_are_refused(monkeypatch):
    """Another RDKit may refuse others: nothing else moves."""
    folder = moleculenet.synthetic_folder(name="esol", seed=2, size=200)
    store = moleculenet.load(name="esol", folder=folder)
    last = int(store.graph["row"][-1])
    alone = [
        number
        for number, group in enumerate(store.graph["scaffold"])
        if (store.graph["scaffold"] == group).sum() == 1 and number not in (0, last)
    ]
    left = np.setdiff1d(np.arange(len(store)), alone[:3])
    rows = store.graph["row"][left]
    fewer = replace(store, graph={n: values[left] for n, values in store.graph.items()})
    for protocol in ("scaffold", "random"):
        parts, digest = moleculenet.split(name="esol", store=store, protocol=protocol)
        others, same = moleculenet.split(name="esol", store=fewer, protocol=protocol)
        assert same == digest
        for part, index in others.items():
            assert index.tolist() == np.flatnonzero(np.isin(rows, parts[part])).tolist()


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(RequestError, match=r"unknown set of moleculenet 'esoll'; nearest: 'esol'"):
        moleculenet.load(name="esoll")
    store = moleculenet.load(
        name="esol", folder=moleculenet.synthetic_folder(name="esol", seed=1, size=SIZE)
    )
    message = r"unknown split of moleculenet.esol 'scafold'; nearest: 'scaffold'"
    with pytest.raises(RequestError, match=message):
        moleculenet.split(name="esol", store=store, protocol="scafold")
    with pytest.raises(RequestError, match="at least 2 molecules, not 1"):
        moleculenet.synthetic_folder(name="esol", seed=1, size=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: a column 'smiles' is expected, once"),
        ("num,name,p_np\n1,a,1\n", "line 1: a column 'smiles' is expected, once\nit has num, n"),
        ("num,p_np,p_np,smiles\n", "line 1: a column 'p_np' is expected, once"),
        ("num,name,p_np,smiles\n", "holds no molecules"),
        ("num,name,p_np,smiles\n1,a,1,CC\n2,b,yes,CC\n", "line 3: p_np is neither 0 nor 1: 'yes'"),
        ("num,name,p_np,smiles\n1,a,1,CC\n2,b,2,CC\n", "line 3: p_np is neither 0 nor 1: '2'"),
        ("num,name,p_np,smiles\n1,a,inf,CC\n", "line 2: p_np is neither 0 nor 1: 'inf'"),
        ("num,name,p_np,smiles\n1,a,1\n", "line 2: 3 cells, the header has 4"),
        ("num,name,p_np,smiles\n1,a,1,CC,1\n", "line 2: 5 cells, the header has 4"),
        ('num,name,p_np,smiles\n1,a,1,CC\n2,"b,0,CC\n', "line 3: "),
        ("num,name,p_np,smiles\n1,a,1,C1CC\n", "no molecule can be read; of the first: RDKit"),
        (b"num,name,p_np,smiles\n1,\xff,1,CC\n", "is damaged: 'utf-8'"),
    ],
)
def test_a_damaged_table_says_where(tmp_path, text, message):
    path = tmp_path / "BBBP.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError) as caught:
        moleculenet.load(name="bbbp", folder=tmp_path)
    assert message in str(caught.value) and str(path) in str(caught.value)


def test_labels_of_a_regression_are_finite_numbers(tmp_path):
    (tmp_path / "FreeSolv_SAMPL.csv").write_text("iupac,smiles,expt,calc\na,C,1.5,\nb,C,one,\n")
    with pytest.raises(DataError, match=r"line 3: expt is not a number: 'one'"):
        moleculenet.load(name="freesolv", folder=tmp_path)


def test_blank_lines_and_empty_cells(tmp_path):
    text = "iupac,smiles,expt,calc\r\na,C,1.5,\r\n\r\nb,CC,,\r\n\r\n"
    (tmp_path / "FreeSolv_SAMPL.csv").write_text(text, newline="")
    store = moleculenet.load(name="freesolv", folder=tmp_path)
    assert store.graph["y"][0] == 1.5 and np.isnan(store.graph["y"][1])


def test_a_zip_that_is_cut_short(tmp_path):
    whole = gzip.compress(b"num,name,p_np,smiles\n" + b"1,a,1,CC\n" * 100)
    (tmp_path / "BBBP.csv.gz").write_bytes(whole[:-12])
    with pytest.raises(DataError, match=r"BBBP\.csv\.gz is damaged"):
        moleculenet.load(name="bbbp", folder=tmp_path)
    with pytest.raises(RequestError, match=r"holds no HIV\.csv, gzipped or not"):
        moleculenet.load(name="hiv", folder=tmp_path)


# The published tables: a made-up one stands in for them here.


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A made-up BBBP as the published one, of a content of its own so that it isn't made yet."""
    folder = tmp_path / "data"
    seed = len(str(tmp_path)) + hash(str(tmp_path)) % 10**6
    moleculenet.synthesize(name="bbbp", path=folder, seed=seed, size=SIZE)
    content = (folder / "BBBP.csv").read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()

    def declare(**changes):
        facts = moleculenet.SETS["bbbp"]
        counts = {"rows": SIZE + 1, "refused": 1, "unknown": 0} | changes
        source = replace(facts.sources[0], sha256=sha256, mirrors=())
        made = replace(facts, sources=(source,), counts=counts, splits={})
        monkeypatch.setitem(moleculenet.SETS, "bbbp", made)

    declare()
    monkeypatch.setenv("ZOO_DATA", str(folder))
    return declare


def test_the_published_table_is_counted(published):
    published(rows=SIZE)
    with pytest.raises(DataError, match=r"BBBP\.csv: 41 rows, moleculenet\.bbbp has 40"):
        moleculenet.load(name="bbbp")
    published(unknown=3)
    with pytest.raises(DataError, match=r"BBBP\.csv: 0 unknown, moleculenet\.bbbp has 3"):
        moleculenet.load(name="bbbp")
    published(refused=0)
    with pytest.warns(UserWarning, match="refuses 1 rows of moleculenet.bbbp, where 0 were"):
        store = moleculenet.load(name="bbbp")
    assert len(store) == SIZE
    assert len(moleculenet.smiles(name="bbbp", store=store)) == SIZE


def test_the_published_split_is_held_to_its_hash(published, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = moleculenet.load(name="bbbp")
    _, digest = moleculenet.split(name="bbbp", store=store, protocol="random", seed=3)
    splits = {"random-3": digest}
    monkeypatch.setitem(moleculenet.SETS, "bbbp", replace(moleculenet.SETS["bbbp"], splits=splits))
    assert moleculenet.split(name="bbbp", store=store, protocol="random", seed=3)[1] == digest
    splits["random-3"] = "0" * 64
    with pytest.raises(
        DataError, match=f"random split of moleculenet.bbbp came out as {digest[:12]}"
    ):
        moleculenet.split(name="bbbp", store=store, protocol="random", seed=3)
    folder = moleculenet.synthetic_folder(name="bbbp", seed=1, size=SIZE)
    other = moleculenet.load(name="bbbp", folder=folder)
    moleculenet.split(name="bbbp", store=other, protocol="random", seed=3)  # has no published one


def test_no_table_and_no_network(published, monkeypatch):
    monkeypatch.delenv("ZOO_DATA")
    with pytest.raises(UnavailableError, match="MoleculeNet's table: .*BBBP.csv is not there"):
        moleculenet.load(name="bbbp")


def test_facts_are_whole():
    for name, facts in moleculenet.SETS.items():
        assert facts.name == f"moleculenet.{name}" and facts.licence == "MIT"
        names = [p.name for p in facts.properties]
        assert len(set(names)) == len(names) and all(p.unit for p in facts.properties)
        assert len({p.kind for p in facts.properties}) == 1
        assert set(facts.splits) == {"scaffold", "random-0", "random-1", "random-2"}
        counts = facts.counts
        assert counts["molecules"] == counts["rows"] - counts["refused"]
        assert all(
            mirror.endswith(facts.sources[0].filename) for mirror in facts.sources[0].mirrors
        )
    assert len(moleculenet.SETS["toxcast"].properties) == 617
    assert len(moleculenet.SETS["muv"].properties) == 17


def test_facts_load_nothing_heavy():
    code = (
        "import sys, zoo.datasets.moleculenet as m; m.SETS['esol']\n"
        "print(sorted({'torch', 'rdkit', 'pandas', 'numba', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# The real tables.


def real(name: str, monkeypatch):
    if not os.environ.get("ZOO_DATA"):
        pytest.skip("ZOO_DATA names no data")
    try:
        return moleculenet.load(name=name)
    except UnavailableError as error:
        pytest.skip(str(error).split("\n")[0])


@pytest.mark.data
@pytest.mark.parametrize("name", ["esol", "freesolv", "bbbp", "bace", "clintox", "sider"])
def test_the_published_sets_are_as_declared(name, monkeypatch):
    """Counts and hashes of the splits are checked on the way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = real(name, monkeypatch)
    facts = moleculenet.SETS[name]
    assert len(store) == facts.counts["molecules"]
    for protocol, seed in (("scaffold", 0), ("random", 0), ("random", 1), ("random", 2)):
        parts, _ = moleculenet.split(name=name, store=store, protocol=protocol, seed=seed)
        assert sum(map(len, parts.values())) == len(store)
        assert abs(len(parts["train"]) - 0.8 * len(store)) < 0.01 * len(store)
    texts = moleculenet.smiles(name=name, store=store)
    assert graphs_of(texts[:3]).nodes.tolist() == store.nodes_per_graph()[:3].tolist()


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["lipophilicity", "tox21", "toxcast", "muv", "hiv"])
def test_the_larger_published_sets_are_as_declared(name, monkeypatch):
    test_the_published_sets_are_as_declared(name, monkeypatch)


@pytest.mark.data
@pytest.mark.slow
def test_the_scaffold_split_of_hiv_is_molhivs(monkeypatch):
    """The derived split agrees with OGB's loader label by label, says where it comes from."""
    found = [
        path
        for root in os.environ.get("ZOO_DATA", "").split(os.pathsep)
        if root
        for path in Path(root).rglob("derived-scaffold-split/train.csv.gz")
    ]
    if not found:
        pytest.skip("the split of ogbg-molhiv is not in ZOO_DATA")
    store = real("hiv", monkeypatch)
    parts, digest = moleculenet.split(name="hiv", store=store)
    derived = {}
    for part in parts:
        with gzip.open(found[0].with_name(f"{part}.csv.gz"), "rt") as file:
            derived[part] = np.array([int(line) for line in file if line.strip()], np.int64)
        rows = store.graph["row"][parts[part]]
        assert rows.tolist() == [r for r in derived[part].tolist() if r in set(rows.tolist())]
    assert {part: len(rows) for part, rows in derived.items()} == {
        "train": 32901,
        "valid": 4113,
        "test": 4113,
    }
    assert split_digest(derived) == digest == moleculenet.SETS["hiv"].splits["scaffold"]


def test_a_bad_protocol_hash_names_both():
    with pytest.raises(DataError, match=r"scaffold split of x came out as aaaaaaaaaaaa, not bbb"):
        molecules.check_split(
            digest="a" * 64, published={"scaffold": "b" * 64}, protocol="scaffold", seed=4, name="x"
        )
