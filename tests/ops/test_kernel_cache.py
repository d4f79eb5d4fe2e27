"""Where compiled kernels go, and that nothing is compiled or imported before it is needed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import zoo

PACKAGE = Path(zoo.__file__).parent

CALL = """
import sys, warnings
before = sys.argv[1] == "numba-first" and __import__("numba")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import numpy as np
    from zoo.ops.graph_kernel import rows_fit
    from zoo.ops import setup
    import zoo
    assert rows_fit(np.array([0, 1, 2]), 2) and not rows_fit(np.array([0, 2, 1]), 2)
print(zoo.__file__)
print(*(w.message for w in caught if "kernels" in str(w.message)), sep="\\n")
"""


@pytest.fixture
def package(tmp_path):
    """A copy of what kernels need, away from the checkout and its caches."""
    copy = tmp_path / "site" / "zoo"
    (copy / "ops").mkdir(parents=True)
    shutil.copy(PACKAGE / "__init__.py", copy)
    for name in ("__init__", "setup", "graph_kernel"):
        shutil.copy(PACKAGE / "ops" / f"{name}.py", copy / "ops")
    return copy


def locked(folder: Path) -> Path:
    """A folder that nobody, not even root, can write to: a file is in its place."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("")
    return folder


def call(package: Path, *, first: str = "", **environment: str) -> list[str]:
    """Run a kernel of the copied package; the warnings about caches."""
    clean = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "ZOO_CACHE")}
    run = subprocess.run(
        [sys.executable, "-B", "-c", CALL, first],
        env={**clean, "PYTHONPATH": str(package.parent), **environment},
        cwd=package.parent,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert run.returncode == 0, run.stderr
    where, *warned = run.stdout.splitlines()
    assert Path(where).parent == package
    return [line for line in warned if line]


def kernels(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.nbi"))


def test_beside_the_package(package, tmp_path):
    cache = tmp_path / "cache"
    assert call(package, ZOO_CACHE=str(cache)) == []
    assert kernels(package / "ops" / "__pycache__") and not cache.exists()


@pytest.mark.parametrize("first", ["", "numba-first"])
def test_a_read_only_package_uses_the_users_cache(package, tmp_path, first):
    locked(package / "ops" / "__pycache__")
    cache = tmp_path / "cache"
    assert call(package, first=first, ZOO_CACHE=str(cache)) == []
    assert kernels(cache / "kernels")


def test_nowhere_to_write_warns_once_and_works(package, tmp_path):
    locked(package / "ops" / "__pycache__")
    cache = locked(tmp_path / "cache")
    home = locked(tmp_path / "home")  # numba must not find a place of its own either
    (warning,) = call(package, ZOO_CACHE=str(cache), HOME=str(home), XDG_CACHE_HOME=str(home))
    assert "compiled anew in each process" in warning and "ZOO_CACHE" in warning
    assert kernels(tmp_path) == []


def test_numbas_own_setting_wins(package, tmp_path):
    chosen = tmp_path / "chosen"
    assert call(package, NUMBA_CACHE_DIR=str(chosen)) == []
    assert kernels(chosen) and not (package / "ops" / "__pycache__").exists()


def test_numbas_own_setting_cannot_be_written(package, tmp_path):
    chosen = locked(tmp_path / "chosen")
    (warning,) = call(package, NUMBA_CACHE_DIR=str(chosen))
    assert "NUMBA_CACHE_DIR" in warning


def test_numba_waits_for_the_first_kernel():
    code = (
        "import sys, zoo, zoo.ops.cfconv, zoo.models.schnet\n"
        "print('numba' in sys.modules)\n"
        "import torch\n"
        "zoo.models.schnet.SchNet(arguments=zoo.models.schnet.SchNetArguments())\n"
        "print('numba' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]
