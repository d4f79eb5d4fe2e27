"""Fetching from mirrors that serve well and badly, and finding raw files."""

import gzip
import hashlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from mirror import CONTENT, mirror

from zoo import hub
from zoo.errors import DataError, UnavailableError, WeightsError
from zoo.registry import Weights

SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("ZOO_OFFLINE", raising=False)
    with mirror() as running:
        yield running


def fetch(folder, mirrors, *, timeout=5.0):
    return hub.fetch(
        filename="file.bin",
        sha256=SHA256,
        mirrors=mirrors,
        folder=folder,
        what="the weights",
        timeout=timeout,
    )


def seen(folder):
    """What a user would see there: locks are hidden and stay."""
    return sorted(p.name for p in folder.iterdir() if p.suffix != ".lock")


def closed_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_a_good_mirror_is_asked_once(server, tmp_path):
    address, asked = server
    path = fetch(tmp_path / "a" / "b", [f"{address}/good/file.bin"])
    assert path == tmp_path / "a" / "b" / "file.bin"
    assert path.read_bytes() == CONTENT
    assert fetch(tmp_path / "a" / "b", [f"{address}/good/file.bin"]) == path
    assert asked == ["good"]
    assert seen(path.parent) == ["file.bin"]


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("absent", UnavailableError, "answers 404"),
        ("failing", UnavailableError, "answers 503"),
        ("short", UnavailableError, "cut the file short"),
        ("stalling", UnavailableError, r"sent nothing for 0\.3 s"),
        ("silent", UnavailableError, r"sent nothing for 0\.3 s"),
        ("corrupt", WeightsError, "sent another file"),
    ],
)
def test_a_bad_mirror_is_named_with_its_reason(server, tmp_path, kind, error, message):
    address, _ = server
    with pytest.raises(error, match=message) as caught:
        timeout = 0.3 if kind in ("stalling", "silent") else 30
        fetch(tmp_path, [f"{address}/{kind}/file.bin"], timeout=timeout)
    text = str(caught.value)
    assert f"{address}/{kind}/file.bin" in text
    assert SHA256 in text and str(tmp_path / "file.bin") in text
    assert len(text.splitlines()) <= 3
    assert seen(tmp_path) == []


def test_mirrors_are_tried_in_order_and_all_reasons_are_said(server, tmp_path):
    address, asked = server
    nobody = f"http://127.0.0.1:{closed_port()}/file.bin"
    bad = [f"{address}/{kind}/file.bin" for kind in ("absent", "corrupt", "short")]
    with pytest.raises(UnavailableError) as caught:
        fetch(tmp_path, [nobody, *bad, "nonsense"])
    text = str(caught.value)
    reasons = ("cannot be reached", "404", "another file", "short", "nonsense failed")
    positions = [text.index(reason) for reason in reasons]
    assert positions == sorted(positions)
    assert fetch(tmp_path, [nobody, *bad, f"{address}/good/file.bin"]).read_bytes() == CONTENT
    assert asked == ["absent", "corrupt", "short"] * 2 + ["good"]


def test_a_damaged_file_is_fetched_anew(server, tmp_path):
    address, _ = server
    (tmp_path / "file.bin").write_bytes(CONTENT[:-1])
    (tmp_path / ".file.bin.part").write_bytes(b"left by a process that was killed")
    assert fetch(tmp_path, [f"{address}/good/file.bin"]).read_bytes() == CONTENT
    assert seen(tmp_path) == ["file.bin"]


def test_without_mirrors_the_place_and_hash_are_named(tmp_path):
    with pytest.raises(UnavailableError, match="no mirror is known") as caught:
        fetch(tmp_path, [])
    assert SHA256 in str(caught.value) and str(tmp_path / "file.bin") in str(caught.value)
    (tmp_path / "file.bin").write_bytes(b"tampered")
    with pytest.raises(WeightsError, match=r"file\.bin is damaged"):
        fetch(tmp_path, [])


FETCH = """
import sys
from pathlib import Path
from zoo import hub
sockets = []
sys.addaudithook(lambda event, args: sockets.append(event) if event.startswith("socket") else None)
folder, sha256, *mirrors = sys.argv[1:]
try:
    path = hub.fetch(filename="file.bin", sha256=sha256, mirrors=mirrors, folder=Path(folder),
                     what="the weights", timeout=10)
    print("done", path.stat().st_size)
except Exception as error:
    print(type(error).__name__, error)
print("sockets", len(sockets))
"""


def fetching(folder, *mirrors, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, str(folder), SHA256, *mirrors],
        env={**os.environ, "PYTHONPATH": str(Path(hub.__file__).parents[1]), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process):
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.splitlines()


def test_two_processes_at_once_fetch_once(server, tmp_path):
    address, asked = server
    both = [fetching(tmp_path, f"{address}/slow/file.bin") for _ in range(2)]
    lines = [output(process) for process in both]
    assert [line[0] for line in lines] == [f"done {len(CONTENT)}"] * 2
    assert asked == ["slow"]


def test_offline_opens_no_socket(server, tmp_path):
    address, asked = server
    url = f"{address}/good/file.bin"
    refused = output(fetching(tmp_path, url, ZOO_OFFLINE="1"))
    assert refused[0].startswith("UnavailableError the weights:")
    assert url in refused[0] and "ZOO_OFFLINE" in refused[0]
    assert refused[-1] == "sockets 0"
    assert asked == []
    # The counter counts: the same without ZOO_OFFLINE opens sockets.
    fetched = output(fetching(tmp_path, url, ZOO_OFFLINE="0"))
    assert fetched[0] == f"done {len(CONTENT)}"
    assert int(fetched[-1].split()[1]) > 0
    # What is there already needs none.
    assert output(fetching(tmp_path, url, ZOO_OFFLINE="1")) == [
        f"done {len(CONTENT)}",
        "sockets 0",
    ]


@pytest.fixture
def tiny_disk(tmp_path):
    """A disk smaller than the file."""
    place = tmp_path / "tiny"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a small disk can only be made by root, where mounting is allowed")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_named_and_left_clean(server, tiny_disk):
    address, asked = server
    urls = [f"{address}/good/file.bin"] * 2
    with pytest.raises(UnavailableError, match=r"cannot write .*file\.bin: No space left"):
        fetch(tiny_disk, urls)
    assert asked == ["good"]  # another mirror would not help
    assert seen(tiny_disk) == []


def test_a_read_only_disk_is_named_and_serves_what_it_has(server, tiny_disk):
    address, asked = server
    small = hashlib.sha256(b"small").hexdigest()
    (tiny_disk / "small.bin").write_bytes(b"small")
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    with pytest.raises(UnavailableError, match=f"cannot write {tiny_disk}: Read-only"):
        fetch(tiny_disk, [f"{address}/good/file.bin"])
    assert asked == []
    found = hub.fetch(filename="small.bin", sha256=small, mirrors=[], folder=tiny_disk, what="it")
    assert found == tiny_disk / "small.bin"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any folder")
def test_a_folder_without_permission_is_named(server, tmp_path):
    address, _ = server
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(UnavailableError, match=f"cannot write {tmp_path}: Permission"):
            fetch(tmp_path, [f"{address}/good/file.bin"])
    finally:
        tmp_path.chmod(0o700)


def test_a_folder_that_cannot_be_made_is_named(server, tmp_path):
    address, _ = server
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match=f"cannot write {tmp_path / 'file' / 'cache'}"):
        fetch(tmp_path / "file" / "cache", [f"{address}/good/file.bin"])


def weights(**changes):
    fields = {"file": "w.safetensors", "sha256": SHA256, "size": len(CONTENT), "licence": "MIT"}
    return Weights(**{**fields, **changes})


def test_weights_come_from_the_package_then_the_cache_then_a_mirror(server, tmp_path, monkeypatch):
    address, asked = server
    package, cache = tmp_path / "package", tmp_path / "cache"
    package.mkdir()
    monkeypatch.setattr(hub, "PACKAGED", package)
    monkeypatch.setenv("ZOO_CACHE", str(cache))
    wanted = weights(mirrors=[f"{address}/good/w.safetensors"])
    assert hub.locate(weights=wanted) == cache / "weights" / "w.safetensors"
    assert hub.locate(weights=weights()) == cache / "weights" / "w.safetensors"
    (package / "w.safetensors").write_bytes(CONTENT)
    assert hub.locate(weights=wanted) == package / "w.safetensors"
    (package / "w.safetensors").write_bytes(CONTENT[:-1])
    with pytest.warns(UserWarning, match="is damaged"):
        assert hub.locate(weights=wanted) == cache / "weights" / "w.safetensors"
    (cache / "weights" / "w.safetensors").write_bytes(b"tampered")
    with pytest.warns(UserWarning), pytest.raises(WeightsError, match="is damaged, and no mirror"):
        hub.locate(weights=weights())
    assert asked == ["good"]


def test_the_cache_is_where_it_is_said_to_be(monkeypatch, tmp_path):
    monkeypatch.setenv("ZOO_CACHE", "~/zoo-cache")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert hub.cache_dir() == tmp_path / "zoo-cache"
    monkeypatch.delenv("ZOO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform == "linux":
        assert hub.cache_dir() == tmp_path / "xdg" / "gnn-zoo"


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Two folders of raw data, in which `table.csv` (hash of b"right") may be put."""
    one, two = tmp_path / "one", tmp_path / "two"
    (one / "deep" / "er").mkdir(parents=True)
    two.mkdir()
    monkeypatch.setenv("ZOO_DATA", os.pathsep.join([str(one), "", str(two)]))
    return one, two


def find():
    return hub.find_raw(filename="table.csv", sha256=hashlib.sha256(b"right").hexdigest())


def test_raw_files_are_found_at_any_depth_by_hash(data):
    one, two = data
    assert find() is None
    (two / "table.csv").write_bytes(b"right")
    assert find() == two / "table.csv"
    (one / "table.csv").write_bytes(b"another")
    assert find() == two / "table.csv"
    (one / "deep" / "er" / "table.csv").write_bytes(b"right")
    assert find() == one / "deep" / "er" / "table.csv"


def test_a_gzipped_raw_file_counts_by_what_is_in_it(data):
    one, _ = data
    packed = one / "deep" / "table.csv.gz"
    with gzip.open(packed, "wb") as file:
        file.write(b"right")
    assert find() == packed
    with hub.open_raw(packed) as file:
        assert file.read() == b"right"
    raw = packed.read_bytes()
    found = hub.find_raw(filename="table.csv.gz", sha256=hashlib.sha256(raw).hexdigest())
    assert found == packed


@pytest.mark.parametrize("content", [b"wrong", gzip.compress(b"right")[:-6], b"\x1f\x8b", b""])
def test_only_wrong_files_are_an_error_that_names_them(data, content):
    one, _ = data
    (one / "table.csv.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"table\.csv in ZOO_DATA is not") as caught:
        find()
    assert str(one / "table.csv.gz") in str(caught.value)


def test_links_that_lead_back_end(data):
    one, two = data
    (one / "deep" / "up").symlink_to(one)
    (two / "elsewhere").mkdir()
    assert find() is None
    outside = one.parent / "outside"
    outside.mkdir()
    (outside / "table.csv").write_bytes(b"right")
    (two / "elsewhere" / "link").symlink_to(outside)
    assert find() == two / "elsewhere" / "link" / "table.csv"


def test_a_data_folder_that_is_none_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("ZOO_DATA", str(tmp_path / "typo"))
    with pytest.warns(UserWarning, match="typo, which is not a folder"):
        assert find() is None
    monkeypatch.delenv("ZOO_DATA")
    assert find() is None
