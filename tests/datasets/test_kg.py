"""Facts from files: every layout, what is found wrong in them, and edges in both directions."""

import gzip
import tarfile
import warnings

import numpy as np
import pytest

from zoo import hub
from zoo.datasets import kg
from zoo.datasets.kg_raw import read_archive, read_folder, read_triples
from zoo.errors import DataError, RequestError, UnavailableError


def write(folder, **parts):
    folder.mkdir(parents=True, exist_ok=True)
    for part, text in parts.items():
        (folder / f"{part}.txt").write_bytes(text.encode())
    return folder


PLAIN = {"train": "a\tr\tb\nb\ts\tc\n", "valid": "a\ts\tc\n", "test": "c\tr\ta\n"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("facts.tsv", "a\tr\tb\nb c\ts\ta\n"),
        ("facts.txt", "a\tr\tb\r\nb c\ts\ta\r\n\r\n"),
        ("facts.csv", 'a,r,b\n"b c",s,a\n'),
        ("facts.nt", "# made up\n<a> <r> <b> .\n<b c> <s> <a>.\n"),
        ("facts.txt", "\ufeffa\tr\tb\nb c\ts\ta"),
    ],
)
def test_layouts(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content.encode())
    assert read_triples(path) == [("a", "r", "b"), ("b c", "s", "a")]
    zipped = tmp_path / f"{name}.gz"
    zipped.write_bytes(gzip.compress(content.encode()))
    assert read_triples(zipped) == [("a", "r", "b"), ("b c", "s", "a")]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a\tr\tb\na\tr\n", "line 2: 2 columns"),
        (b"a\tr\tb\tc\n", "line 1: 4 columns"),
        (b"a\tr\t\n", "line 1: 2 columns|line 1: 3 columns"),
        (b"just words\n", "line 1: 1 columns"),
        (b"\n\n", "holds no facts"),
        (b"", "holds no facts"),
        (b"\xff\xfe\x00", "can't be read as text"),
    ],
)
def test_what_is_no_fact(tmp_path, content, words):
    path = tmp_path / "facts.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_triples(path)


def test_folders_and_archives(tmp_path):
    folder = write(tmp_path / "set", **PLAIN)
    found = read_folder(folder)
    assert found["test"] == [("c", "r", "a")]
    archive = tmp_path / "set.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, "set")
    assert read_archive(archive) == found
    (folder / "train.csv").write_text("a,r,b\n")
    with pytest.raises(DataError, match="several files of facts for train"):
        read_folder(folder)
    (folder / "train.csv").unlink()
    (folder / "valid.txt").unlink()
    with pytest.raises(DataError, match="no file of facts for valid"):
        read_folder(folder)
    archive.write_bytes(b"no archive")
    with pytest.raises(DataError, match="can't be read as an archive"):
        read_archive(archive)


def test_a_folder_is_a_set(tmp_path):
    found = kg.load(name="mine", folder=write(tmp_path, **PLAIN))
    assert found.relations == ("r", "s") and not found.inductive
    assert found.graph.entities == ("a", "b", "c")
    assert found.graph.facts.tolist() == [[0, 0, 1], [1, 1, 2]]
    assert found.asked["valid"].tolist() == [[0, 1, 2]]
    assert found.asked["test"].tolist() == [[2, 0, 0]]
    assert len(found.graph.known) == 4
    assert found.notes == ()


def test_another_graph_to_test_on(tmp_path):
    write(tmp_path, **PLAIN)
    write(tmp_path / "test_graph", train="x\ts\ty\n", valid="y\ts\tx\n", test="y\tr\tx\n")
    found = kg.load(name="mine", folder=tmp_path)
    assert found.inductive and found.test_graph.entities == ("x", "y")
    assert found.asked["test"].tolist() == [[1, 0, 0]]  # relations keep their numbers
    assert found.asked["valid"].tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("part", "text", "words"),
    [
        ("train", "a\tr\tb\na\tr\tb\n", "1 facts of train twice"),
        ("train", "a\tr\tb\nc\ts\tc\n", "1 facts of train have the same head and tail"),
        ("test", "a\tr\tb\n", "1 facts of test are in train too"),
        ("test", "a\ts\tc\n", "1 facts of test are in valid too"),
        ("test", "a\tnew\tc\nc\tr\ta\n", r"relations aren't in training \(new\)"),
    ],
)
def test_what_is_odd_is_said(tmp_path, part, text, words):
    folder = write(tmp_path, **{**PLAIN, part: text})
    with pytest.warns(UserWarning, match=words):
        kg.load(name="mine", folder=folder)


def test_line_ends_change_nothing(tmp_path):
    unix = kg.load(name="mine", folder=write(tmp_path / "unix", **PLAIN))
    windows = {part: text.replace("\n", "\r\n") for part, text in PLAIN.items()}
    other = kg.load(name="mine", folder=write(tmp_path / "windows", **windows))
    assert unix.graph.entities == other.graph.entities and unix.digest == other.digest


def test_edges_in_both_directions():
    found = kg.load(name="umls", folder=kg.synthetic_folder(name="umls", seed=3, size=60))
    graph, relations = found.graph, len(found.relations)
    made = kg.edges(graph, relations=relations)
    facts = {tuple(row) for row in graph.facts.tolist()}
    src, dst, kind = (made[name].tolist() for name in ("src", "dst", "edge_type"))
    forward = {(s, k, d) for s, k, d in zip(src, kind, dst, strict=True) if k < relations}
    back = {(d, k - relations, s) for s, k, d in zip(src, kind, dst, strict=True) if k >= relations}
    assert forward == back == facts
    ptr = made["dst_ptr"]
    assert ptr[0] == 0 and ptr[-1] == 2 * len(facts) == len(src)
    for node in range(len(graph.entities)):
        assert set(dst[ptr[node] : ptr[node + 1]]) <= {node}
    rows = graph.facts[made["fact"]]
    assert all(set(row[[0, 2]]) == {s, d} for row, s, d in zip(rows, src, dst, strict=True))


def test_queries_both_ways():
    facts = np.array([[0, 1, 2], [3, 0, 3]])
    assert kg.both_ways(facts, relations=2).tolist() == [[0, 1, 2], [3, 0, 3], [2, 3, 0], [3, 2, 3]]


@pytest.mark.parametrize("name", ["umls", "fb15k237_v1"])
def test_made_up_sets_are_read_like_real_ones(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = kg.load(name=name, folder=kg.synthetic_folder(name=name, seed=0, size=200))
    assert set(found.relations) == {"grandparent", "knows", "parent"}
    assert found.inductive == (name in kg.INDUCTIVE)
    if found.inductive:
        assert not set(found.graph.entities) & set(found.test_graph.entities)


def test_names_that_are_none(monkeypatch, tmp_path):
    with pytest.raises(RequestError, match="fb15k237_v1"):
        kg.load(name="fb15k237-v1")
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ZOO_OFFLINE", "1")
    with pytest.raises(UnavailableError, match="the facts"):
        kg.load(name="umls")


def test_files_are_told_apart_by_their_folders(monkeypatch, tmp_path):
    for version in ("v1", "v2"):
        write(tmp_path / version, train=f"a\tr\t{version}\n")
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    from zoo.files import sha256_file

    wanted = tmp_path / "v2" / "train.txt"
    assert hub.find_raw(filename="v2/train.txt", sha256=sha256_file(wanted)) == wanted
    assert hub.find_raw(filename="v3/train.txt", sha256=sha256_file(wanted)) is None
    with pytest.raises(DataError, match="not the file"):
        hub.find_raw(filename="v1/train.txt", sha256=sha256_file(wanted))


@pytest.mark.data
@pytest.mark.parametrize("name", sorted(kg.SETS))
def test_the_published_sets(name):
    try:
        found = kg.load(name=name)
    except UnavailableError as error:
        pytest.skip(str(error))
    assert found.digest == kg.load(name=name).digest
