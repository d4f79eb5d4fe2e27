"""Weight files and checkpoints: the same bytes each time, whole or not at all, refused if wrong."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time

import pytest
import torch

from zoo import artifact
from zoo.errors import RequestError, UnavailableError, WeightsError


def spec(**changes):
    fields = {
        "entry": "schnet-qm9.U0",
        "task": "energy",
        "architecture": "schnet",
        "arguments": {"features": 8, "cutoff": 10.0},
        "batch_shape": {"nodes": 64, "edges": 512, "graphs": 8},
        "properties": [{"name": "U0", "unit": "eV", "reference": "total"}],
        "atom_refs": {"U0": {"H": -13.6, "C": -1029.9}},
        "scaling": {"U0": {"mean": -4.2, "std": 1.5, "per_atom": True}},
        "elements": ["H", "C"],
        "ranges": {"atoms": [3, 29]},
    }
    return artifact.Spec(**{**fields, **changes})


def tensors():
    generator = torch.Generator().manual_seed(0)
    return {
        "b": torch.randn(3, 5, generator=generator),
        "a": torch.arange(4),
        "t": torch.randn(4, 2, generator=generator).T,
        "s": torch.tensor(2.5, dtype=torch.float64),
    }


@pytest.fixture
def weight_file(tmp_path):
    path = tmp_path / "w.safetensors"
    artifact.write_weights(path=path, tensors=tensors(), spec=spec())
    return path


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "deep" / "w.safetensors"
    sha256 = artifact.write_weights(path=path, tensors=tensors(), spec=spec())
    assert sha256 == artifact.sha256_file(path)
    read, values = artifact.read_weights(path)
    assert read == spec() == artifact.read_spec(path)
    assert values.keys() == tensors().keys()
    for name, tensor in tensors().items():
        assert values[name].dtype == tensor.dtype
        assert torch.equal(values[name], tensor)
    assert [p.name for p in path.parent.iterdir()] == ["w.safetensors"]


def test_tied_tensors_and_overwriting(weight_file):
    shared = torch.ones(3)
    artifact.write_weights(path=weight_file, tensors={"x": shared, "y": shared}, spec=spec())
    _, values = artifact.read_weights(weight_file)
    assert torch.equal(values["x"], values["y"])


def test_the_same_content_gives_the_same_bytes_in_any_process(weight_file):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_artifact as t\n"
        "given = dict(reversed(t.tensors().items()))\n"
        "print(t.artifact.write_weights(path=sys.argv[2], tensors=given, spec=t.spec()))"
    )
    other = weight_file.with_name("other.safetensors")
    run = subprocess.run(
        [sys.executable, "-c", code, os.path.dirname(__file__), str(other)],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == artifact.sha256_file(weight_file)
    assert other.read_bytes() == weight_file.read_bytes()


def test_the_spec_is_read_without_torch(weight_file):
    code = (
        "import sys; from zoo.artifact import read_spec\n"
        "print(read_spec(sys.argv[1]).entry, 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(weight_file)], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["schnet-qm9.U0", "False", "False"]


def test_a_file_cut_short_anywhere_is_refused(weight_file):
    whole = weight_file.read_bytes()
    for length in [*range(40), *range(40, len(whole), 97), len(whole) - 1]:
        weight_file.write_bytes(whole[:length])
        for read in (artifact.read_spec, artifact.read_weights):
            with pytest.raises(WeightsError, match=r"w\.safetensors"):
                read(weight_file)
    weight_file.write_bytes(whole + b"\0")
    with pytest.raises(WeightsError, match="damaged"):
        artifact.read_spec(weight_file)


def test_no_length_of_a_header_is_taken_for_a_pickle(tmp_path):
    path = tmp_path / "w.safetensors"
    firsts = set()
    for length in range(0, 256, 8):
        made = spec(extra={"text": "x" * length})
        artifact.write_weights(path=path, tensors=tensors(), spec=made)
        firsts.add(path.read_bytes()[0])
        assert artifact.read_spec(path) == made
    assert 0x80 in firsts, "the first byte of every pickle"


def test_pickles_are_refused_unread(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    path = tmp_path / "w.safetensors"
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(WeightsError, match="is a pickle"):
        artifact.read_weights(path)
    torch.save({"w": torch.ones(2)}, path)
    with pytest.raises(WeightsError, match="is a pickle"):
        artifact.read_weights(path)
    assert not (tmp_path / "ran").exists()


def rewritten(path, change):
    """The file with its spec's JSON changed by hand."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    raw = json.loads(header["__metadata__"]["zoo"])
    change(raw)
    header["__metadata__"]["zoo"] = json.dumps(raw)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw.update(format=2, novelty=1), "newer gnn-zoo"),
        (lambda raw: raw.update(format="two"), "damaged spec"),
        (lambda raw: raw.pop("entry"), "damaged spec: entry"),
        (lambda raw: raw.update(surprise=1), "damaged spec: surprise"),
        (lambda raw: raw["scaling"]["U0"].update(std=0), "damaged spec: scaling.U0.std"),
    ],
)
def test_a_spec_that_is_newer_or_wrong_is_refused(weight_file, change, message):
    rewritten(weight_file, change)
    with pytest.raises(WeightsError, match=message):
        artifact.read_spec(weight_file)


def test_safetensors_of_others_and_missing_files(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "theirs.safetensors"
    save_file({"w": torch.ones(2)}, path, metadata={"format": "pt"})
    with pytest.raises(WeightsError, match="not written by the zoo"):
        artifact.read_spec(path)
    for absent in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(RequestError, match="no weight file at"):
            artifact.read_spec(absent)


def test_a_spec_cannot_hold_what_json_cannot():
    with pytest.raises(ValueError, match="finite"):
        spec(atom_refs={"U0": {"H": float("nan")}})


WRITER = """
import sys, torch
from zoo import artifact
sys.path.insert(0, sys.argv[1])
import test_artifact as t
big = {"x": torch.ones(2_000_000)}
print("ready", flush=True)
while True:
    if sys.argv[2] == "weights":
        artifact.write_weights(path=sys.argv[3], tensors=big, spec=t.spec())
    else:
        artifact.write_checkpoint(
            directory=sys.argv[3], weights=big, spec=t.spec(), state_tensors=big, state={})
"""


def killed_while_writing(kind, path, *, after):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, os.path.dirname(__file__), kind, str(path)],
        stdout=subprocess.PIPE,
    )
    with writer.stdout:
        writer.stdout.readline()
        deadline = time.monotonic() + 60
        while not path.exists():
            assert time.monotonic() < deadline and writer.poll() is None
            time.sleep(0.001)
        time.sleep(after)
        writer.send_signal(signal.SIGKILL)
        writer.wait()


def test_killed_while_writing_leaves_a_whole_file(tmp_path):
    path = tmp_path / "w.safetensors"
    for after in (0.003, 0.02):
        killed_while_writing("weights", path, after=after)
        _, values = artifact.read_weights(path)
        assert values["x"].sum() == 2_000_000
    artifact.write_weights(path=path, tensors=tensors(), spec=spec())
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]


def test_killed_while_writing_leaves_a_whole_checkpoint(tmp_path):
    place = tmp_path / "last"
    for after in (0.003, 0.02):
        killed_while_writing("checkpoint", place, after=after)
        state_tensors, _ = artifact.read_state(place)
        assert state_tensors["x"].sum() == 2_000_000
        assert artifact.read_weights(artifact.weights_path(place))[0] == spec()
    checkpoint(place)
    assert [p.name for p in tmp_path.iterdir()] == ["last"]


def checkpoint(directory, **state):
    return artifact.write_checkpoint(
        directory=directory,
        weights=tensors(),
        spec=spec(),
        state_tensors={"step": torch.tensor(7), "ema": torch.ones(3, dtype=torch.bfloat16)},
        state={"epoch": 3, "loss": 0.1 + 0.2, "best": float("inf"), "rng": [2**63 + 1], **state},
    )


def test_a_checkpoint_is_read_as_written(tmp_path):
    assert checkpoint(tmp_path / "a" / "last") == tmp_path / "a" / "last"
    state_tensors, state = artifact.read_state(tmp_path / "a" / "last")
    assert state == {"epoch": 3, "loss": 0.1 + 0.2, "best": float("inf"), "rng": [2**63 + 1]}
    assert state_tensors["step"] == 7
    assert state_tensors["ema"].dtype == torch.bfloat16
    checkpoint(tmp_path / "a" / "last", epoch=4)
    assert artifact.read_state(tmp_path / "a" / "last")[1]["epoch"] == 4
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["last"]


def test_a_replacement_cut_between_its_two_renames_is_mended(tmp_path):
    place = checkpoint(tmp_path / "last")
    gone = 2**22 + 1  # above the largest process id
    os.rename(place, tmp_path / f"last.old-{gone}")
    (tmp_path / f"last.partial-{gone}").mkdir()
    assert artifact.read_state(place)[1]["epoch"] == 3
    assert artifact.weights_path(place).is_file()
    checkpoint(place, epoch=5)
    assert artifact.read_state(place)[1]["epoch"] == 5
    assert [p.name for p in tmp_path.iterdir()] == ["last"]


@pytest.mark.parametrize("name", ["weights.safetensors", "state.safetensors"])
def test_a_changed_checkpoint_is_refused(tmp_path, name):
    place = checkpoint(tmp_path / "last")
    data = bytearray((place / name).read_bytes())
    data[-1] ^= 1
    (place / name).write_bytes(data)
    for read in (artifact.read_state, artifact.weights_path):
        with pytest.raises(WeightsError, match=f"{name} is damaged"):
            read(place)
    (place / name).unlink()
    with pytest.raises((WeightsError, RequestError), match="missing|neither"):
        artifact.weights_path(place)


def test_a_checkpoint_whose_state_is_damaged_newer_or_missing(tmp_path):
    place = checkpoint(tmp_path / "last")
    content = json.loads((place / "state.json").read_text())
    (place / "state.json").write_text(json.dumps({**content, "format": 2}))
    with pytest.raises(WeightsError, match="newer gnn-zoo"):
        artifact.read_state(place)
    (place / "state.json").write_text('{"format": 1')
    with pytest.raises(WeightsError, match="damaged"):
        artifact.read_state(place)
    with pytest.raises(RequestError, match="no checkpoint at"):
        artifact.read_state(tmp_path / "none")


def test_weights_path_finds_what_is_meant(tmp_path, weight_file):
    run = tmp_path / "run"
    last = checkpoint(run / "checkpoints" / "last") / "weights.safetensors"
    assert artifact.weights_path(weight_file) == weight_file
    assert artifact.weights_path(run) == last
    best = checkpoint(run / "checkpoints" / "best") / "weights.safetensors"
    assert artifact.weights_path(run) == best
    assert artifact.weights_path(run / "checkpoints" / "last") == last
    with pytest.raises(RequestError, match="no checkpoint and no run"):
        artifact.weights_path(run / "checkpoints")
    with pytest.raises(RequestError, match="no weight file, checkpoint or run at"):
        artifact.weights_path(tmp_path / "nowhere")


def test_a_disk_that_refuses_is_named(tmp_path):
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "w.safetensors"
    with pytest.raises(UnavailableError, match=r"cannot write .*w\.safetensors"):
        artifact.write_weights(path=place, tensors=tensors(), spec=spec())
    with pytest.raises(UnavailableError, match="cannot write"):
        checkpoint(tmp_path / "file" / "last")
