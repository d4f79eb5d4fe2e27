"""RDKit's log, silenced and read."""

from __future__ import annotations

import pytest
from rdkit import Chem, rdBase

from zoo.chem.rdkit_log import caught, first_error


def test_the_first_line_that_says_something() -> None:
    assert first_error("") == ""
    assert first_error("[12:00:00] \n\n****\nPost-condition Violation\n") == ""
    assert first_error("[12:00:00] ERROR: Element 'Jj' not found\n") == "Element 'Jj' not found"
    log = (
        "[21:50:34] SMILES Parse Error: syntax error while parsing: xyz\n"
        "[21:50:34] SMILES Parse Error: check for mistakes around position 1:\n"
        "[21:50:34] xyz\n[21:50:34] ^\n"
        "[21:50:34] SMILES Parse Error: Failed parsing SMILES 'xyz' for input: 'xyz'\n"
    )
    assert first_error(log) == "syntax error around position 1"


def test_silent_inside_and_as_before_outside(capfd: pytest.CaptureFixture[str]) -> None:
    with caught() as error:
        Chem.MolFromSmiles("C1CC")
    assert error() == "unclosed ring"
    assert capfd.readouterr().err == ""
    Chem.MolFromSmiles("C1CC")
    assert "unclosed ring" in capfd.readouterr().err


def test_an_rdkit_that_cannot_capture_is_at_least_silent(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(rdBase, "CaptureErrorLog")
    with caught() as error:
        Chem.MolFromSmiles("C1CC")
    assert error() == ""
    assert capfd.readouterr().err == ""
