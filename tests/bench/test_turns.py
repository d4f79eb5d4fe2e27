"""Sides take turns; disturbed rounds don't count; median and spread are those of the rounds."""

from __future__ import annotations

import pytest

from zoo.bench import turns
from zoo.bench.machine import QUIET, Load
from zoo.errors import ZooError


def loads(monkeypatch, others):
    """Make the meter tell these loads, one a round."""
    told = iter(others)

    class Meter:
        def read(self):
            return Load(own=1.0, others=next(told), stolen=0.0, seconds=2.0)

    monkeypatch.setattr(turns, "LoadMeter", Meter)


def sides(log):
    def turn(name):
        def run():
            log.append(name)
            return float(len(log))

        return run

    return {"a": turn("a"), "b": turn("b"), "c": turn("c")}


def test_every_other_round_runs_backwards(monkeypatch):
    loads(monkeypatch, [0.0] * 3)
    log = []
    rounds = turns.alternate(sides=sides(log), repeats=3, force=False, title="test")
    assert "".join(log) == "abc" + "cba" + "abc"
    assert rounds.values == {"a": [1, 6, 7], "b": [2, 5, 8], "c": [3, 4, 9]}
    assert rounds.repeated == 0


def test_a_disturbed_round_is_measured_again(monkeypatch):
    loads(monkeypatch, [0.0, QUIET + 0.01, 0.1, QUIET])
    log = []
    rounds = turns.alternate(sides=sides(log), repeats=3, force=False, title="test")
    assert len(log) == 12 and rounds.repeated == 1
    assert [load.others for load in rounds.loads] == [0.0, 0.1, QUIET]
    assert all(len(values) == 3 for values in rounds.values.values())
    assert 4.0 not in rounds.values["c"] + rounds.values["a"]


def test_too_many_disturbed_rounds_end_it_unless_forced(monkeypatch):
    loads(monkeypatch, [1.2] * 9)
    log = []
    with pytest.raises(ZooError, match=r"something else .* 1\.20 of a core over 2 s"):
        turns.alternate(sides=sides(log), repeats=3, force=False, title="test")
    assert len(log) == 9
    rounds = turns.alternate(sides=sides([]), repeats=3, force=True, title="test")
    before = Load(own=0.0, others=0.5, stolen=0.0, seconds=1.0)
    facts = turns.load_facts(before=before, rounds=rounds, force=True)
    assert facts["others_in_rounds_max"] == 1.2 and facts["before"]["others"] == 0.5
    assert facts["forced"] and facts["allowed"] == QUIET


def test_spread():
    found = turns.spread([4.0, 1.0, 3.0, 2.0, 10.0])
    assert found == {
        "median": 3.0,
        "min": 1.0,
        "max": 10.0,
        "quartiles": [2.0, 4.0],
        "values": [4.0, 1.0, 3.0, 2.0, 10.0],
    }
    assert turns.spread([7.0])["quartiles"] == [7.0, 7.0]
