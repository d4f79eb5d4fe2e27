"""TUDataset's layout: graphs as a plain reader reads them, folds, damaged files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from random_graphs import same_arrays

from zoo.datasets import tudataset
from zoo.errors import DataError, RequestError, UnavailableError

SIZE = 50


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOO_CACHE", str(folder))
        patch.setenv("ZOO_OFFLINE", "1")
        patch.delenv("ZOO_DATA", raising=False)
        yield folder


def made_up(seed=0, size=SIZE):
    return tudataset.synthetic_folder(name="nci1", seed=seed, size=size)


def rows(folder: Path, kind: str) -> list[list[int]]:
    text = (folder / f"NCI1_{kind}.txt").read_text()
    return [[int(cell) for cell in line.split(",")] for line in text.splitlines()]


def test_a_made_up_set_is_read_as_a_plain_reader_reads_it():
    folder = made_up()
    store = tudataset.load(name="nci1", folder=folder)
    graph = [row[0] - 1 for row in rows(folder, "graph_indicator")]
    labels = [row[0] for row in rows(folder, "node_labels")]
    assert len(store) == SIZE
    assert store.graph["y"].dtype == np.float32
    assert store.graph["y"].tolist() == [[float(r[0])] for r in rows(folder, "graph_labels")]
    assert store.graph["row"].tolist() == list(range(SIZE))
    assert store.node["atom"].dtype == np.uint8
    kinds = sorted(set(labels))
    assert store.node["atom"][:, 0].tolist() == [kinds.index(label) for label in labels]
    first = {g: graph.index(g) for g in range(SIZE)}
    expected: list[set[tuple[int, int]]] = [set() for _ in range(SIZE)]
    for i, j in rows(folder, "A"):
        g = graph[i - 1]
        expected[g].add((i - 1 - first[g], j - 1 - first[g]))
    for g in range(SIZE):
        assert store.nodes_per_graph()[g] == graph.count(g)
        edges = slice(store.edge_ptr[g], store.edge_ptr[g + 1])
        pairs = list(
            zip(store.edge["src"][edges].tolist(), store.edge["dst"][edges].tolist(), strict=True)
        )
        assert set(pairs) == expected[g] and len(pairs) == len(expected[g])
    assert "bond" not in store.edge
    assert 0.4 < store.graph["y"].mean() < 0.6


def test_labels_need_not_be_numbered_from_0(tmp_path):
    folder = shutil.copytree(made_up(), tmp_path / "data")
    for kind, change in (("graph_labels", lambda v: 2 * v - 1), ("node_labels", lambda v: v + 7)):
        text = "".join(f"{change(row[0])}\n" for row in rows(folder, kind))
        (folder / f"NCI1_{kind}.txt").write_text(text)
    assert same_arrays(
        tudataset.load(name="nci1", folder=folder), tudataset.load(name="nci1", folder=made_up())
    )


def test_random_splits():
    store = tudataset.load(name="nci1", folder=made_up())
    parts, digest = tudataset.split(name="nci1", store=store, seed=3)
    assert [len(part) for part in parts.values()] == [40, 5, 5]
    assert np.sort(np.concatenate(list(parts.values()))).tolist() == list(range(SIZE))
    assert digest == tudataset.split(name="nci1", store=store, protocol="random", seed=3)[1]
    assert digest != tudataset.split(name="nci1", store=store, seed=4)[1]


def test_folds_are_disjoint_stratified_and_seeded():
    store = tudataset.load(name="nci1", folder=made_up(size=104))
    y = store.graph["y"][:, 0].copy()
    y[:73] = 0
    y[73:] = 1
    store = replace(store, graph={**store.graph, "y": y[:, None]})
    tested, digests = [], set()
    for fold in range(10):
        protocol = f"kfold-{fold}"
        parts, digest = tudataset.split(name="nci1", store=store, protocol=protocol, seed=1)
        assert np.sort(np.concatenate(list(parts.values()))).tolist() == list(range(104))
        assert 10 <= len(parts["test"]) <= 11 and 10 <= len(parts["valid"]) <= 11
        assert 3 <= y[parts["test"]].sum() <= 4  # of 31
        tested += parts["test"].tolist()
        following, _ = tudataset.split(
            name="nci1", store=store, protocol=f"kfold-{(fold + 1) % 10}", seed=1
        )
        assert following["test"].tolist() == parts["valid"].tolist()
        digests.add(digest)
    assert sorted(tested) == list(range(104)) and len(digests) == 10
    other = tudataset.split(name="nci1", store=store, protocol="kfold-0", seed=2)[1]
    assert other not in digests


@pytest.mark.parametrize("protocol", ["kfold-10", "kfold-x", "scaffold", ""])
def test_another_protocol_is_named(protocol):
    store = tudataset.load(name="nci1", folder=made_up())
    with pytest.raises(RequestError, match=r"unknown split of tudataset\.nci1"):
        tudataset.split(name="nci1", store=store, protocol=protocol)


def test_requests_that_cannot_be_met(tmp_path):
    with pytest.raises(RequestError, match="unknown set of tudataset 'nci2'; nearest: 'nci1'"):
        tudataset.load(name="nci2")
    store = tudataset.load(name="nci1", folder=made_up(size=9))
    with pytest.raises(RequestError, match="9 graphs can't be split into 10 folds"):
        tudataset.split(name="nci1", store=store, protocol="kfold-0")
    with pytest.raises(RequestError, match=r"holds no NCI1_A\.txt"):
        tudataset.load(name="nci1", folder=tmp_path)
    with pytest.raises(UnavailableError, match=r"unzip https://.*/NCI1\.zip\n.*ZOO_DATA"):
        tudataset.load(name="nci1")
    with pytest.raises(RequestError, match="at least 2 graphs, not 1"):
        made_up(size=1)


def line(number, text):
    def change(lines):
        lines[number - 1] = text
        return lines

    return change


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("A", line(3, "1, x"), r"NCI1_A\.txt, line 3: \['1', 'x'\] are not whole numbers"),
        ("A", line(3, "1"), r"NCI1_A\.txt, line 3: .* are not whole numbers"),
        ("A", line(3, "1, 2, 3"), r"NCI1_A\.txt is damaged: .*line 3"),
        ("A", line(3, "0, 2"), r"NCI1_A\.txt, line 3: \[0, 2\] is not within 1 to"),
        ("A", line(3, "1, 99999"), r"NCI1_A\.txt, line 3: \[1, 99999\] is not within 1 to"),
        ("A", line(3, "1, 200"), r"NCI1_A\.txt, line 3: nodes 1 and 200 are of different"),
        ("A", lambda lines: lines[1:], r"NCI1_A\.txt, line 1: 2, 1 is there, and 1, 2 isn't"),
        ("graph_indicator", line(2, "3"), r"indicator\.txt, line 2: graph 3 after 1, of 50"),
        ("graph_indicator", line(1, "2"), r"indicator\.txt, line 1: graph 2 after nothing, of 50"),
        (
            "graph_indicator",
            lambda x: [*x, "51"],
            r"indicator.txt, line \d+: graph 51 after 50, of",
        ),
        ("graph_labels", lambda x: [*x, "1"], r"indicator\.txt ends with graph 50, and .*51"),
        ("graph_labels", line(4, "7"), r"labels\.txt, line 4: more than 2 different labels"),
        ("graph_labels", line(4, "1.5"), r"graph_labels\.txt, line 4: \['1\.5'\] are not whole"),
        ("graph_labels", lambda lines: [], r"indicator\.txt, line 1: graph 1 after nothing"),
        (
            "node_labels",
            lambda lines: lines[1:],
            r"node_labels\.txt has [\d,]+ lines, NCI1_graph_ind",
        ),
        ("node_labels", lambda x: list(map(str, range(len(x)))), r"line 38: more than 37 differ"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, kind, change, message):
    folder = shutil.copytree(made_up(), tmp_path / "data")
    path = folder / f"NCI1_{kind}.txt"
    lines = path.read_text().splitlines()
    if kind == "A":
        lines = ["1, 2", "2, 1", *[text for text in lines if text not in ("1, 2", "2, 1")]]
    path.write_text("".join(f"{text}\n" for text in change(lines)))
    with pytest.raises(DataError, match=message):
        tudataset.load(name="nci1", folder=folder)


def test_the_published_set_is_found_and_counted(tmp_path, monkeypatch):
    """A made-up set in its place."""
    shutil.copytree(made_up(), tmp_path / "some" / "NCI1")
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"NCI1: 50 graphs, where 4,110 are published"):
        tudataset.load(name="nci1")
    facts = tudataset.SETS["nci1"]
    counts = facts.counts | {"graphs": SIZE}
    monkeypatch.setitem(tudataset.SETS, "nci1", replace(facts, counts=counts))
    with pytest.raises(DataError, match=r"NCI1: \d kinds of nodes, where 37 are published"):
        tudataset.load(name="nci1")
    kinds = {"kinds of nodes": len(set(map(tuple, rows(made_up(), "node_labels"))))}
    monkeypatch.setitem(tudataset.SETS, "nci1", replace(facts, counts=counts | kinds))
    store = tudataset.load(name="nci1")
    assert same_arrays(store, tudataset.load(name="nci1", folder=tmp_path / "some"))


def test_facts_load_nothing_heavy():
    code = (
        "import sys, zoo.datasets.tudataset\n"
        "print(sorted({'torch', 'rdkit', 'pandas', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
