"""The `zoo` command as people and scripts use it: text, JSON, exit codes, errors of a few lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import zoo
from zoo import cli


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch, capsys) -> Callable[..., Done]:
    """Run `zoo ...` in this process."""
    # main() sets what it finds unset: leave the environment as it was.
    monkeypatch.setenv("OMP_WAIT_POLICY", os.environ.get("OMP_WAIT_POLICY", "PASSIVE"))
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["zoo", *arguments])
        with pytest.raises(SystemExit) as exit_info:
            cli.main()
        out, err = capsys.readouterr()
        code = exit_info.value.code
        return Done(code if isinstance(code, int) else 1, out, err)

    return run


def test_ls_lists_every_name(command):
    done = command("ls")
    assert done.code == 0
    assert all(name in done.out for name in zoo.list())


def test_ls_json(command):
    entries = json.loads(command("ls", "--json").out)["entries"]
    assert [e["name"] for e in entries] == zoo.list()
    assert {e["name"] for e in entries if e["weights"]} == set(zoo.list(weights=True))


def test_show_says_unit_reference_licence_and_target(command):
    text = command("show", "schnet-qm9").out
    for part in ("U0 [eV]", "total energy", "CC0 1.0", "0.014 eV", "130,831"):
        assert part in text


def test_show_json_is_the_card(command):
    shown = json.loads(command("show", "schnet-qm9.mu", "--json").out)
    assert shown["predicts"] == ["mu"]
    assert shown["target"]["unit"] == "D"


def test_config_prints_every_field_with_its_meaning(command):
    done = command("config", "schnet-qm9", "train.lr=5e-4", "--preset", "quick", "--json")
    fields = {f["key"]: f for f in json.loads(done.out)["fields"]}
    assert fields["train.lr"]["value"] == 5e-4
    assert fields["train.lr"]["default"] == 1e-3
    assert all(f["meaning"] for f in fields.values())
    assert "train.lr" in command("config", "schnet-qm9").out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "schnet-qm8"], "nearest: 'schnet-qm9'"),
        (["show", "schnet-qm9.hom"], "nearest: 'homo'"),
        (["ls", "zzz*"], "no entry matches"),
        (["config", "schnet-qm9", "train.lrr=1"], "nearest: 'lr'"),
        (["config", "schnet-qm9", "train.lr"], "isn't key=value"),
        (["config", "schnet-qm9", "train.lr=-1"], "greater than 0"),
        (["run", "schnet-qm9", "--preset", "quik"], "nearest: 'quick'"),
        (["run", "missing.yaml"], "missing.yaml"),
        (["resume", "nowhere"], "no run at nowhere"),
        (["evaluate", "schnet-qm9", "--split", "tests"], "nearest: 'test'"),
        (["fetch"], "name one entry"),
        (["check"], "or give --layers"),
        (["check", "schnet-qm9", "--layers"], "or give --layers"),
        (["check", "--layers", "--backend", "export"], "--layers asks every backend"),
        (["check", "schnet-qm9", "--docs", "page.md"], "--docs is for --layers"),
        (["predict", "nowhere/weights.safetensors", "CCO"], "nowhere/weights.safetensors"),
    ],
)
def test_a_wrong_request_exits_2_with_a_short_error(command, arguments, says):
    done = command(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert says in done.err
    assert 1 <= len(done.err.strip().splitlines()) <= 3
    assert "Traceback" not in done.err


def test_an_error_with_json_is_an_object_too(command):
    done = command("show", "schnet-qm8", "--json")
    assert done.code == 2
    assert json.loads(done.out)["exit_code"] == 2


def test_unknown_option_exits_2(command):
    assert command("ls", "--jsn").code == 2


def test_cp_copies_a_recipe_that_validates(command, tmp_path):
    out = tmp_path / "schnet-qm9.yaml"
    assert command("cp", "schnet-qm9", str(tmp_path)).code == 0
    copied = json.loads(command("config", str(out), "--json").out)
    original = json.loads(command("config", "schnet-qm9", "--json").out)
    strip = [f for f in copied["fields"] if f["key"] != "entry"]
    assert strip == [f for f in original["fields"] if f["key"] != "entry"]
    again = command("cp", "schnet-qm9", str(tmp_path))
    assert again.code == 2
    assert "exists already" in again.err


def test_check_layers_prints_rows_and_writes_the_page(command, tmp_path, monkeypatch):
    from zoo.backends import layers

    few = [one for one in layers.listed() if one.name in ("Linear", "KNNIndex")]
    monkeypatch.setattr(layers, "listed", lambda: few)
    page = tmp_path / "layers.md"
    done = command("check", "--layers", "--docs", str(page), "--json")
    found = json.loads(done.out)
    assert done.code == 0 and found.keys() == {"layers", "summary", "versions"}
    rows = {row["name"]: row for row in found["layers"]}
    assert rows["Linear"]["ipu"] is True and rows["KNNIndex"]["ipu"] is None
    assert "1 of 2 layers; Basic blocks" in done.err
    assert "| `Linear` | yes | yes | yes | yes | yes |" in page.read_text(encoding="utf-8")
    table = command("check", "--layers").out
    assert table.startswith("Pooling") and "Linear" in table and "counts" in table


def test_doctor_passes_here(command):
    done = command("doctor", "--json")
    found = json.loads(done.out)
    assert done.code == 0, found
    assert {c["state"] for c in found["checks"]} <= {"ok", "missing"}


def test_debug_shows_the_traceback_and_changes_nothing_else(command, monkeypatch):
    monkeypatch.setenv("ZOO_DEBUG", "1")
    done = command("show", "schnet-qm8")
    assert done.code == 2 and done.out == ""
    assert "Traceback" in done.err and "RequestError" in done.err


def test_the_installed_command_answers_without_loading_torch(tmp_path):
    code = "import sys; sys.argv = ['zoo', 'ls']\nfrom zoo.cli import main\n"
    code += "try: main()\nfinally: print('torch' in sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stderr.strip() == "False"
    assert Path(tmp_path).exists()
