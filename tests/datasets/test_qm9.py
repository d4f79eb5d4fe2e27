"""QM9: both raw formats, the checks on them, energies, splits, where files are looked for."""

from __future__ import annotations

import csv
import gzip
import hashlib
import importlib.util
import json
from dataclasses import replace

import numpy as np
import pytest
from mirror import CONTENT, mirror
from qm9_archive import synthesize_original, write_archive, xyz_text
from random_graphs import same_arrays

from zoo import hub
from zoo.datasets import qm9, qm9_raw, qm9_synthetic
from zoo.errors import DataError, RequestError, UnavailableError

SIZE = 24


@pytest.fixture(scope="session")
def made_up(tmp_path_factory):
    """A made-up set: tables and, with six molecules more that are left out, the original layout."""
    place = tmp_path_factory.mktemp("qm9")
    qm9.synthesize(path=place / "tables", seed=3, size=SIZE)
    synthesize_original(path=place / "original", seed=3, size=SIZE, left_out=6)
    return place


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ZOO_DATA", raising=False)
    monkeypatch.setenv("ZOO_OFFLINE", "1")
    return tmp_path / "cache"


def copied(source, target, change=lambda name, text: text):
    target.mkdir()
    for path in source.iterdir():
        (target / path.name).write_text(change(path.name, path.read_text()))
    return target


def rows_of(folder):
    """The tables as Python's own csv module reads them, by number."""
    found = {}
    for path in folder.glob("*.csv"):
        with open(path, newline="") as file:
            found |= {int(row["Index"]): row for row in csv.DictReader(file)}
    return found


def test_tables_hold_what_a_plain_reader_finds(made_up):
    store = qm9.load(folder=made_up / "tables")
    rows = rows_of(made_up / "tables")
    assert store.graph["index"].tolist() == sorted(rows) == list(range(1, SIZE + 1))
    names = [p.name for p in qm9.FACTS.properties]
    assert store.graph["y"].shape == (SIZE, 12) and store.graph["y"].dtype == np.float64
    for at, number in enumerate(store.graph["index"]):
        row = rows[int(number)]
        atoms = slice(store.node_ptr[at], store.node_ptr[at + 1])
        symbols = [s.strip(" '") for s in row["Elements"].strip("[]").split(",")]
        assert len(symbols) == int(row["N_atoms"])
        assert [qm9_raw.ELEMENTS[s] for s in symbols] == store.node["z"][atoms].tolist()
        pos = np.array(
            json.loads(row["XYZ_Ang"].replace(".,", ".0,").replace(".]", ".0]")), np.float32
        )
        assert np.array_equal(pos, store.node["pos"][atoms])
        for name, value in zip(names, store.graph["y"][at], strict=True):
            factor = 27.211386245988 if qm9.FACTS.property(name).unit == "eV" else 1
            assert value == float(row[qm9_raw.COLUMNS[name]]) * factor


def test_methane_of_the_published_table(tmp_path):
    """A row as the distribution has it: exponents, numbers that end in a dot, quoting."""
    values = "157.7118,157.70997,157.70699,0.,13.21,-0.3877,0.1171,0.5048,35.3641,0.044749,"
    values += "-40.47893,-40.476062,-40.475117,-40.498597,6.469"
    pos = "[[-0.0126981359,1.0858041578,0.0080009958],[2.1997E-6,-0.0060313176,0.0019761204],"
    pos += "[1.0117308433,1.4637511618,0.0002765748],[-0.540815069,1.4475266138,-0.8766437152],"
    pos += "[-0.5238136345,1.4379326443,0.9063972942]]"
    row = '"dsgdb9nsd_000001.xyz",1,"C","InChI=1S/CH4/h1H4",5,"[4,1,0,0,0]","[\'C\',\'H\',\'H\','
    row += f'\'H\',\'H\']","{pos}","[0.,0.,0.,0.,0.]","[1341.307]",{values}'
    (tmp_path / "qm9_part1.csv").write_text(f"{qm9_synthetic._HEADER}\n{row}\n")
    store = qm9.load(folder=tmp_path)
    assert store.node["z"].tolist() == [6, 1, 1, 1, 1]
    assert store.node["pos"][1, 0] == np.float32(2.1997e-6)
    y = dict(zip((p.name for p in qm9.FACTS.properties), store.graph["y"][0], strict=True))
    assert y["mu"] == 0 and y["alpha"] == 13.21 and y["cv"] == 6.469 and y["r2"] == 35.3641
    assert y["U0"] == pytest.approx(-1101.4878, abs=1e-4)
    assert y["gap"] == pytest.approx(y["lumo"] - y["homo"])
    bound = {p: qm9.atomisation_energies(store=store, property=p)[0] for p in ("U0", "G")}
    assert bound["U0"] == pytest.approx(-17.172, abs=1e-3)
    assert bound["G"] == pytest.approx(-16.152, abs=1e-3)


def test_atomisation_energies_take_off_the_atoms(made_up):
    store = qm9.load(folder=made_up / "tables")
    symbol = {number: symbol for symbol, number in qm9_raw.ELEMENTS.items()}
    for name in ("U0", "U", "H", "G"):
        free = qm9.atom_energies(property=name)
        column = [p.name for p in qm9.FACTS.properties].index(name)
        found = qm9.atomisation_energies(store=store, property=name)
        for at in range(SIZE):
            z = store.node["z"][store.node_ptr[at] : store.node_ptr[at + 1]].tolist()
            atoms = sum(free[symbol[number]] for number in z)
            assert found[at] == pytest.approx(store.graph["y"][at, column] - atoms, abs=1e-9)
    with pytest.raises(RequestError, match="unknown total energy of qm9 'mu'"):
        qm9.atom_energies(property="mu")


def test_the_original_archive_gives_the_same_store(made_up):
    tables, original = (qm9.load(folder=made_up / kind) for kind in ("tables", "original"))
    assert same_arrays(tables, original)
    assert original.digest != tables.digest


def test_exponents_of_the_archive(tmp_path):
    one = qm9_synthetic.molecule(seed=0, number=1)
    pos = one.pos.copy()
    pos[0] = [2.1997e-6, -1.5e-7, 0.0]
    text = xyz_text(replace(one, pos=pos))
    assert "2.1997*^-6" in text
    write_archive(path=tmp_path / "a.tar.bz2", texts={"dsgdb9nsd_000001.xyz": text})
    found = qm9_raw.read_archive(tmp_path / "a.tar.bz2", left_out=set())
    assert found["pos"][0].tolist() == [2.1997e-6, -1.5e-7, 0.0]


def test_numbers_of_the_list_of_those_left_out(tmp_path):
    path = tmp_path / "uncharacterized.txt"
    path.write_text("\nList of 2 molecules\n====\n# Index\n      58   NC(=N)C#N  1.0\n 61  C  2.\n")
    assert qm9_raw.read_left_out(path) == {58, 61}


def test_a_folder_is_parsed_once(made_up, monkeypatch):
    first = qm9.load(folder=made_up / "tables")
    assert isinstance(first.node["pos"].base, np.memmap)
    monkeypatch.setattr(qm9, "_read", None)
    assert same_arrays(qm9.load(folder=made_up / "tables"), first)
    with pytest.raises(TypeError):
        qm9.load(folder=made_up / "original")


def first_row(text, old, new):
    """`text` with `old` replaced in its first molecule."""
    head, row, *rest = text.split("\n")
    assert old in row
    return "\n".join([head, row.replace(old, new, 1), *rest])


def cell(text, column):
    head, row, *_ = text.split("\n")
    return next(csv.DictReader([head, row]))[column]


def element(text):
    return first_row(text, "['C'", "['Cl'")


def unknown_element(text):
    return first_row(text, "['C'", "['S'")


def atom_count(text):
    size = cell(text, "N_atoms")
    return first_row(text, f'",{size},"', f'",{int(size) + 1},"')


def position_lost(text):
    pos = cell(text, "XYZ_Ang")
    return first_row(text, pos, "[" + pos[pos.index("],[") + 2 :])


def position_no_number(text):
    pos = cell(text, "XYZ_Ang")
    return first_row(text, pos, pos.replace("[[", "[[one", 1))


def position_infinite(text):
    pos = cell(text, "XYZ_Ang")
    return first_row(text, pos, "[[inf" + pos[pos.index(",") :])


def value_missing(text):
    return first_row(text, "," + cell(text, "InternalEnergy_0K_au") + ",", ",,")


def value_no_number(text):
    return first_row(text, "," + cell(text, "InternalEnergy_0K_au") + ",", ",?,")


def cut_short(text):
    return text[: text.rindex(",")]


def cut_in_quotes(text):
    return text[: text.rindex("]]")]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (element, r"molecule \d+: 'Cl' is none of QM9's elements"),
        (unknown_element, r"molecule \d+: 'S' is none of QM9's elements"),
        (atom_count, r"molecule \d+: atom count, elements and positions disagree"),
        (position_lost, r"molecule \d+: atom count, elements and positions disagree"),
        (position_no_number, r"molecule \d+: '\[\[one.* isn't a list of numbers"),
        (position_infinite, r"molecule \d+: '\[\[inf.* isn't a list of numbers"),
        (value_missing, r"molecule \d+ has no InternalEnergy_0K_au"),
        (value_no_number, r"molecule \d+: '\?' isn't a list of numbers"),
        (cut_short, r"molecule \d+ has no Heatcapacity_Cv_cal_mol_K"),
        (cut_in_quotes, r"isn't a QM9 table|molecule \d+ has no"),
        (lambda text: text.replace("XYZ_Ang", "XYZ", 1), "isn't a QM9 table"),
        (lambda text: text.split("\n")[0], "holds no molecules"),
        (lambda text: "", "isn't a QM9 table"),
    ],
)
def test_a_damaged_table_is_named(made_up, tmp_path, damage, message):
    def change(name, text):
        return damage(text) if name == "qm9_part2.csv" else text

    folder = copied(made_up / "tables", tmp_path / "bad", change)
    with pytest.raises(DataError, match=f"{folder / 'qm9_part2.csv'}.*{message}"):
        qm9.load(folder=folder)


def test_counts_that_are_wrong_in_turn_are_not_taken_for_right(made_up, tmp_path):
    """One atom more in one molecule and one less in the next keep the sums."""

    def change(name, text):
        if name != "qm9_part1.csv":
            return text
        head, one, two, *rest = text.split("\n")
        sizes = [next(csv.DictReader([head, row]))["N_atoms"] for row in (one, two)]
        one = one.replace(f'",{sizes[0]},"', f'",{int(sizes[0]) + 1},"', 1)
        two = two.replace(f'",{sizes[1]},"', f'",{int(sizes[1]) - 1},"', 1)
        return "\n".join([head, one, two, *rest])

    with pytest.raises(DataError, match="disagree"):
        qm9.load(folder=copied(made_up / "tables", tmp_path / "bad", change))


def test_a_part_given_twice_is_seen(made_up, tmp_path):
    folder = copied(made_up / "tables", tmp_path / "twice")
    (folder / "qm9_part4.csv").write_text((folder / "qm9_part1.csv").read_text())
    with pytest.raises(DataError, match=r"molecule \d+ is there twice"):
        qm9.load(folder=folder)


def test_a_folder_without_raw_files(made_up, tmp_path):
    with pytest.raises(RequestError, match="neither qm9_part.* nor dsgdb9nsd.* and unchar"):
        qm9.load(folder=tmp_path)
    (tmp_path / "dsgdb9nsd.xyz.tar.bz2").touch()
    with pytest.raises(RequestError, match=r"nor uncharacterized\.txt"):
        qm9.load(folder=tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "", "isn't a molecule of QM9"),
        (lambda text: "x" + text, "isn't a molecule of QM9"),
        (lambda text: text.split("\n")[0], "isn't a molecule of QM9"),
        (lambda text: "\n".join(text.split("\n")[:3]), "has 12 properties, 5 atom columns"),
        (lambda text: text.replace("\nC\t", "\nSi\t", 1), "'Si' is none of QM9's elements"),
        (lambda text: text.replace("\nC\t", "\nC\tone", 1), "isn't a list of numbers"),
    ],
)
def test_a_damaged_file_of_the_archive_is_named(tmp_path, change, message):
    texts = {
        f"dsgdb9nsd_{k:06d}.xyz": xyz_text(qm9_synthetic.molecule(seed=0, number=k))
        for k in (1, 2, 3)
    }
    texts["dsgdb9nsd_000002.xyz"] = change(texts["dsgdb9nsd_000002.xyz"])
    write_archive(path=tmp_path / "a.tar.bz2", texts=texts)
    with pytest.raises(DataError, match=f"{tmp_path / 'a.tar.bz2'}: dsgdb9nsd_000002.*{message}"):
        qm9_raw.read_archive(tmp_path / "a.tar.bz2", left_out=set())


@pytest.mark.parametrize("keep", [0, 100, -200])
def test_a_damaged_archive_is_named(made_up, tmp_path, keep):
    content = (made_up / "original" / "dsgdb9nsd.xyz.tar.bz2").read_bytes()
    (tmp_path / "dsgdb9nsd.xyz.tar.bz2").write_bytes(content[:keep])
    (tmp_path / "uncharacterized.txt").touch()
    with pytest.raises(DataError, match=r"dsgdb9nsd\.xyz\.tar\.bz2 (is damaged|holds no)"):
        qm9.load(folder=tmp_path)


# Where the published files come from: made-up ones stand in for them here.


def source_of(path, mirrors=()):
    content = path.read_bytes()
    return qm9.Source(
        filename=path.name,
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        mirrors=tuple(mirrors),
    )


@pytest.fixture
def published(made_up, monkeypatch):
    """The made-up set as the published one; no qm9pack unless a test brings it."""
    tables = sorted((made_up / "tables").iterdir())
    originals = [made_up / "original" / source.filename for source in qm9._ORIGINALS]
    index = np.arange(1, SIZE + 1, dtype="<i4").tobytes()
    monkeypatch.setattr(qm9, "_PARTS", tuple(source_of(path) for path in tables))
    monkeypatch.setattr(qm9, "_ORIGINALS", tuple(source_of(path) for path in originals))
    monkeypatch.setattr(qm9, "_INDEX_SHA256", hashlib.sha256(index).hexdigest())
    monkeypatch.setattr(qm9, "FACTS", replace(qm9.FACTS, counts={"molecules": SIZE}))
    monkeypatch.setattr(qm9, "_package_folder", lambda: None)
    return made_up


def test_the_package_comes_first_and_is_read_once(published, monkeypatch):
    monkeypatch.setattr(qm9, "_package_folder", lambda: published / "tables")
    store = qm9.load()
    assert len(store) == SIZE
    monkeypatch.setattr(qm9, "_published_files", None)  # nothing is looked for again
    assert same_arrays(qm9.load(), store)


@pytest.mark.parametrize("kind", ["tables", "original"])
def test_either_distribution_is_found_in_zoo_data(published, tmp_path, monkeypatch, kind):
    deep = tmp_path / "data" / "some" / "where"
    deep.mkdir(parents=True)
    for path in (published / kind).iterdir():
        content = path.read_bytes()
        if kind == "tables":  # zipped, as they may be
            (deep / f"{path.name}.gz").write_bytes(gzip.compress(content))
        else:
            (deep / path.name).write_bytes(content)
    monkeypatch.setenv("ZOO_DATA", str(tmp_path / "data"))
    assert same_arrays(qm9.load(), qm9.load(folder=published / "tables"))


def test_a_damaged_package_is_passed_over_with_a_warning(published, tmp_path, monkeypatch):
    def change(name, text):
        return text + " " if name == "qm9_part3.csv" else text

    damaged = copied(published / "tables", tmp_path / "package", change)
    monkeypatch.setattr(qm9, "_package_folder", lambda: damaged)
    monkeypatch.setenv("ZOO_DATA", str(published))
    with pytest.warns(UserWarning, match=r"qm9_part3\.csv is damaged"):
        assert len(qm9.load()) == SIZE


def test_without_any_the_remedies_are_named(published):
    with pytest.raises(UnavailableError) as caught:
        qm9.load()
    message = str(caught.value)
    assert "gnn-zoo[qm9]" in message and "ZOO_DATA" in message
    assert message.count("\n") <= 2


def test_a_wrong_file_in_zoo_data_is_refused(published, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "qm9_part1.csv").write_text("not it")
    monkeypatch.setenv("ZOO_DATA", str(tmp_path / "data"))
    with pytest.raises(DataError, match=r"qm9_part1\.csv in ZOO_DATA is not the file"):
        qm9.load()


def test_mirrors_come_last_and_not_offline(published, cache, monkeypatch):
    with mirror() as (address, asked):
        sources = []
        for source in qm9._ORIGINALS:
            sources.append(
                replace(
                    source,
                    sha256=hashlib.sha256(CONTENT).hexdigest(),
                    mirrors=(f"{address}/good/{source.filename}",),
                )
            )
        monkeypatch.setattr(qm9, "_ORIGINALS", tuple(sources))
        with pytest.raises(UnavailableError, match="ZOO_OFFLINE"):
            qm9.load()
        assert asked == []
        monkeypatch.setenv("ZOO_OFFLINE", "0")
        files = qm9._published_files()
        assert [path.parent for path in files] == [cache / "raw" / "qm9"] * 2
        assert [path.read_bytes() for path in files] == [CONTENT] * 2
        assert asked == ["good", "good"]
        with pytest.raises(DataError, match="is damaged"):  # these are no archives
            qm9.load()
        assert asked == ["good", "good"]


def test_another_number_of_molecules_is_refused(published, monkeypatch):
    monkeypatch.setattr(qm9, "_package_folder", lambda: published / "tables")
    monkeypatch.setattr(qm9, "FACTS", replace(qm9.FACTS, counts={"molecules": SIZE + 1}))
    with pytest.raises(DataError, match=f"QM9 has {SIZE + 1} molecules, these are {SIZE}"):
        qm9.load()
    monkeypatch.setattr(qm9, "FACTS", replace(qm9.FACTS, counts={"molecules": SIZE}))
    monkeypatch.setattr(qm9, "_INDEX_SHA256", "0" * 64)
    with pytest.raises(DataError, match="numbers are not those of the standard set"):
        qm9.load()


def test_facts():
    facts = qm9.FACTS
    assert [p.name for p in facts.properties] == list(qm9_raw.COLUMNS)
    assert facts.counts["molecules"] == 130_831 == sum(qm9.SPLIT_SIZES.values())
    assert {p.unit for p in facts.properties} == {"D", "a0^3", "eV", "a0^2", "cal/mol/K"}
    assert [p.name for p in facts.properties if p.reference] == ["U0", "U", "H", "G"]
    assert set(facts.splits) == {f"random-{seed}" for seed in range(3)}
    for source in facts.sources:
        assert len(source.sha256) == 64 and source.size > 0
    assert all(source.mirrors for source in facts.sources if source.filename[0] != "q")


def test_splits(made_up):
    store = qm9.load(folder=made_up / "tables")
    parts, digest = qm9.split(store=store, seed=0)
    assert list(parts) == ["train", "valid", "test"]
    assert np.array_equal(np.sort(np.concatenate(list(parts.values()))), np.arange(SIZE))
    assert min(len(part) for part in parts.values()) >= 1
    again, same = qm9.split(store=store, seed=0)
    assert same == digest and all(np.array_equal(parts[k], again[k]) for k in parts)
    assert qm9.split(store=store, seed=1)[1] != digest


class Whole:
    """Stands for the whole set where only its length matters."""

    def __len__(self):
        return 130_831


@pytest.mark.parametrize("seed", range(3))
def test_splits_of_the_whole_set_are_those_on_record(seed):
    parts, digest = qm9.split(store=Whole(), seed=seed)
    assert digest == qm9.FACTS.splits[f"random-{seed}"]
    assert {name: len(part) for name, part in parts.items()} == qm9.SPLIT_SIZES


def test_another_split_than_the_one_on_record_is_refused(monkeypatch):
    splits = {"random-0": "f" * 64}
    monkeypatch.setattr(qm9, "FACTS", replace(qm9.FACTS, splits=splits))
    with pytest.raises(DataError, match="random split of seed 0 came out as"):
        qm9.split(store=Whole(), seed=0)


@pytest.mark.data
@pytest.mark.skipif(importlib.util.find_spec("qm9pack") is None, reason="needs qm9pack")
def test_the_real_set(monkeypatch):
    monkeypatch.delenv("ZOO_CACHE")  # parsed once, as users have it
    store = qm9.load()
    assert len(store) == 130_831
    assert same_arrays(store, qm9.load()) and hub.cache_dir() in store.folder.parents
    sizes = store.nodes_per_graph()
    assert (sizes.min(), sizes.max()) == (3, 29) and sizes.mean() == pytest.approx(18.03, abs=0.01)
    assert store.graph["index"][:3].tolist() == [1, 2, 3] and store.graph["index"][-1] == 133_885
    bound = qm9.atomisation_energies(store=store, property="U0")
    assert bound[0] == pytest.approx(-17.17, abs=0.01)  # methane
    assert bound.min() > -140 and bound.max() < -8  # and none is unbound
    names = [p.name for p in qm9.FACTS.properties]
    ethanol = store.graph["y"][store.graph["index"].tolist().index(14)]
    assert ethanol[names.index("U0")] == pytest.approx(-4217.02, abs=0.01)
    y = dict(zip(names, store.graph["y"].T, strict=True))
    assert np.abs(y["lumo"] - y["homo"] - y["gap"]).max() < 0.01
    assert (y["U0"] < y["U"]).all() and (y["G"] < y["H"]).all()
    assert y["mu"].mean() == pytest.approx(2.67, abs=0.01)
