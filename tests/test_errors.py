"""The kinds of errors, and the suggestion for a wrong name."""

import pytest

from zoo import errors


@pytest.mark.parametrize(
    ("name", "near"),
    [("schnet-qm8", "schnet-qm9"), ("SCHNET-QM9", "schnet-qm9"), ("gin-molhv", "gin-molhiv")],
)
def test_the_nearest_name_is_suggested(name, near):
    error = errors.unknown(kind="entry", name=name, known=["schnet-qm9", "gin-molhiv"])
    assert str(error).splitlines() == [
        f"unknown entry {name!r}; nearest: {near!r}",
        "known: schnet-qm9, gin-molhiv",
    ]
    assert error.exit_code == 2


def test_a_name_like_no_other_gets_no_suggestion():
    error = errors.unknown(
        kind="entry", name="zzz", known=["schnet-qm9"], hint="`zoo ls` lists them"
    )
    assert str(error) == "unknown entry 'zzz'\n`zoo ls` lists them"


def test_long_lists_are_cut_and_empty_ones_said():
    long = errors.unknown(kind="key", name="q", known=(f"k{i}" for i in range(100)))
    assert str(long).endswith("k19, ...")
    assert str(errors.unknown(kind="key", name="q", known=[])).endswith("known: none")


def test_exit_codes():
    codes = {kind.__name__: kind.exit_code for kind in errors.ZooError.__subclasses__()}
    assert codes == {
        "RequestError": 2,
        "DataError": 1,
        "WeightsError": 1,
        "UnavailableError": 1,
        "StoppedError": 143,
    }
