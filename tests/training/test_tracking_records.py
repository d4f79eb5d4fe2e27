"""Names that MLflow takes, flat parameters, spool files and versions."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.training.tracking_records import (
    SENDING,
    SPOOL,
    append_spool,
    flatten,
    groups,
    known_run,
    metric_name,
    settle_spool,
    spooled,
    take_spool,
    write_run,
)
from zoo.training.versions import git_commit, versions

# Letters that make up the escapes themselves, so that hypothesis tries to forge them.
AWKWARD = st.text(alphabet="at_x40@/. []in-per:%Åé\n", max_size=14)


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        ("loss", "loss"),
        ("valid/mae/U0", "valid/mae/U0"),
        ("hits@10", "hits_at_10"),
        ("mae/U0 [eV]", "mae/U0 in eV"),
        ("mae/force [eV/Å]", "mae/force in eV per Å"),
        ("train graphs/s", "train graphs/s"),
        ("50%", "50_x25_"),
        ("a:b", "a_x3a_b"),
    ],
)
def test_names_stay_readable(name: str, readable: str) -> None:
    assert metric_name(name) == readable


@settings(max_examples=500, deadline=None)
@given(AWKWARD)
def test_mlflow_takes_every_name(name: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    for each in (name, name * 40):
        _validate_metric_name(metric_name(each))
        assert len(metric_name(each)) <= 250


@settings(max_examples=500, deadline=None)
@given(st.lists(AWKWARD, unique=True, min_size=2, max_size=30))
def test_two_names_never_become_one(names: list[str]) -> None:
    assert len({metric_name(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    "pair",
    [
        ("hits@1", "hits_at_1"),
        ("mae [eV]", "mae in eV"),
        ("@at_", "_at@"),
        ("x [a/b]", "x [a per b]"),
        ("a" * 300, "a" * 301),
        ("a//b", "a/b"),
        ("", "."),
    ],
)
def test_names_made_to_collide_do_not(pair: tuple[str, str]) -> None:
    assert metric_name(pair[0]) != metric_name(pair[1])


def test_a_config_becomes_flat_text() -> None:
    config = {
        "model": {"cutoff": 10.0, "filters": {"knots": 256, "kind": "hermite"}},
        "ema": None,
        "amp": True,
        "targets": ["U0", "mu"],
        "empty": {},
        "path": Path("a/b"),
        "text": "no",
    }
    assert flatten(config) == {
        "model.cutoff": "10.0",
        "model.filters.knots": "256",
        "model.filters.kind": "hermite",
        "ema": "null",
        "amp": "true",
        "targets": '["U0", "mu"]',
        "empty": "{}",
        "path": "a/b",
        "text": "no",
    }
    assert flatten(flatten(config)) == flatten(config)


def test_a_long_value_is_cut_and_says_so() -> None:
    [value] = flatten({"ids": list(range(5000))}).values()
    whole = json.dumps(list(range(5000)))
    assert len(value) == 6000 and value.endswith(f"(cut: {len(whole)} characters)")
    assert value[:5900] == whole[:5900]


def test_records_are_grouped_in_order() -> None:
    kinds = ["params", "metrics", "artifact", "metrics", "metrics", "metrics", "status"]
    records = [{"kind": kind} for kind in kinds]
    found = groups(records, most=2)
    assert [[record["kind"] for record in group] for group in found] == [
        ["params", "metrics"],
        ["artifact"],
        ["metrics", "metrics"],
        ["metrics"],
        ["status"],
    ]


def test_a_spool_survives_a_kill_in_mid_write(tmp_path: Path) -> None:
    header = {"kind": "run", "run_name": "r"}
    append_spool(tmp_path, [{"kind": "tags", "values": {"a": "å"}}], header=header)
    append_spool(tmp_path, [{"kind": "tags", "values": {"b": "2"}}], header=header)
    with (tmp_path / SPOOL).open("a") as file:
        file.write('{"kind": "tags", "val')
    assert take_spool(tmp_path) == (
        header,
        [{"kind": "tags", "values": {"a": "å"}}, {"kind": "tags", "values": {"b": "2"}}],
    )


def test_records_after_a_cut_line_are_not_lost(tmp_path: Path) -> None:
    header = {"kind": "run"}
    append_spool(tmp_path, [{"kind": "tags", "values": {}}], header=header)
    with (tmp_path / SPOOL).open("a") as file:
        file.write('{"kind": "tags", "val')
    append_spool(tmp_path, [{"kind": "status"}], header=header)
    taken = take_spool(tmp_path)
    assert taken is not None
    assert [record["kind"] for record in taken[1]] == ["tags", "status"]


def test_what_is_left_of_a_spool_goes_back(tmp_path: Path) -> None:
    header = {"kind": "run"}
    records = [{"kind": "tags", "n": n} for n in range(3)]
    append_spool(tmp_path, records, header=header)
    assert take_spool(tmp_path) == (header, records)
    settle_spool(tmp_path, records[1:], header=header)
    assert (tmp_path / SPOOL).exists() and not (tmp_path / SENDING).exists()
    # A sender that was killed leaves its part; newer records come after it.
    assert take_spool(tmp_path) == (header, records[1:])
    append_spool(tmp_path, [{"kind": "new"}], header=header)
    assert take_spool(tmp_path) == (header, records[1:])
    settle_spool(tmp_path, [], header=header)
    assert take_spool(tmp_path) == (header, [{"kind": "new"}])
    settle_spool(tmp_path, [], header=header)
    assert take_spool(tmp_path) is None and not spooled(tmp_path)


def test_the_run_of_a_folder(tmp_path: Path) -> None:
    assert known_run(tmp_path) is None
    write_run(tmp_path, run_id="abc", uri="sqlite:///x", experiment="e")
    assert known_run(tmp_path) == "abc"
    (tmp_path / "mlflow-run.json").write_text("{")
    assert known_run(tmp_path) is None


def test_versions_name_what_decides_a_result() -> None:
    found = versions()
    assert {"python", "torch", "numba", "numpy", "mlflow"} <= set(found)


def test_the_commit_is_that_of_the_checkout_itself(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True
        )

    assert git_commit(tmp_path) is None
    git("init")
    (tmp_path / "file").write_text("1")
    (tmp_path / "inner").mkdir()
    git("add", ".")
    git("commit", "-m", "one")
    clean = git_commit(tmp_path)
    assert clean is not None and len(clean) == 40
    (tmp_path / "untracked").write_text("1")
    assert git_commit(tmp_path) == clean
    (tmp_path / "file").write_text("2")
    assert git_commit(tmp_path) == f"{clean}-dirty"
    # An environment inside somebody's repository is not a checkout of zoo.
    assert git_commit(tmp_path / "inner") is None
