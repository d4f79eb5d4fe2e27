"""OGB's sets: the csv layout, official and derived sets, splits, damaged files."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from random_graphs import same_arrays

from zoo.chem.featurise import graphs_of
from zoo.datasets import moleculenet, ogb, ogb_facts, ogb_raw
from zoo.errors import DataError, RequestError, UnavailableError

SIZE = 60


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOO_CACHE", str(folder))
        patch.setenv("ZOO_OFFLINE", "1")
        yield folder


@pytest.fixture
def no_data(monkeypatch):
    monkeypatch.delenv("ZOO_DATA", raising=False)


def made_up(name="molhiv", seed=0):
    return ogb.synthetic_folder(name=name, seed=seed, size=SIZE)


def cells(path: Path) -> list[list[str]]:
    return [line.split(",") for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


@pytest.mark.parametrize("name", list(ogb.SETS))
def test_a_made_up_set_is_read_as_a_plain_reader_reads_it(name):
    folder = made_up(name)
    store = ogb.load(name=name, folder=folder)
    texts = ogb.smiles(name=name, store=store, folder=folder)
    graphs = graphs_of(texts)
    assert len(store) == SIZE == len(texts) and not any(graphs.reasons)
    assert np.array_equal(store.node["atom"], graphs.atom)
    assert np.array_equal(store.nodes_per_graph(), graphs.nodes)
    for attribute in ("src", "dst", "bond"):
        assert np.array_equal(store.edge[attribute], getattr(graphs, attribute))
    labels = cells(folder / "raw" / "graph-label.csv.gz")
    y = np.array([[float(cell) if cell else np.nan for cell in row] for row in labels], np.float32)
    assert np.array_equal(store.graph["y"], y, equal_nan=True)
    assert y.shape[1] == len(ogb.SETS[name].properties)
    assert np.isnan(y).any() == (name in ("moltox21", "moltoxcast", "molmuv", "molpcba"))
    parts, _ = ogb.split(name=name, store=store)
    for part, rows in parts.items():
        written = cells(folder / "split" / "scaffold" / f"{part}.csv.gz")
        assert rows.tolist() == [int(row[0]) for row in written]
    scaffolds = [{graphs.scaffolds[row] for row in rows} for rows in parts.values()]
    assert not scaffolds[0] & scaffolds[1] and not scaffolds[1] & scaffolds[2]
    assert sum(map(len, parts.values())) == SIZE


def test_splits(no_data):
    store = ogb.load(name="molhiv", folder=made_up())
    official, digest = ogb.split(name="molhiv", store=store, seed=1)
    assert digest == ogb.split(name="molhiv", store=store, seed=2)[1]
    drawn, other = ogb.split(name="molhiv", store=store, protocol="random", seed=1)
    assert [len(rows) for rows in drawn.values()] == [48, 6, 6] and other != digest
    assert other != ogb.split(name="molhiv", store=store, protocol="random", seed=2)[1]
    assert drawn["train"].tolist() != official["train"].tolist()
    with pytest.raises(RequestError, match=r"unknown split of ogb\.molhiv 'scafold'; nearest"):
        ogb.split(name="molhiv", store=store, protocol="scafold")


def test_labels_are_ordered_by_the_mappings_names(tmp_path):
    first = made_up("moltox21")
    store = ogb.load(name="moltox21", folder=first)
    folder = shutil.copytree(first, tmp_path / "tox21")
    for file in ("mapping/mol.csv.gz", "raw/graph-label.csv.gz"):
        rows = [[row[1], row[0], *row[2:]] for row in cells(folder / file)]
        write(folder / file, rows)
    again = ogb.load(name="moltox21", folder=folder)
    assert np.array_equal(again.graph["y"], store.graph["y"], equal_nan=True)
    header, *rows = cells(folder / "mapping/mol.csv.gz")
    write(folder / "mapping/mol.csv.gz", [["NR-XX", *header[1:]], *rows])
    with pytest.warns(UserWarning, match=r"calls the labels otherwise \(NR-AR-LBD, NR-XX\)"):
        other = ogb.load(name="moltox21", folder=folder)
    swapped = [1, 0, *range(2, 12)]
    assert np.array_equal(other.graph["y"], store.graph["y"][:, swapped], equal_nan=True)


def write(path: Path, rows: list[list[str]]) -> None:
    text = "".join(",".join(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def without_last(rows):
    return rows[:-1]


def put(row, column, value):
    def change(rows):
        rows[row][column] = value
        return rows

    return change


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("raw/num-node-list", without_last, r"num-edge-list.csv.gz has 60 rows where 59 should be"),
        ("raw/num-edge-list", without_last, r"num-edge-list.csv.gz has 59 rows where 60 should be"),
        ("raw/node-feat", without_last, r"node-feat.csv.gz has [\d,]+ rows where [\d,]+ should be"),
        ("raw/edge", without_last, r"raw/edge.csv.gz has [\d,]+ rows where [\d,]+ should be"),
        ("raw/edge-feat", without_last, r"edge-feat.csv.gz has [\d,]+ rows where"),
        ("raw/graph-label", without_last, r"graph-label.csv.gz has 59 rows where 60 should be"),
        ("raw/node-feat", put(4, 0, "119"), r"node-feat.csv.gz, line 5: \[119, .* is not within 0"),
        ("raw/node-feat", put(4, 8, "-1"), r"node-feat.csv.gz, line 5: .* is not within 0"),
        ("raw/node-feat", put(4, 3, "x"), r"node-feat.csv.gz, line 5: .*'x'.* are not whole num"),
        ("raw/node-feat", put(6, 3, ""), r"node-feat.csv.gz, line 7: .* are not whole numbers"),
        ("raw/node-feat", put(6, 3, "1,1"), r"node-feat.csv.gz is damaged: .*line 7"),
        ("raw/edge-feat", put(2, 0, "5"), r"edge-feat.csv.gz, line 3: \[5, "),
        ("raw/edge", put(0, 0, "99"), r"raw/edge.csv.gz: graph 0 has an edge from node"),
        ("raw/graph-label", put(3, 0, "yes"), r"graph-label.csv.gz is damaged: .*yes"),
        (
            "split/scaffold/test",
            put(0, 0, "60"),
            r"test.csv.gz holds a graph twice, or one that is",
        ),
        ("split/scaffold/test", without_last, r"split/scaffold: graph \d+ is in none of train, va"),
        (
            "split/scaffold/valid",
            lambda rows: [*rows, rows[0]],
            r"valid.csv.gz holds a graph twice",
        ),
        ("split/scaffold/test", lambda rows: [], r"split/scaffold: graph \d+ is in none of"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, file, change, message):
    folder = shutil.copytree(made_up(), tmp_path / "hiv")
    path = folder / f"{file}.csv.gz"
    write(path, change(cells(path)))
    with pytest.raises(DataError, match=message):
        ogb.load(name="molhiv", folder=folder)


def test_a_graph_in_two_parts_is_seen(tmp_path):
    folder = shutil.copytree(made_up(), tmp_path / "hiv")
    train, test = (folder / f"split/scaffold/{part}.csv.gz" for part in ("train", "test"))
    write(test, [*cells(test), cells(train)[0]])
    with pytest.raises(DataError, match=r"test\.csv\.gz holds a graph twice"):
        ogb.load(name="molhiv", folder=folder)


def test_files_that_are_cut_short_or_missing(tmp_path):
    folder = shutil.copytree(made_up(), tmp_path / "hiv")
    path = folder / "raw" / "edge.csv.gz"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"edge\.csv\.gz is damaged"):
        ogb.load(name="molhiv", folder=folder)
    path.unlink()
    with pytest.raises(RequestError, match=r"OGB's layout: raw/edge\.csv\.gz is missing"):
        ogb.load(name="molhiv", folder=folder)


@pytest.mark.parametrize("folder_name", ["ogbg_molhiv", "hiv"])
def test_official_files_are_found_and_counted(tmp_path, monkeypatch, folder_name):
    """A made-up set in the place of the official one, of which no sha256 is known."""
    root = shutil.copytree(made_up(seed=len(folder_name)), tmp_path / "deep" / folder_name)
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"hiv: 60 graphs, where 41,127 are published"):
        ogb.load(name="molhiv")
    sizes = {part: len(cells(root / f"split/scaffold/{part}.csv.gz")) for part in ogb_raw.PARTS}
    facts = replace(ogb.SETS["molhiv"], counts={"graphs": SIZE, **sizes})
    monkeypatch.setitem(ogb.SETS, "molhiv", facts)
    with pytest.raises(DataError, match=r"scaffold split of ogb\.molhiv came out as"):
        ogb.load(name="molhiv")
    monkeypatch.setitem(ogb.SETS, "molhiv", replace(facts, splits={}))
    store = ogb.load(name="molhiv")
    assert same_arrays(store, ogb.load(name="molhiv", folder=root))
    assert len(ogb.smiles(name="molhiv", store=store)) == SIZE


def test_known_files_are_held_to_their_sha256(tmp_path, monkeypatch):
    shutil.copytree(made_up("molesol"), tmp_path / "ogbg_molesol")
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"ogbg_molesol doesn't hold the official files of ogb\.mo"):
        ogb.load(name="molesol")


def test_what_is_not_there_says_where_to_get_it(no_data):
    with pytest.raises(UnavailableError, match=r"unzip pcba\.zip from\s+http://snap") as caught:
        ogb.load(name="molpcba")
    assert "ZOO_DATA" in str(caught.value) and len(str(caught.value).splitlines()) <= 3
    with pytest.raises(UnavailableError, match=r"lipophilicity\.zip"):
        ogb.load(name="mollipo")
    with pytest.raises(UnavailableError, match=r"HIV\.csv"):  # the table that it is made from
        ogb.load(name="molhiv")
    with pytest.raises(RequestError, match="unknown set of ogb 'molpcb'; nearest: 'molpcba'"):
        ogb.load(name="molpcb")


def test_without_official_files_it_is_moleculenets_table(no_data, monkeypatch):
    table = moleculenet.load(
        name="hiv", folder=moleculenet.synthetic_folder(name="hiv", seed=0, size=SIZE)
    )
    monkeypatch.setattr(moleculenet, "load", lambda *, name: {"hiv": table}[name])
    store = ogb.load(name="molhiv")
    assert store is table
    for protocol in ("scaffold", "random"):
        parts, digest = ogb.split(name="molhiv", store=store, protocol=protocol)
        same, other = moleculenet.split(name="hiv", store=table, protocol=protocol)
        assert digest == other and all(np.array_equal(parts[p], same[p]) for p in parts)
    monkeypatch.setattr(moleculenet, "smiles", lambda *, name, store: [name])
    assert ogb.smiles(name="molhiv", store=store) == ["hiv"]


def test_facts_are_whole_and_light():
    for name, facts in ogb.SETS.items():
        assert facts.name == f"ogb.{name}" and facts.metric in ("rmse", "roc_auc", "ap")
        sizes = [facts.counts.get(part, 0) for part in ("train", "valid", "test")]
        assert sum(sizes) in (0, facts.counts["graphs"])
        assert (name in ogb_facts.SPLIT_SIZES) == (sum(sizes) > 0)
        said = " ".join(facts.notes)
        assert ("were not at hand" in said) == (name not in ogb_facts.CONTENT)
        assert "made from MoleculeNet's" in said or name not in ogb_facts.MOLECULENET
    code = (
        "import sys, zoo.datasets.ogb\n"
        "print(sorted({'torch', 'rdkit', 'pandas', 'numba', 'ogb'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# The real files.


def real(name: str):
    if ogb_raw.find_root({f"ogbg_{name}"}) is None:
        pytest.skip(f"ogbg_{name} is not in ZOO_DATA")
    return ogb.load(name=name)


@pytest.mark.data
@pytest.mark.parametrize("name", list(ogb_facts.CONTENT))
def test_official_sets_are_as_declared(name):
    """Hash of the files, counts and the split's hash are checked on the way."""
    store = real(name)
    assert len(store) == ogb.SETS[name].counts["graphs"]
    for seed in (0, 1, 2):
        ogb.split(name=name, store=store, protocol="random", seed=seed)
    texts = ogb.smiles(name=name, store=store)
    some = graphs_of(texts[:20])
    assert np.array_equal(some.atom, store.node["atom"][: len(some.atom)])
    assert np.array_equal(some.bond, store.edge["bond"][: len(some.bond)])


@pytest.mark.data
@pytest.mark.parametrize("name", ["molesol", "molfreesolv", "molbace"])
def test_moleculenets_table_gives_the_official_set(name):
    store = real(name)
    try:
        table = moleculenet.load(name=ogb_facts.MOLECULENET[name])
    except UnavailableError as error:
        pytest.skip(str(error).split("\n")[0])
    assert np.array_equal(table.graph["row"], store.graph["row"])
    assert np.array_equal(table.node_ptr, store.node_ptr)
    assert np.array_equal(table.edge_ptr, store.edge_ptr)
    assert np.array_equal(table.node["atom"], store.node["atom"])
    for attribute in ("src", "dst", "bond"):
        assert np.array_equal(table.edge[attribute], store.edge[attribute])
    assert np.array_equal(table.graph["y"], store.graph["y"])
    parts, digest = ogb.split(name=name, store=table)
    official, same = ogb.split(name=name, store=store)
    assert digest == same and all(np.array_equal(parts[p], official[p]) for p in official)


@pytest.mark.data
def test_an_official_set_is_read_once(monkeypatch):
    real("molfreesolv")
    monkeypatch.setattr(ogb, "read_root", None)
    monkeypatch.delenv("ZOO_DATA")
    assert len(ogb.load(name="molfreesolv")) == 642
    assert not os.environ.get("ZOO_DATA")
