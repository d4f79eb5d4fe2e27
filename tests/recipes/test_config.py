"""Recipe configs: presets, overrides, YAML 1.2, and errors that name the nearest key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from zoo import registry
from zoo.errors import RequestError
from zoo.recipes.config import as_config, describe, load_config, with_overrides

RECIPES = sorted(registry.RECIPES.rglob("*.yaml"))


def fields(model: BaseModel, prefix: str = "") -> set[str]:
    """Every leaf of a model, by its dotted key."""
    found = set()
    for name in type(model).model_fields:
        value = getattr(model, name)
        inner = isinstance(value, BaseModel)
        found |= fields(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}"}
    return found


def lines(error: pytest.ExceptionInfo[RequestError]) -> list[str]:
    text = str(error.value).split("\n")
    assert 1 <= len(text) <= 3
    return text


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_valid_with_every_preset_and_tag(path: Path) -> None:
    raw = registry.read_yaml(path)
    entries = [e for e in registry.entries().values() if e.recipe == path.name]
    assert entries, f"no entry of the registry uses {path.name}"
    for entry in entries:
        assert set(raw.get("tags", {})) == set(entry.tags)
        for tag in entry.tags:
            for preset in [*raw["presets"], "full"]:
                config = load_config(f"{entry.name}.{tag}", preset=preset)
                assert config.entry == f"{entry.name}.{tag}"
                assert config.target is not None and config.target.value > 0
    assert path.read_text().startswith(f"# zoo run {path.stem}"), "it opens with its command"


def test_the_default_is_the_full_preset_of_the_first_tag() -> None:
    assert load_config("schnet-qm9") == load_config("schnet-qm9.U0", preset="full")
    full, smoke = load_config("schnet-qm9"), load_config("schnet-qm9", preset="smoke")
    assert full.data.synthetic == 0 and smoke.data.synthetic > 0
    assert smoke.model.arguments.features < full.model.arguments.features
    assert smoke.model.arguments.readout == full.model.arguments.readout


def test_tags_lie_over_the_recipe_and_presets_over_tags() -> None:
    config = load_config("schnet-qm9.mu", preset="smoke")
    assert config.data.property == "mu" and config.model.arguments.readout == "dipole"
    assert config.model.arguments.features == 32
    assert config.target is not None
    assert (config.target.value, config.target.unit) == (0.033, "D")


def test_overrides_go_last_and_are_yaml_1_2() -> None:
    config = load_config(
        "schnet-qm9",
        preset="smoke",
        overrides=["train.lr=1e-3", "train.epochs=7", "train.tracking=false", "train.lr=2E-4"],
    )
    assert config.train.lr == 2e-4 and isinstance(config.train.lr, float)
    assert config.train.epochs == 7 and config.train.tracking is False
    nested = load_config("schnet-qm9", overrides=["model.arguments.knots=64"])
    assert nested.model.arguments.knots == 64 and nested.model.arguments.features == 128
    # YAML 1.1 would make a boolean of it, and of 1e-3 a text.
    with pytest.raises(RequestError, match="unknown property of qm9 'NO'"):
        from zoo.recipes.energy import open_data

        open_data(load_config("schnet-qm9", overrides=["data.property=NO", "data.synthetic=9"]))


def test_the_shipped_recipe_holds_numbers_as_numbers() -> None:
    raw = registry.read_yaml(registry.RECIPES / "schnet-qm9.yaml")
    assert raw["train"]["lr"] == 1e-3  # PyYAML reads the text "1e-3" here


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("train.learning_rate=1", "unknown key 'train.learning_rate'"),
        ("train.epoch=1", "unknown key 'train.epoch'; nearest: 'epochs'"),
        ("modell.architecture=schnet", "unknown key 'modell'; nearest: 'model'"),
        ("model.arguments.featurs=3", "nearest: 'features'"),
        ("data.adapter=qm8", "data.adapter: Input should be 'qm9'"),
        ("train.epochs=0", "train.epochs: Input should be greater than or equal to 1"),
        ("train.epochs=2.5", "train.epochs"),
        ("train.lr=quick", "train.lr: Input should be a valid number"),
        ("train.lr=.nan", "train.lr"),
        ("train.lr=.inf", "train.lr"),
        ("train.clip_norm=.inf", "train.clip_norm"),
        ("train.lr=", "train.lr"),
        ("train.schedule=linear", "'cosine', 'plateau' or 'constant'"),
        ("train=5", "train: "),
        ("train.lr.x=5", "train.lr"),
        ("train.lr=[1", "override 'train.lr=[1'"),
        ("train.lr: 5", "isn't key=value, such as train.lr=5e-4"),
        ("=5", "isn't key=value"),
        ("--lr=5", "unknown key '--lr'"),
        ("train..lr=5", "unknown key 'train.'"),
        ("task=forecast", "task"),
        ("train.seed=-1", "train.seed"),
        ("model.arguments.cutoff=.inf", "cutoff"),
    ],
)
def test_a_wrong_override_says_which_key_and_what_is_known(override: str, says: str) -> None:
    with pytest.raises(RequestError) as error:
        load_config("schnet-qm9", overrides=[override])
    assert says in lines(error)[0]


def test_an_unknown_preset_or_entry_names_the_nearest() -> None:
    with pytest.raises(RequestError) as error:
        load_config("schnet-qm9", preset="smok")
    assert lines(error) == ["unknown preset 'smok'; nearest: 'smoke'", "known: smoke, quick, full"]
    with pytest.raises(RequestError, match="unknown entry 'shnet-qm9'; nearest: 'schnet-qm9'"):
        load_config("shnet-qm9")
    with pytest.raises(RequestError, match="unknown tag of schnet-qm9 'HOMO'; nearest: 'homo'"):
        load_config("schnet-qm9.HOMO")


def test_a_recipe_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = (registry.RECIPES / "schnet-qm9.yaml").read_text()
    path.write_text(text.replace("entry: schnet-qm9", "entry: mine"))
    config = load_config(path, preset="smoke", overrides=["train.lr=3e-4"])
    assert config.entry == "mine.U0" and config.train.lr == 3e-4
    assert config.model == load_config("schnet-qm9", preset="smoke").model

    other = load_config(f"{path}:mu")
    assert other.entry == "mine.mu" and other.data == load_config("schnet-qm9.mu").data
    assert other.model.arguments.readout == "dipole"
    with pytest.raises(RequestError, match=r"unknown tag in .*mine.yaml 'homos'; nearest: 'homo'"):
        load_config(f"{path}:homos")
    path.write_text(text.replace("entry: schnet-qm9", "entry: ../../mine"))
    with pytest.raises(RequestError, match="entry"):
        load_config(path)
    with pytest.raises(RequestError, match="entry is|entry names"):
        load_config("schnet-qm9", overrides=["entry=other"])
    unnamed = tmp_path / "my recipe.yaml"
    unnamed.write_text(text.replace("entry: schnet-qm9\n", ""))
    assert load_config(unnamed).entry == "my-recipe.U0"

    path.write_text(text.replace("\n  epochs:", "\n  epohcs:"))
    with pytest.raises(RequestError) as error:
        load_config(str(path))
    assert f"{path}: unknown key 'train.epohcs'; nearest: 'epochs'" in lines(error)[0]

    path.write_text("entry: mine\ntask: [\n")
    with pytest.raises(RequestError, match=r"mine\.yaml, line \d"):
        load_config(path)
    with pytest.raises(RequestError, match=r"cannot read .*absent\.yaml"):
        load_config(tmp_path / "absent.yaml")
    with pytest.raises(RequestError, match="cannot read"):
        load_config(tmp_path / "mine.yaml" / "no.yaml")


@pytest.mark.parametrize(
    ("key", "value"),
    [("presets", "{smoke: }"), ("presets", "[smoke]"), ("tags", "[U0]"), ("tags", "U0")],
)
def test_a_recipe_with_odd_presets_or_tags_is_an_error_not_a_crash(
    tmp_path: Path, key: str, value: str
) -> None:
    path = tmp_path / "odd.yaml"
    raw = (registry.RECIPES / "schnet-qm9.yaml").read_text().partition("presets:")[0]
    path.write_text(f"{raw}{key}: {value}\n")
    if value == "{smoke: }":  # an empty preset changes nothing
        assert load_config(path, preset="smoke").train == load_config(path).train
        return
    with pytest.raises(RequestError, match=f"{key}"):
        load_config(path, preset="smoke")


def test_a_relative_data_folder_stays_the_same_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config("schnet-qm9", overrides=["data.folder=raw"])
    assert config.data.folder == tmp_path / "raw"
    monkeypatch.setenv("HOME", str(tmp_path))
    config = load_config("schnet-qm9", overrides=["data.folder=~/raw"])
    assert config.data.folder == tmp_path / "raw"


def test_describe_covers_every_field_with_a_meaning() -> None:
    config = load_config("schnet-qm9", preset="smoke")
    rows = {row["key"]: row for row in describe(config)}
    assert set(rows) == fields(config)
    assert all(row["meaning"] for row in rows.values())
    assert rows["train.lr"]["value"] == 1e-3 and rows["train.lr"]["allowed"] == "> 0"
    assert rows["train.schedule"]["allowed"] == "cosine | plateau | constant"
    assert rows["train.epochs"]["value"] == 3 and rows["train.epochs"]["default"] is None
    assert rows["train.ema_decay"]["allowed"] == ">= 0, < 1"
    assert rows["model.arguments.cutoff"]["meaning"].endswith("[Å]")
    # What isn't set is listed too.
    bare = config.model_copy(update={"target": None})
    assert "target" in {row["key"] for row in describe(bare)}


def test_a_config_survives_json_and_overrides_of_it() -> None:
    config = load_config("schnet-qm9.r2", preset="smoke", overrides=["data.folder=/raw"])
    assert as_config(json.loads(config.model_dump_json()), where="a file") == config
    other = with_overrides(config, ["train.lr=0.5"], where="x/config.json")
    assert other.train.lr == 0.5 and other.data == config.data
    with pytest.raises(RequestError, match=r"x/config\.json: unknown key 'train\.rate'"):
        with_overrides(config, ["train.rate=0.5"], where="x/config.json")
