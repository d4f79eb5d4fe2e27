"""The flat store: what goes in comes out, and nothing else is taken for it."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from random_graphs import random_store, same_arrays

from zoo.batching import store as stores
from zoo.batching.store import cached_store, make_store, open_store, write_store
from zoo.errors import DataError, UnavailableError


@pytest.fixture
def store():
    return random_store(np.random.default_rng(0), [3, 0, 5, 1])


def seen(folder):
    """Names in a folder but for locks."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_what_is_written_is_opened_and_mapped(store, tmp_path):
    written = write_store(folder=tmp_path / "deep" / "store", store=replace(store, digest="d"))
    opened = open_store(folder=tmp_path / "deep" / "store", digest="d")
    for found in (written, opened):
        assert same_arrays(found, store)
        assert found.digest == "d" and found.folder == tmp_path / "deep" / "store"
        assert isinstance(found.node["pos"].base, np.memmap)
        assert isinstance(found.node_ptr.base, np.memmap)
        assert len(found) == 4 and found.nodes_per_graph().tolist() == [3, 0, 5, 1]
    assert seen(tmp_path / "deep") == ["store"]


@pytest.mark.parametrize("sizes", [[], [0], [1]])
def test_stores_with_nothing_in_them(sizes, tmp_path):
    empty = make_store(
        node_ptr=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        node={"pos": np.zeros((sum(sizes), 3), np.float32)},
        graph={},
        edge={"src": np.zeros(0, np.int64), "dst": np.zeros(0, np.int64)},
        edge_ptr=np.zeros(len(sizes) + 1, np.int64),
    )
    assert same_arrays(write_store(folder=tmp_path / "s", store=empty), empty)


def test_a_store_that_is_replaced_stays_readable_to_who_has_it_open(store, tmp_path):
    first = write_store(folder=tmp_path / "s", store=store)
    other = random_store(np.random.default_rng(1), [2, 2])
    assert same_arrays(write_store(folder=tmp_path / "s", store=other), other)
    assert same_arrays(first, store)
    assert seen(tmp_path) == ["s"]


def test_another_format_or_digest_is_not_taken(store, tmp_path):
    folder = tmp_path / "s"
    write_store(folder=folder, store=store)
    with pytest.raises(DataError, match=f"{folder} was made from other inputs"):
        open_store(folder=folder, digest="other")
    facts = json.loads((folder / "store.json").read_text())
    (folder / "store.json").write_text(json.dumps({**facts, "format": 999}))
    with pytest.raises(DataError, match=f"{folder} is a store of format 999"):
        open_store(folder=folder)


def truncated(folder):
    path = folder / "node-pos.npy"
    path.write_bytes(path.read_bytes()[:-5])


def flipped(folder):
    path = folder / "node_ptr.npy"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def removed(folder):
    (folder / "graph-y.npy").unlink()


def emptied(folder):
    (folder / "node-z.npy").write_bytes(b"")


def no_facts(folder):
    (folder / "store.json").unlink()


def half_facts(folder):
    text = (folder / "store.json").read_text()
    (folder / "store.json").write_text(text[: len(text) // 2])


def other_facts(folder):
    (folder / "store.json").write_text("[1]")


@pytest.mark.parametrize(
    "damage", [truncated, flipped, removed, emptied, no_facts, half_facts, other_facts]
)
def test_a_damaged_store_is_refused_and_made_anew(store, tmp_path, damage):
    folder = tmp_path / "s"
    write_store(folder=folder, store=replace(store, digest="d"))
    damage(folder)
    with pytest.raises(DataError, match=str(folder)):
        open_store(folder=folder)
    assert same_arrays(cached_store(folder=folder, digest="d", make=lambda: store), store)
    assert same_arrays(open_store(folder=folder, digest="d"), store)


@pytest.mark.parametrize("damage", [truncated, removed, emptied])
def test_a_large_store_is_held_to_its_sizes(store, tmp_path, monkeypatch, damage):
    monkeypatch.setattr(stores, "VERIFIED_BYTES", 0)
    folder = tmp_path / "s"
    write_store(folder=folder, store=store)
    facts = json.loads((folder / "store.json").read_text())
    assert {file["sha256"] for file in facts["files"].values()} == {None}
    damage(folder)
    with pytest.raises(DataError, match=str(folder)):
        open_store(folder=folder)


def test_pointers_of_a_large_store_are_checked_when_opened(store, tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "VERIFIED_BYTES", 0)
    folder = tmp_path / "s"
    write_store(folder=folder, store=store)
    np.save(folder / "node_ptr.npy", np.array([0, 3, 2, 8, 9]))
    with pytest.raises(DataError, match="node_ptr falls at graph 1"):
        open_store(folder=folder)


def test_a_cached_store_is_made_once(store, tmp_path):
    made = []

    def make():
        made.append(1)
        return store

    folder = tmp_path / "s"
    for _ in range(3):
        assert same_arrays(cached_store(folder=folder, digest="d", make=make), store)
    assert len(made) == 1
    assert cached_store(folder=folder, digest="e", make=make).digest == "e"
    assert len(made) == 2


def test_threads_at_once_make_one(store, tmp_path):
    made = []
    start = threading.Barrier(6)

    def make():
        made.append(1)
        return store

    def ask(_):
        start.wait()
        return cached_store(folder=tmp_path / "s", digest="d", make=make)

    with ThreadPoolExecutor(6) as pool:
        assert all(same_arrays(found, store) for found in pool.map(ask, range(6)))
    assert len(made) == 1
    assert seen(tmp_path) == ["s"]


def test_writers_at_once_leave_a_whole_store(tmp_path):
    choices = [random_store(np.random.default_rng(seed), [4, 2]) for seed in range(6)]

    def write(one):
        return write_store(folder=tmp_path / "s", store=one)

    with ThreadPoolExecutor(6) as pool:
        for found, one in zip(pool.map(write, choices), choices, strict=True):
            assert same_arrays(found, one)
    assert any(same_arrays(open_store(folder=tmp_path / "s"), one) for one in choices)
    assert seen(tmp_path) == ["s"]


PROCESS = """
import pathlib, sys, time
import numpy as np
from zoo.batching.store import cached_store, make_store
folder = pathlib.Path(sys.argv[1])
def make():
    with open(folder / "made", "a") as file:
        file.write("x")
    time.sleep(0.2)
    return make_store(node_ptr=np.array([0, 2]), node={"z": np.ones(2, np.uint8)}, graph={})
(folder / f"ready-{sys.argv[2]}").touch()
while len(list(folder.glob("ready-*"))) < 2:
    time.sleep(0.01)
print(len(cached_store(folder=folder / "s", digest="d", make=make)))
"""


def test_processes_at_once_make_one(tmp_path):
    command = [sys.executable, "-c", PROCESS, str(tmp_path)]
    both = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(2)
    ]
    assert [process.communicate(timeout=60)[0] for process in both] == ["1\n", "1\n"]
    assert (tmp_path / "made").read_text() == "x"


def test_what_a_killed_process_left_is_swept(store, tmp_path):
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    for kind in ("partial", "old"):
        (tmp_path / f".s.{kind}-{gone.stdout.strip()}").mkdir()
    write_store(folder=tmp_path / "s", store=store)
    assert seen(tmp_path) == ["s"]


def test_where_no_folder_can_be_made_the_path_is_named(store, tmp_path):
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "s"
    with pytest.raises(UnavailableError, match=f"cannot write {place}"):
        write_store(folder=place, store=store)
    with pytest.warns(UserWarning, match=f"cannot write {place}.*made anew each time"):
        found = cached_store(folder=place, digest="d", make=lambda: store)
    assert same_arrays(found, store) and found.folder is None and found.digest == "d"


@contextmanager
def full_disk():
    """No file may grow beyond 4 kB: writing fails half-way, as on a full disk.

    No fixture: it would end after pytest has written the test's result, perhaps to a longer file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_named_and_left_clean(tmp_path):
    large = random_store(np.random.default_rng(0), [20] * 50, edges=False)
    small = random_store(np.random.default_rng(0), [2], edges=False)
    with full_disk(), pytest.raises(UnavailableError, match=f"cannot write {tmp_path / 's'}"):
        write_store(folder=tmp_path / "s", store=large)
    assert seen(tmp_path) == []
    write_store(folder=tmp_path / "s", store=small)
    with full_disk(), pytest.warns(UserWarning, match=f"cannot write {tmp_path / 's'}"):
        found = cached_store(folder=tmp_path / "s", digest="d", make=lambda: large)
    assert same_arrays(found, large)
    assert same_arrays(open_store(folder=tmp_path / "s"), small)  # what was there is kept
    assert seen(tmp_path) == ["s"]


def test_a_failing_make_leaves_nothing(tmp_path):
    def make():
        raise UnavailableError("no raw file")

    with pytest.raises(UnavailableError, match="no raw file"):
        cached_store(folder=tmp_path / "s", digest="d", make=make)
    assert seen(tmp_path) == []


def brute_counts(store, cutoff):
    counts = []
    for begin, end in zip(store.node_ptr[:-1], store.node_ptr[1:], strict=True):
        pos = store.node["pos"][begin:end].astype(np.float64)
        near = np.linalg.norm(pos[:, None] - pos, axis=2) < cutoff
        counts.append(int(near.sum()) - len(pos))
    return counts


def test_edges_within_a_cutoff_are_counted_once(tmp_path, monkeypatch):
    memory = random_store(np.random.default_rng(2), [3, 0, 5, 1, 9])
    store = write_store(folder=tmp_path / "s", store=memory)
    expected = brute_counts(memory, 2.5)
    assert memory.edges_per_graph(cutoff=2.5).tolist() == expected
    assert store.edges_per_graph(cutoff=2.5).tolist() == expected
    monkeypatch.setattr(stores, "count_within", None)  # kept: not counted again
    assert store.edges_per_graph(cutoff=2.5).tolist() == expected
    monkeypatch.undo()
    # Cutoffs that print alike to six digits are told apart.
    pos = np.array([[0, 0, 0], [1.0000001, 0, 0]], np.float32)
    pair = make_store(node_ptr=np.array([0, 2]), node={"pos": pos}, graph={})
    pair = write_store(folder=tmp_path / "pair", store=pair)
    assert [pair.edges_per_graph(cutoff=c).tolist() for c in (1, 1.0000002)] == [[0], [2]]
    # Damaged counts are made anew.
    kept = next((tmp_path / "s").glob("edges-within-*.npy"))
    for content in (b"", b"nonsense", kept.read_bytes()[:-1]):
        kept.write_bytes(content)
        assert store.edges_per_graph(cutoff=2.5).tolist() == expected


def test_stored_edges_are_counted(store):
    assert store.edges_per_graph(cutoff=None).sum() == len(store.edge["src"])


def test_asking_for_edges_there_are_not(store):
    bare = make_store(node_ptr=np.array([0, 1]), node={"z": np.ones(1, np.int8)}, graph={})
    with pytest.raises(DataError, match="no edges, and no cutoff"):
        bare.edges_per_graph(cutoff=None)
    with pytest.raises(DataError, match="no positions"):
        bare.edges_per_graph(cutoff=1.0)


GOOD = {
    "node_ptr": np.array([0, 2, 4]),
    "edge_ptr": np.array([0, 2, 3]),
    "node": {"z": np.arange(4)},
    "graph": {"y": np.zeros(2)},
    "edge": {"src": np.array([1, 0, 1]), "dst": np.array([0, 1, 0])},
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"node_ptr": np.array([0, 5, 4])}, "node_ptr falls at graph 1"),
        ({"node_ptr": np.array([1, 2, 4])}, "node_ptr starts at 1"),
        ({"node_ptr": np.array([])}, "node_ptr is not a list of offsets"),
        ({"node_ptr": np.array([0, 1, 2, 4])}, "edges of 2 graphs, nodes of 3"),
        ({"edge_ptr": np.array([0, 3, 2])}, "edge_ptr falls at graph 1"),
        ({"edge_ptr": None}, "edges need all of edge_ptr, src and dst"),
        ({"edge": {"src": np.zeros(3, int)}}, "edges need all of edge_ptr, src and dst"),
        ({"node": {"z": np.arange(3)}}, "node attribute 'z' has 3 rows, its graphs have 4"),
        ({"graph": {"y": np.float64(1)}}, "graph attribute 'y' has no rows"),
        ({"node": {"pos": np.zeros((4, 2))}}, r"positions are \[nodes, 3\] floats"),
        ({"node": {"pos": np.zeros((4, 3), int)}}, r"positions are \[nodes, 3\] floats"),
        ({"node": {"batch": np.arange(4)}}, "'batch' is a name of every batch"),
        ({"node": {"src": np.arange(4)}}, "'src' is a name of every batch"),
        ({"node": {"../z": np.arange(4)}}, "can't name an attribute"),
        ({"node": {"z": np.array([0, 1, 2, 2**31])}}, "'z' spans 0 to 2147483648"),
        ({"node": {"z": np.array([0, 1, 2, -(2**40)])}}, "'z' spans -1099511627776 to 2"),
        (
            {"edge": {"src": np.array([1, 0, 2]), "dst": np.array([0, 1, 0])}},
            "graph 1 has an edge from node 2 to 0, and 2 nodes",
        ),
        (
            {"edge": {"src": np.array([1, 0, 1]), "dst": np.array([0, -1, 0])}},
            "graph 0 has an edge from node 0 to -1",
        ),
        (
            {"edge": {"src": np.array([0, 1, 1]), "dst": np.array([1, 0, 0])}},
            "edges of graph 0 are not sorted",
        ),
        ({"edge": {"src": np.zeros(3), "dst": np.zeros(3)}}, "node ids, not float64"),
        ({"edge": {**GOOD["edge"], "z": np.zeros(3)}}, "'z' is an attribute of nodes and of edges"),
    ],
)
def test_what_kernels_could_not_be_given_is_refused(change, message):
    make_store(**GOOD)
    with pytest.raises(DataError, match=message):
        make_store(**{**GOOD, **change})


def test_edges_may_fall_from_one_graph_to_the_next_over_empty_ones():
    store = make_store(
        node_ptr=np.array([0, 0, 3, 3, 4, 6]),
        edge_ptr=np.array([0, 0, 2, 2, 2, 4]),
        node={},
        graph={},
        edge={"src": np.array([2, 2, 0, 1]), "dst": np.array([1, 2, 0, 1])},
    )
    assert store.edges_per_graph(cutoff=None).tolist() == [0, 2, 0, 0, 2]
