"""The layout that readers and builds rely on."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import zoo

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["models", "datasets", "recipes", "registry.yaml"])
def test_links_at_the_root_lead_into_the_package(name):
    assert (ROOT / name).is_symlink()
    assert (ROOT / name).resolve() == ROOT / "zoo" / name


def test_an_install_exposes_zoo_alone():
    code = (
        "import importlib.util as u, zoo\n"
        "print([n for n in ('models', 'datasets', 'recipes') if (s := u.find_spec(n)) and"
        " any(str(p).startswith(sys.argv[1]) for p in s.submodule_search_locations or [])])"
    )
    run = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}", str(ROOT)],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "[]"


def test_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == zoo.__version__


def test_every_dependency_is_pinned_in_the_constraints():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["qm9"], *extras["test"]]
    names = {re.split(r"[<>=!~\[ ;]", line)[0].replace(".", "-") for line in wanted}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {line.split("==")[0] for line in lines if "==" in line}
    assert names <= pinned


def test_every_module_says_what_it_is_for():
    bare = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "zoo").rglob("*.py")
        if not path.read_text(encoding="utf-8").startswith('"""')
    ]
    assert bare == []
