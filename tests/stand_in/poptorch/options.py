"""`Options`: how a model is compiled and run. Setters check, chain, and refuse once frozen."""

from __future__ import annotations

import ast
import copy
import os

import torch

from . import enums
from ._errors import ConfigFileError, Error
from ._option_groups import (
    TensorLocationSettings,
    _DistributedOptions,
    _JitOptions,
    _PopartOptions,
    _PrecisionOptions,
    _TensorLocationOptions,
    _TrainingOptions,
)
from ._strategy import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
    _Strategy,
)
from ._values import Values, expect, expect_bool, expect_positive

__all__ = [
    "ConfigFileError",
    "Options",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "SerialPhasedExecution",
    "ShardedExecution",
    "Stage",
    "TensorLocationSettings",
]

GROUPS = ("Training", "Precision", "Distributed", "TensorLocations", "Jit", "_Popart")


class Options(Values):
    """How a model is compiled and run; frozen by the first loader or executor that it is given to.

    What only a device or a compiler could obey (memory proportion, tiles, sync pattern, ...) is
    checked and kept, and changes nothing here.
    """

    def __init__(self):
        super().__init__(
            device_iterations=1,
            replication_factor=1,
            input_group_size=1,
            input_group_type=enums.CommGroupType.Consecutive,
            broadcast_buffers=True,
            output_mode=enums.OutputMode.Default,
            output_return_period=1,
            connection_type=enums.ConnectionType.Always,
            sync_pattern=enums.SyncPattern.Full,
            auto_round_num_ipus=False,
            available_memory_proportion={},
            log_dir=".",
        )
        popart = _PopartOptions()
        parts = self.__dict__
        parts["_popart"] = popart
        parts["_precision"] = _PrecisionOptions(popart)
        parts["_training"] = _TrainingOptions(popart)
        parts["_distributed"] = _DistributedOptions()
        parts["_tensor_locations"] = _TensorLocationOptions()
        parts["_jit"] = _JitOptions()
        parts["_strategy"] = PipelinedExecution()
        if os.environ.get("POPTORCH_CACHE_DIR"):
            self.enableExecutableCaching(os.environ["POPTORCH_CACHE_DIR"])

    def _freeze(self, frozen=True):
        super()._freeze(frozen)
        for group in GROUPS:
            getattr(self, group)._freeze(frozen)

    def _check(self):
        """Raise Error for options that don't go together, once they are put to use."""
        if self.replication_factor % self.input_group_size:
            raise Error(
                f"inputReplicaGrouping: {self.replication_factor} replicas don't divide into "
                f"groups of {self.input_group_size}"
            )
        if self._values.get("use_model") and self.connection_type == enums.ConnectionType.Never:
            raise Error("The IPU Model can't be used with an offline target (ConnectionType.Never)")
        if self.Distributed.numProcesses > 1:
            raise Error("The stand-in runs one process: Distributed.numProcesses must be 1")

    @property
    def _input_groups(self):
        return self.replication_factor // self.input_group_size

    @property
    def TensorLocations(self):
        return self._tensor_locations

    @property
    def Distributed(self):
        return self._distributed

    @property
    def Jit(self):
        return self._jit

    @property
    def Precision(self):
        return self._precision

    @property
    def Training(self):
        return self._training

    @property
    def _Popart(self):
        return self._popart

    def sourceLocationExcludes(self, excludes):
        return self._set(source_location_excludes=list(excludes))

    def appendToLocationExcludes(self, *excludes):
        known = self._values.get("source_location_excludes", [])
        return self._set(source_location_excludes=[*known, *excludes])

    def showCompilationProgressBar(self, show=True):
        expect_bool(show, "showCompilationProgressBar")
        return self._set(show_compilation_progress_bar=show)

    def relaxOptimizerAttributesChecks(self, relax=True):
        expect_bool(relax, "relaxOptimizerAttributesChecks")
        return self._set(relax_optimizer_checks=relax)

    def loadFromFile(self, filepath):
        """Obey a file of lines such as `Training.gradientAccumulation(4)`; see ConfigFileError."""
        with open(filepath, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip() and not line.strip().startswith("#"):
                    _obey(self, line.strip(), f"{filepath}, line {number}")
        return self

    def autoRoundNumIPUs(self, auto_round_num_ipus=True):
        expect_bool(auto_round_num_ipus, "autoRoundNumIPUs")
        return self._set(auto_round_num_ipus=auto_round_num_ipus)

    def deviceIterations(self, device_iterations):
        expect_positive(device_iterations, "deviceIterations")
        return self._set(device_iterations=device_iterations)

    def setExecutionStrategy(self, strategy):
        expect(isinstance(strategy, _Strategy), f"Not an execution strategy: {strategy!r}")
        self.checkIsFrozen()
        self.__dict__["_strategy"] = strategy
        return self

    def setAvailableMemoryProportion(self, available_memory_proportion):
        proportions = {}
        for key, share in available_memory_proportion.items():
            known = key.startswith("IPU") and key[3:].isdigit()
            expect(known, f"Keys are IPU0, IPU1, ..., not {key!r}")
            expect(0 <= share <= 1, f"{key}: a proportion is from 0 to 1, not {share!r}")
            proportions[int(key[3:])] = share
        self._set(available_memory_proportion=proportions)

    def replicationFactor(self, replication_factor):
        expect_positive(replication_factor, "replicationFactor")
        return self._set(replication_factor=replication_factor)

    def inputReplicaGrouping(self, input_group_size, input_group_type):
        expect_positive(input_group_size, "input_group_size")
        kind = isinstance(input_group_type, enums.CommGroupType)
        expect(kind, f"Not a poptorch.CommGroupType: {input_group_type!r}")
        expect(input_group_type != enums.CommGroupType.All, "CommGroupType.All isn't allowed")
        return self._set(input_group_size=input_group_size, input_group_type=input_group_type)

    def broadcastBuffers(self, broadcast_buffers=True):
        expect_bool(broadcast_buffers, "broadcastBuffers")
        self._set(broadcast_buffers=broadcast_buffers)

    def logDir(self, log_dir):
        return self._set(log_dir=log_dir)

    def maxRepeatLogs(self, max_lines):
        return self._set(max_repeat_logs=max_lines)

    def modelName(self, name):
        return self._set(model_name=name)

    def enableExecutableCaching(self, path):
        if path is not None:
            self._popart.set("cachePath", path)
        self._popart.set("enableEngineCaching", path is not None)
        return self

    def useIpuModel(self, use_model):
        expect_bool(use_model, "useIpuModel")
        return self._set(use_model=use_model)

    def connectionType(self, connection_type):
        kind = isinstance(connection_type, enums.ConnectionType)
        expect(kind, f"Not a poptorch.ConnectionType: {connection_type!r}")
        return self._set(connection_type=connection_type)

    def syncPattern(self, sync_pattern):
        kind = isinstance(sync_pattern, enums.SyncPattern)
        expect(kind, f"Not a poptorch.SyncPattern: {sync_pattern!r}")
        return self._set(sync_pattern=sync_pattern)

    def useIpuId(self, ipu_id):
        expect(isinstance(ipu_id, int), f"useIpuId takes an integer, not {ipu_id!r}")
        return self._set(ipu_id=ipu_id)

    def useOfflineIpuTarget(self, ipu_version=2):
        expect(ipu_version in (1, 2, 21), f"IPU versions are 1, 2 and 21, not {ipu_version!r}")
        return self._set(ipu_version=ipu_version, connection_type=enums.ConnectionType.Never)

    def outputMode(self, output_mode, output_return_period=None):
        kind = isinstance(output_mode, enums.OutputMode)
        expect(kind, f"Not a poptorch.OutputMode: {output_mode!r}")
        if output_mode == enums.OutputMode.EveryN:
            expect_positive(output_return_period, "output_return_period (EveryN)")
        return self._set(output_mode=output_mode, output_return_period=output_return_period or 1)

    def defaultOutputMode(self):
        return self.output_mode == enums.OutputMode.Default

    def randomSeed(self, random_seed):
        expect(isinstance(random_seed, int), f"randomSeed takes an integer, not {random_seed!r}")
        self._set(random_seed=random_seed)
        torch.manual_seed(random_seed)
        return self

    def enableStableNorm(self, enabled):
        expect_bool(enabled, "enableStableNorm")
        self._popart.set("enableStableNorm", enabled)
        return self

    def logCycleCount(self, log_cycle_count):
        expect_bool(log_cycle_count, "logCycleCount")
        self._popart.set("instrumentWithHardwareCycleCounter", log_cycle_count)
        return self

    def enableProfiling(self, profile_dir=None):
        self._popart.setEngineOptions({"autoReport.directory": profile_dir or "."})
        return self

    def disableModuleNamescope(self):
        return self._set(module_namescope_enabled=False)

    def updatableNamedBuffers(self, buffers):
        expect(all(isinstance(name, str) for name in buffers), f"Not names: {buffers!r}")
        return self._set(updatable_named_buffers=list(buffers))

    def toDict(self):
        named = super().toDict()
        for group in GROUPS:
            named.update(getattr(self, group).toDict())
        return named

    def clone(self):
        """A deep copy that isn't frozen."""
        return copy.deepcopy(self)


def _obey(options, line, where):
    """Call the setter that `line` names, with constants or names of enumerations as arguments."""
    try:
        call = ast.parse(line, mode="eval").body
        if not isinstance(call, ast.Call):
            raise ValueError("not a call")
        target = options
        for name in _names(call.func):
            target = getattr(target, name)
        target(*(_argument(value) for value in call.args))
    except (AssertionError, AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise ConfigFileError(f"{where}: {line}: {error}") from error


def _names(node):
    """The names of a dotted path such as `poptorch.OutputMode.All`, in order."""
    if isinstance(node, ast.Attribute):
        return [*_names(node.value), node.attr]
    return [node.id]


def _argument(node):
    if isinstance(node, ast.Attribute):
        kind, member = _names(node)[-2:]
        return getattr(enums, kind)[member]
    return ast.literal_eval(node)
