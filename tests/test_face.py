"""`import zoo`: light, lazy, and wrong names answered with the nearest."""

from __future__ import annotations

import subprocess
import sys

import pytest

import zoo
from zoo.errors import RequestError


def loaded(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(' '.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_import_loads_neither_torch_nor_pydantic():
    heavy = {"torch", "pydantic", "numpy", "numba", "pandas", "rdkit", "mlflow", "typer"}
    assert not heavy & loaded("import zoo")


def test_names_need_no_torch():
    assert "torch" not in loaded("import zoo; zoo.list(); zoo.card('schnet-qm9')")


def test_list_matches_globs_and_default_tags():
    assert "schnet-qm9.homo" in zoo.list("*.homo")
    assert zoo.list("schnet-qm9") == ["schnet-qm9.U0"]
    assert zoo.list("nothing*") == []


def test_create_builds_and_refuses():
    module = zoo.create("schnet", features=8, interactions=1, gaussians=4)
    assert sum(p.numel() for p in module.parameters()) > 0
    with pytest.raises(RequestError, match="nearest: 'schnet'"):
        zoo.create("schnett")
    with pytest.raises(RequestError, match="nearest: 'features'"):
        zoo.create("schnet", feature=8)


@pytest.mark.parametrize("call", [zoo.card, zoo.load, zoo.fetch, zoo.run])
def test_a_wrong_name_suggests_the_nearest(call):
    with pytest.raises(RequestError, match="nearest: 'schnet-qm9'"):
        call("schnet-qm8")


def test_an_entry_without_weights_says_how_to_train_it():
    without = next(n for n in zoo.list() if n not in zoo.list(weights=True))
    with pytest.raises(RequestError, match=f"zoo run {without}"):
        zoo.load(without)
