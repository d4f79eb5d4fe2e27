"""Every shipped weight file: there, the one the registry names, and predicting what it did."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ase.build import molecule

import zoo
from zoo import hub, registry
from zoo.artifact import read_spec
from zoo.files import sha256_file

STORED = json.loads((Path(__file__).parent / "data" / "predictions.json").read_text())


def shipped() -> list[str]:
    return zoo.list(weights=True)


def test_some_weights_ship():
    assert "schnet-qm9.U0" in shipped()


@pytest.mark.parametrize("name", shipped())
def test_the_file_is_the_one_the_registry_names(name):
    entry, tag = registry.resolve(name)
    weights = entry.tags[tag].weights
    path = Path(registry.__file__).parent / "weights" / weights.file
    assert sha256_file(path) == weights.sha256
    assert path.stat().st_size == weights.size
    assert read_spec(hub.locate(weights=weights)).entry == name


@pytest.mark.parametrize("name", shipped())
def test_predictions_are_the_stored_ones(name):
    stored = STORED[name]
    given = stored.get("smiles") or [molecule(m) for m in stored["molecules"]]
    frame = zoo.load(name).predict(given)
    assert frame["valid"].all()
    for column, values in stored["columns"].items():
        np.testing.assert_allclose(frame[column], values, rtol=0, atol=2e-3)


def test_ethanol_is_near_its_total_energy():
    frame = zoo.predict("schnet-qm9", [molecule("CH3CH2OH")])
    assert frame["U0 [eV]"][0] == pytest.approx(-4217, abs=1)
