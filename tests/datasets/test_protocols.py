"""Splits of a labelled table by name: what each promises, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from zoo.datasets.protocols import make_split
from zoo.errors import RequestError

COUNT = 120
RNG = np.random.default_rng(0)
GROUPS = RNG.integers(0, 90, COUNT)
SCAFFOLDS = (GROUPS * 7) % 23
PROTOCOLS = ["random", "scaffold", "scaffold-balanced", "kfold"]


def split(protocol: str = "random", **options):
    given = {
        "protocol": protocol,
        "seed": 0,
        "count": COUNT,
        "groups": GROUPS,
        "scaffolds": SCAFFOLDS,
        **options,
    }
    return make_split(**given)


def whole(parts) -> None:
    rows = np.concatenate(list(parts.values()))
    assert np.array_equal(np.sort(rows), np.arange(COUNT)) and min(map(len, parts.values())) > 0
    assert all((np.diff(ids) > 0).all() for ids in parts.values())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_row_is_in_one_part_and_no_molecule_in_two(protocol: str) -> None:
    parts, digest = split(protocol)
    whole(parts)
    held = [set(GROUPS[ids].tolist()) for ids in parts.values()]
    assert not (held[0] & held[1] or held[0] & held[2] or held[1] & held[2])
    assert len(digest) == 64 and split(protocol)[1] == digest


@pytest.mark.parametrize("protocol", ["scaffold", "scaffold-balanced"])
def test_scaffolds_are_in_one_part(protocol: str) -> None:
    parts, _ = split(protocol)
    held = [set(SCAFFOLDS[ids].tolist()) for ids in parts.values()]
    assert not (held[0] & held[1] or held[0] & held[2] or held[1] & held[2])


def test_a_seed_draws_another_split_where_there_is_something_to_draw() -> None:
    for protocol in ("random", "scaffold-balanced", "kfold"):
        assert split(protocol, seed=1)[1] != split(protocol)[1], protocol
    assert split("scaffold", seed=1)[1] == split("scaffold")[1]


def test_folds_test_every_row_once() -> None:
    tested = [split("kfold", folds=4, fold=fold)[0]["test"] for fold in range(4)]
    assert np.array_equal(np.sort(np.concatenate(tested)), np.arange(COUNT))
    parts = [split("kfold", folds=4, fold=fold)[0] for fold in range(4)]
    assert np.array_equal(parts[0]["valid"], parts[1]["test"])


def test_a_column_is_taken_at_its_word() -> None:
    words = ["Train", "VALIDATION", "val", "test"]
    groups = np.arange(COUNT)
    column = [words[n % 4] for n in range(COUNT)]
    parts, _ = split("column", column=column, groups=groups)
    assert parts["train"].tolist() == list(range(0, COUNT, 4))
    assert len(parts["valid"]) == 60 and len(parts["test"]) == 30
    column[5] = "later"
    with pytest.raises(RequestError, match="later"):
        split("column", column=column, groups=groups)


def test_a_rare_class_is_in_every_part_of_a_random_split() -> None:
    y = np.zeros((COUNT, 1))
    y[:9] = 1
    for seed in range(5):
        parts, _ = split("random", seed=seed, y=y, groups=np.arange(COUNT), names=["y"])
        assert all(y[ids].any() for ids in parts.values())


def test_parts_have_their_shares() -> None:
    parts, _ = split("random", groups=np.arange(COUNT))
    assert {name: len(ids) for name, ids in parts.items()} == {
        "train": 96,
        "valid": 12,
        "test": 12,
    }
    parts, _ = split("random", groups=np.arange(COUNT), shares=(0.5, 0.25, 0.25))
    assert len(parts["train"]) == 60


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"protocol": "scafold"}, "nearest: 'scaffold'"),
        ({"count": 5, "groups": GROUPS[:5], "scaffolds": SCAFFOLDS[:5]}, "too few"),
        ({"shares": (0.5, 0.5, 0.5)}, "add up to 1"),
        ({"protocol": "kfold", "fold": 7}, "fold"),
        ({"protocol": "scaffold", "scaffolds": None}, "needs the scaffolds"),
    ],
)
def test_what_cannot_be_split_is_refused(options, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        split(**options)
