"""The stand-in of PopTorch has the library's names, signatures and options."""

from __future__ import annotations

import ast
import enum
import importlib.util
import inspect
import os
import subprocess
import sys

import pytest
import torch
from poptorch_stand_in import STAND_IN, Calling, poptorch_stand_in

SOURCES = sorted((STAND_IN / "poptorch").glob("*.py"))
SIGNATURES = [
    line.split("\t")
    for line in (STAND_IN / "signatures.tsv").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]

# Names that no Python source defines: the compiled part of the library does.
COMPILED = {"Error", "RecoverableError", "UnrecoverableError", "isRunningOnIpu", "ConfigFileError"}


@pytest.fixture(scope="module")
def poptorch():
    with poptorch_stand_in() as module:
        yield module


def test_it_is_there_only_when_asked_for():
    assert importlib.util.find_spec("poptorch") is None
    with poptorch_stand_in() as module:
        assert module.__file__.startswith(str(STAND_IN))
    assert importlib.util.find_spec("poptorch") is None


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_it_is_python_38_and_needs_torch_alone(path):
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    wanted = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wanted |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            wanted.add(node.module.partition(".")[0])
    standard = getattr(sys, "stdlib_module_names", wanted)
    assert wanted - set(standard) <= {"torch"}


def _offered(poptorch, name):
    """The object of a name in the table, or None: names are those of the defining module."""
    path = name.split(".")[1:]
    found = poptorch
    for part in path:
        found = None if found is None else getattr(found, part, None)
    return found


def _plain(function):
    """Names, kinds and defaults of a function's parameters, as text."""

    def default(value):
        if isinstance(value, enum.Enum):
            return f"{type(value).__name__}.{value.name}"
        return repr(value)

    return [
        (p.name, p.kind.name, "" if p.default is p.empty else default(p.default))
        for p in inspect.signature(function).parameters.values()
    ]


def _declared(text):
    """The same of a signature in the table."""
    arguments = ast.parse(f"def f{text}: pass").body[0].args
    bare = len(arguments.args) - len(arguments.defaults)
    values = [""] * bare + [*map(_text, arguments.defaults)]
    found = [(a.arg, "POSITIONAL_OR_KEYWORD", values[i]) for i, a in enumerate(arguments.args)]
    if arguments.vararg:
        found.append((arguments.vararg.arg, "VAR_POSITIONAL", ""))
    for i, argument in enumerate(arguments.kwonlyargs):
        value = arguments.kw_defaults[i]
        found.append((argument.arg, "KEYWORD_ONLY", "" if value is None else _text(value)))
    if arguments.kwarg:
        found.append((arguments.kwarg.arg, "VAR_KEYWORD", ""))
    return found


def _text(node):
    if isinstance(node, ast.Attribute):
        return f"{node.value.id}.{node.attr}"
    return repr(ast.literal_eval(node))


def test_signatures_are_the_librarys(poptorch):
    checked = 0
    for name, kind, *rest in SIGNATURES:
        found = _offered(poptorch, name)
        if found is None:
            continue
        if kind in ("function", "method", "staticmethod") and not isinstance(found, property):
            assert _plain(found) == _declared(rest[0]), name
        elif kind == "property":
            assert isinstance(found, property), name
        elif kind == "enum_member":
            assert found.value == ast.literal_eval(rest[0]), name
        checked += 1
    assert checked > 200


def test_every_public_name_is_the_librarys(poptorch):
    known = {name for name, *_ in SIGNATURES}
    tops = {name.rpartition(".")[2] for name in known if name.count(".") <= 2}
    for name in poptorch.__all__:
        value = getattr(poptorch, name)
        if inspect.ismodule(value):
            continue
        assert name in tops | COMPILED, name
        if not inspect.isclass(value) or name in COMPILED or issubclass(value, enum.Enum):
            continue
        (full,) = {n for n in known if n.endswith(f".{name}") and n.count(".") <= 2}
        for member in vars(value):
            if not member.startswith("_"):
                assert f"{full}.{member}" in known, f"{full}.{member}"
    assert not hasattr(poptorch, "custom_op")


def test_there_is_no_hardware(poptorch):
    assert poptorch.ipuHardwareIsAvailable() is False
    with pytest.raises(AssertionError):
        poptorch.ipuHardwareVersion()


SETTERS = {
    "deviceIterations": (3, 0),
    "replicationFactor": (2, "2"),
    "autoRoundNumIPUs": (True, 1),
    "useIpuId": (1, "1"),
    "useIpuModel": (True, 1),
    "useOfflineIpuTarget": (21, 3),
    "randomSeed": (1, 1.5),
    "logCycleCount": (True, None),
    "enableStableNorm": (True, None),
}


@pytest.mark.parametrize("name", SETTERS)
def test_setters_chain_and_check(poptorch, name):
    good, bad = SETTERS[name]
    options = poptorch.Options()
    assert getattr(options, name)(good) is options
    with pytest.raises(AssertionError):
        getattr(poptorch.Options(), name)(bad)


def test_the_groups_of_options_check_too(poptorch):
    options = poptorch.Options()
    assert options.Training.gradientAccumulation(4).gradient_accumulation == 4
    assert options.Precision.enableStochasticRounding(True) is options.Precision
    assert options._Popart.set("key", 3).options["key"] == 3
    settings = poptorch.TensorLocationSettings().useOnChipStorage(False)
    assert options.TensorLocations.setOptimizerLocation(settings).numIOTiles(32)
    options.setAvailableMemoryProportion({"IPU0": 0.2})
    options.setExecutionStrategy(poptorch.ShardedExecution("a", "b"))
    assert options.connectionType(poptorch.ConnectionType.OnDemand).syncPattern(
        poptorch.SyncPattern.Full
    )
    for refused in (
        lambda: options.setAvailableMemoryProportion({"0": 0.2}),
        lambda: options.TensorLocations.numIOTiles(33),
        lambda: options.outputMode(poptorch.OutputMode.EveryN),
        lambda: options.outputMode(0),
        lambda: options.connectionType(0),
        lambda: options.setExecutionStrategy("pipelined"),
        lambda: options.Training.gradientAccumulation(0),
        lambda: options.inputReplicaGrouping(2, poptorch.CommGroupType.All),
    ):
        with pytest.raises(AssertionError):
            refused()
    for refused in (
        lambda: options.Training.accumulationAndReplicationReductionType(
            poptorch.ReductionType.NoReduction
        ),
        lambda: options.Precision.setPartialsType(torch.double),
    ):
        with pytest.raises(ValueError):
            refused()
    with pytest.raises(AttributeError):
        options.deviceIteration(2)


def _into_a_loader(poptorch, options):
    return poptorch.DataLoader(options, [torch.zeros(1)])


def _into_an_executor(poptorch, options):
    return poptorch.inferenceModel(Calling(None), options)


@pytest.mark.parametrize("use", [_into_a_loader, _into_an_executor])
def test_options_freeze_when_they_are_used(poptorch, use):
    options = poptorch.Options().deviceIterations(2)
    options.deviceIterations(3)
    kept = use(poptorch, options)
    for change in (
        lambda: options.deviceIterations(2),
        lambda: options.Training.gradientAccumulation(2),
        lambda: options._Popart.set("key", 1),
        lambda: options.setExecutionStrategy(poptorch.ShardedExecution()),
        lambda: kept.options.deviceIterations(2),
    ):
        with pytest.raises(AttributeError, match="Can't modify frozen Options"):
            change()
    again = options.clone().deviceIterations(5)
    again.Training.gradientAccumulation(2)
    again.Precision.enableStochasticRounding(True)
    assert (options.device_iterations, again.device_iterations) == (3, 5)
    assert options.Training.gradient_accumulation == 1
    assert "enableStochasticRounding" not in options._Popart.options


def test_options_from_a_file(poptorch, tmp_path):
    path = tmp_path / "options"
    path.write_text(
        "# comment\ndeviceIterations(4)\nTraining.gradientAccumulation(2)\n"
        'outputMode(poptorch.OutputMode.EveryN, 2)\n_Popart.set("key", 1)\n'
    )
    options = poptorch.Options().loadFromFile(str(path))
    assert options.device_iterations == 4 and options.Training.gradient_accumulation == 2
    assert options.output_mode == poptorch.OutputMode.EveryN
    path.write_text("deviceIterations(4)\nnoSuchOption(4)\n")
    with pytest.raises(poptorch.ConfigFileError, match="line 2"):
        poptorch.Options().loadFromFile(str(path))


def test_options_that_do_not_go_together(poptorch):
    with pytest.raises(poptorch.Error, match="IPU Model"):
        poptorch.inferenceModel(
            Calling(None), poptorch.Options().useIpuModel(True).useOfflineIpuTarget()
        )
    options = poptorch.Options()
    options.Distributed.configureProcessId(0, 2)
    with pytest.raises(poptorch.Error, match="one process"):
        poptorch.inferenceModel(Calling(None), options)


MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3, 1))

    def forward(self, x):
        return torch.ops.aten.mse_loss.default(torch.ops.aten.mm.default(x, self.weight), x[:, :1])
"""

RUN = """
import numpy, poptorch, torch
from model import Model

model = Model().train()
KEPT = model.state_dict()
wrapped = poptorch.trainingModel(model, None, poptorch.optim.SGD(model.parameters(), lr=0.1))
batch = torch.from_numpy(numpy.load("batch.npy"))
loss = wrapped(batch)
torch.save(KEPT, "forgotten.pt")
wrapped.copyWeightsToHost()
torch.save(KEPT, "copied.pt")
loss = wrapped(batch)
torch.save(model.state_dict(), "read.pt")
"""


def test_a_folder_runs_in_a_process_of_its_own(tmp_path):
    numpy = pytest.importorskip("numpy")
    numpy.save(tmp_path / "batch.npy", numpy.eye(3, dtype=numpy.float32))
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "run_ipu.py").write_text(RUN)
    subprocess.run(
        [sys.executable, "run_ipu.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(STAND_IN)},
        check=True,
    )

    def weight(name):
        return torch.load(tmp_path / f"{name}.pt")["weight"]

    assert weight("forgotten").equal(torch.ones(3, 1))  # stale, and can be seen to be
    assert not weight("copied").equal(torch.ones(3, 1))
    assert not weight("read").equal(weight("copied"))
