"""Names, the registry file, YAML 1.2 and cards."""

import json
import subprocess
import sys
import types
import warnings

import pytest

from zoo import registry
from zoo.datasets.facts import DatasetFacts, Property
from zoo.errors import RequestError

SHA256 = "ab" * 32

BLOCKS = f"""
net-data:
  summary: A net for data
  recipe: net-data.yaml
  aliases: [old-net]
  tags:
    big:
      weights: {{file: net.safetensors, sha256: {SHA256}, size: 12, licence: MIT}}
      measured: {{test mae: 1.5e-2}}
      measured_on: two cores
      note: meant for tests
    small: {{}}
other-data:
  recipe: other.yaml
  tags: {{only: {{weights: null}}}}
"""

RECIPE = """
entry: net-data
task: energy
data: {adapter: pretend, property: E}
model: {architecture: net, layers: 3}
target: {value: 1e-2, unit: eV, protocol: theirs, source: paper}
tags:
  small: {model: {layers: 1}, target: {value: 2e-2}}
"""

FACTS = DatasetFacts(
    name="pretend",
    title="Pretend",
    licence="CC0",
    citation="Nobody (2020)",
    properties=(Property(name="E", unit="eV", description="energy", reference="total"),),
    sources=(),
    counts={"molecules": 3},
    splits={"random seed 0": SHA256},
    notes=("small molecules only",),
)


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A registry, a recipe and an adapter of their own."""
    (tmp_path / "registry.yaml").write_text(BLOCKS)
    (tmp_path / "net-data.yaml").write_text(RECIPE)
    monkeypatch.setattr(registry, "REGISTRY", tmp_path / "registry.yaml")
    monkeypatch.setattr(registry, "RECIPES", tmp_path)
    module = types.ModuleType("zoo.datasets.pretend")
    module.FACTS = FACTS
    monkeypatch.setitem(sys.modules, "zoo.datasets.pretend", module)
    registry.entries.cache_clear()
    yield tmp_path
    registry.entries.cache_clear()


def test_the_shipped_registry_is_valid():
    entries = registry.entries()
    tags = ["U0", "U", "H", "G", "mu", "alpha", "homo", "lumo", "gap", "r2", "zpve", "cv"]
    assert list(entries["schnet-qm9"].tags) == tags
    for name in registry.full_names():
        entry, tag = registry.resolve(name)
        assert f"{entry.name}.{tag}" == name


def test_names_and_tags(house):
    assert registry.full_names() == ["net-data.big", "net-data.small", "other-data.only"]
    entry, tag = registry.resolve("net-data")
    assert (entry.name, tag) == ("net-data", "big")
    assert registry.resolve("net-data.small")[1] == "small"
    assert entry.tags["big"].weights.mirrors == []
    assert entry.tags["small"].weights is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("net-dta", "unknown entry 'net-dta'; nearest: 'net-data'\n`zoo ls` lists them"),
        ("Net-Data", "unknown entry 'Net-Data'; nearest: 'net-data'\n`zoo ls` lists them"),
        ("zzz.q", "unknown entry 'zzz.q'\n`zoo ls` lists them"),
        ("net-data.smal", "unknown tag of net-data 'smal'; nearest: 'small'\nknown: big, small"),
        ("net-data.", "unknown tag of net-data ''\nknown: big, small"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(house, name, message):
    with pytest.raises(RequestError) as caught:
        registry.resolve(name)
    assert str(caught.value) == message


def test_an_older_name_works_and_warns(house):
    with pytest.warns(FutureWarning, match="old-net is now called net-data"):
        entry, tag = registry.resolve("old-net.small")
    assert (entry.name, tag) == ("net-data", "small")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        registry.resolve("net-data")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("measured_on", "measuredon", r"net-data: unknown key 'tags.big.measuredon'; nearest: 'm"),
        ("licence:", "license:", r"unknown key 'tags.big.weights.license'; nearest: 'licence'"),
        ("recipe: net-data.yaml", "recipes: net-data.yaml", "unknown key 'recipes'; nearest"),
        (SHA256, "abc", r"net-data: tags.big.weights.sha256: String should match"),
        ("size: 12", "size: 0", r"tags.big.weights.size: .*greater than 0"),
        ("net.safetensors", "../net.safetensors", r"tags.big.weights.file"),
        ("net.safetensors", "net.pt", r"tags.big.weights.file"),
        ("tags: {only: {weights: null}}", "tags: {}", r"other-data: tags"),
        ("aliases: [old-net]", "aliases: [other-data]", "name or alias twice: other-data"),
        ("other-data:", "net-data:", r"registry.yaml, line 13: found duplicate key"),
        ("recipe: other.yaml", "recipe: [other.yaml", r"registry.yaml, line 15: "),
    ],
)
def test_a_wrong_registry_says_where(house, before, after, message):
    text = BLOCKS.replace(before, after)
    assert text != BLOCKS
    (house / "registry.yaml").write_text(text)
    with pytest.raises(RequestError, match=message) as caught:
        registry.entries()
    assert str(house / "registry.yaml") in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


def test_yaml_is_version_1_2():
    text = "a: 1e-3\nb: NO\nc: yes\nd: 010\ne: 12:30:45\nf: 5E4\ng: null\nh: true\ni: [1, .5]"
    assert registry.read_yaml(text) == {
        "a": 0.001,
        "b": "NO",
        "c": "yes",
        "d": 10,
        "e": "12:30:45",
        "f": 50000.0,
        "g": None,
        "h": True,
        "i": [1, 0.5],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "mine, line 3: found duplicate key"),
        ("a: 1\nb: [1", "mine, line 2: expected"),
        ("a: !!python/object/apply:os.getcwd []", "mine, line 1: could not determine"),
        ("- 1", "mine: keys and values are expected, not list"),
        ("", "mine: keys and values are expected, not NoneType"),
        ("a: \x07", "mine: .*special characters are not allowed"),
    ],
)
def test_wrong_yaml_says_where(text, message):
    with pytest.raises(RequestError, match=message) as caught:
        registry.read_yaml(text, name="mine")
    assert len(str(caught.value).splitlines()) == 1


def test_yaml_files_are_named(tmp_path):
    path = tmp_path / "x.yaml"
    with pytest.raises(RequestError, match=r"cannot read .*x\.yaml: No such file"):
        registry.read_yaml(path)
    path.write_bytes(b"a: \xff\xfe")
    with pytest.raises(RequestError, match=r"x\.yaml: .*utf-8"):
        registry.read_yaml(path)
    path.write_text("unit: Å", encoding="utf-8")
    assert registry.read_yaml(path) == {"unit": "Å"}


def test_a_card_is_joined_from_the_three(house):
    card = registry.card("net-data")
    assert card.name == "net-data.big"
    assert (card.summary, card.task, card.architecture) == ("A net for data", "energy", "net")
    assert (card.dataset.licence, card.dataset.citation) == ("CC0", "Nobody (2020)")
    assert [(p.name, p.unit, p.reference) for p in card.dataset.properties] == [
        ("E", "eV", "total")
    ]
    assert card.predicts == ["E"]
    assert card.dataset.counts == {"molecules": 3}
    assert card.dataset.splits == {"random seed 0": SHA256}
    assert card.target == {"value": 0.01, "unit": "eV", "protocol": "theirs", "source": "paper"}
    assert card.measured == {"test mae": 0.015}
    assert card.weights.sha256 == SHA256
    assert card.limits == ["small molecules only", "meant for tests"]
    plain = json.loads(json.dumps(card.as_dict()))
    assert plain["weights"]["licence"] == "MIT"
    assert plain["dataset"]["properties"][0]["unit"] == "eV"


def test_a_tag_lays_its_overrides_over_the_recipe(house):
    entry, tag = registry.resolve("net-data.small")
    config = registry.recipe(entry=entry, tag=tag)
    assert config["model"] == {"architecture": "net", "layers": 1}
    assert "tags" not in config
    card = registry.card("net-data.small")
    assert card.target["value"] == 0.02
    assert card.target["source"] == "paper"
    assert card.as_dict()["weights"] is None


def test_a_card_that_cannot_be_joined_says_why(house):
    with pytest.raises(RequestError, match=r"cannot read .*other\.yaml"):
        registry.card("other-data")
    (house / "other.yaml").write_text("task: energy\nmodel: {}\ndata: {adapter: qm8}")
    with pytest.raises(RequestError, match=r"unknown adapter in .*other\.yaml 'qm8'"):
        registry.card("other-data")
    (house / "other.yaml").write_text("task: energy\nmodel: {}\ndata: {adapter: pretend}")
    with pytest.raises(RequestError, match=r"other\.yaml: model\.architecture is missing"):
        registry.card("other-data")


def test_adapters_by_name(house):
    module, facts = registry.adapter("pretend")
    assert module.FACTS is facts is FACTS
    module, facts = registry.adapter("moleculenet.esol")
    assert module.__name__ == "zoo.datasets.moleculenet" and facts.name == "moleculenet.esol"
    (house / "other.yaml").write_text(
        "task: property\nmodel: {architecture: net}\n"
        "data: {adapter: moleculenet.bace, property: Class}"
    )
    card = registry.card("other-data")
    assert card.dataset.title == "BACE" and card.predicts == ["Class"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "moleculenet.eso",
            r"unknown adapter 'moleculenet.eso'; nearest: 'moleculenet.esol'\nknown: ",
        ),
        ("moleculnet.esol", r"unknown adapter 'moleculnet.esol'; nearest: 'moleculenet.esol'"),
        ("moleculenet", r"unknown adapter 'moleculenet'; nearest: 'moleculenet\.\w+'"),
        ("qm8", r"unknown adapter 'qm8'; nearest: 'qm9'"),
        ("qm9.U0", r"unknown adapter 'qm9.U0'; nearest: 'qm9'"),
        ("qm9_raw", r"unknown adapter 'qm9_raw'; nearest: 'qm9'"),
        ("", r"unknown adapter ''"),
        ("..errors", r"unknown adapter '..errors'"),
    ],
)
def test_an_unknown_adapter_suggests_the_nearest(name, message):
    with pytest.raises(RequestError, match=message):
        registry.adapter(name)


@pytest.mark.parametrize("name", registry.full_names())
def test_every_shipped_card_is_whole(name):
    card = registry.card(name)
    properties = {p.name: p for p in card.dataset.properties}
    assert card.name == name
    assert card.predicts and all(properties[p].unit for p in card.predicts)
    unit = properties[card.predicts[0]].unit if card.target["metric"] in ("mae", "rmse") else ""
    assert card.target.get("unit", "") == unit
    assert card.target["value"] > 0 and card.target["protocol"] and card.target["source"]
    assert card.dataset.licence and card.dataset.citation and card.dataset.counts
    assert json.loads(json.dumps(card.as_dict()))["name"] == name


def test_listing_loads_nothing_heavy():
    code = (
        "import sys, zoo.registry; zoo.registry.full_names()\n"
        "heavy = {'torch', 'torch_geometric', 'numpy', 'pandas', 'mlflow', 'numba', 'rdkit',"
        " 'ase', 'requests', 'pooch', 'matplotlib', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
