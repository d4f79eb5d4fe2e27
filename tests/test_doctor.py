"""`zoo doctor`: what is broken is bad, what is merely absent is missing."""

from __future__ import annotations

import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from zoo import doctor, hub


def state(name: str) -> tuple[str, str]:
    [check] = [c for c in doctor.examine()["checks"] if c["name"].startswith(name)]
    return check["state"], check["says"]


def test_every_check_says_something_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    found = doctor.examine()
    assert found["ok"] is True and all(c["says"] for c in found["checks"])
    names = [c["name"] for c in found["checks"]]
    assert len(names) == len(set(names)) >= 9
    assert f"{tmp_path / 'cache'}" in state("cache")[1]


def test_a_missing_compiler_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert state("g++") == (
        "missing",
        "the inductor backend needs it; eager, the default, doesn't",
    )
    assert doctor.examine()["ok"] is True


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "file" / "cache"))
    found, says = state("cache")
    assert found == "missing" and str(tmp_path / "file" / "cache") in says


def test_a_package_that_is_gone_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = metadata.version

    def version(name: str) -> str:
        if name == "ase":
            raise metadata.PackageNotFoundError(name)
        return whole(name)

    monkeypatch.setattr(metadata, "version", version)
    assert state("versions") == ("bad", "ase is not installed")
    assert doctor.examine()["ok"] is False


def test_damaged_weights_and_broken_kernels_are_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "PACKAGED", tmp_path / "nowhere")
    found, says = state("weights")
    assert found == "bad" and "no mirror is known" in says

    from zoo.batching import kernels

    def broken(*_: Any) -> None:
        raise RuntimeError("LLVM is unhappy")

    monkeypatch.setattr(kernels, "count_within", broken)
    assert state("kernels") == ("bad", "LLVM is unhappy")


def test_a_torch_that_cannot_be_loaded_ends_no_other_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    found = doctor.examine()
    assert found["ok"] is False and len(found["checks"]) >= 9
    assert state("threads")[0] == "bad" and "torch" in state("threads")[1]
    assert state("g++")[0] in ("ok", "missing")


def test_switches_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_OFFLINE", "1")
    monkeypatch.setattr("zoo.ops.dispatch.SWITCHED_OFF", True)
    assert "no socket is opened" in state("network")[1]
    assert state("kernels") == ("missing", "switched off by ZOO_KERNELS=reference")
