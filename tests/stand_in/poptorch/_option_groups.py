"""The groups of `Options`: Training, Precision, Distributed, TensorLocations, Jit and _Popart."""

from __future__ import annotations

import os

import torch

from . import enums
from ._values import Values, expect, expect_bool, expect_positive


class _PopartOptions(Values):
    """Keys and values handed to the compiler as they are."""

    def __init__(self):
        super().__init__(instrumentWithHardwareCycleCounter=False, rearrangeAnchorsOnHost=False)

    @property
    def options(self):
        return self._values

    def set(self, key, value):
        expect(isinstance(key, str), f"A key of _Popart is a string, not {key!r}")
        return self._set(**{key: value})

    def setEngineOptions(self, engine_options):
        return self.set("engineOptions", dict(engine_options))

    def setPatterns(self, patterns, level=2):
        expect(isinstance(patterns, dict), f"patterns must be a dict, not {patterns!r}")
        expect(isinstance(level, int), f"level must be an integer, not {level!r}")
        self.set("patterns_level", level)
        return self.set("patterns", dict(patterns))


class _JitOptions(Values):
    """Tracing with TorchScript, which 3.x no longer does."""

    def traceModel(self, trace_model):
        expect(not trace_model, "Tracing with TorchScript is gone; the dispatcher traces")
        return self


class _PrecisionOptions(Values):
    def __init__(self, popart_options):
        super().__init__()
        object.__setattr__(self, "_popart", popart_options)

    def halfFloatCasting(self, half_float_casting):
        expect(
            isinstance(half_float_casting, enums.HalfFloatCastingBehavior),
            f"Not a poptorch.HalfFloatCastingBehavior: {half_float_casting!r}",
        )
        return self

    def runningStatisticsAlwaysFloat(self, value):
        expect_bool(value, "runningStatisticsAlwaysFloat")
        return self

    def enableFloatingPointExceptions(self, enabled):
        expect_bool(enabled, "enableFloatingPointExceptions")
        self._popart.set("enableFloatingPointChecks", enabled)
        return self

    def enableStochasticRounding(self, enabled):
        expect_bool(enabled, "enableStochasticRounding")
        self._popart.set("enableStochasticRounding", enabled)
        return self

    def setPartialsType(self, dtype):
        if dtype not in (torch.float, torch.half):
            raise ValueError("setPartialsType takes torch.float or torch.half")
        self._popart.set("partialsTypeMatMuls", "half" if dtype is torch.half else "float")
        return self


class _TrainingOptions(Values):
    def __init__(self, popart_options):
        super().__init__(
            gradient_accumulation=1,
            accumulation_and_replication_reduction_type=enums.ReductionType.Mean,
            meanAccumulationAndReplicationReductionStrategy=enums.MeanReductionStrategy.Post,
        )
        object.__setattr__(self, "_popart", popart_options)

    def gradientAccumulation(self, gradient_accumulation):
        expect_positive(gradient_accumulation, "gradientAccumulation")
        return self._set(gradient_accumulation=gradient_accumulation)

    def accumulationAndReplicationReductionType(self, reduction_type):
        if reduction_type not in (enums.ReductionType.Sum, enums.ReductionType.Mean) or not (
            isinstance(reduction_type, enums.ReductionType)
        ):
            raise ValueError(
                "accumulationAndReplicationReductionType takes poptorch.ReductionType.Mean or Sum"
            )
        return self._set(accumulation_and_replication_reduction_type=reduction_type)

    def setMeanAccumulationAndReplicationReductionStrategy(self, mean_reduction_strategy):
        expect(
            isinstance(mean_reduction_strategy, enums.MeanReductionStrategy),
            f"Not a poptorch.MeanReductionStrategy: {mean_reduction_strategy!r}",
        )
        return self._set(meanAccumulationAndReplicationReductionStrategy=mean_reduction_strategy)

    def setAutomaticLossScaling(self, enabled):
        expect_bool(enabled, "setAutomaticLossScaling")
        self._popart.set("automaticLossScalingSettings.enabled", enabled)
        return self

    def setConvolutionDithering(self, enabled):
        expect_bool(enabled, "setConvolutionDithering")
        self._popart.set("convolutionOptions", {"enableConvDithering": enabled})
        return self


class _DistributedOptions(Values):
    def __init__(self):
        super().__init__(num_distributed_processes=1, distributed_process_id=0)
        self.setEnvVarNames("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")

    def disable(self):
        return self._set(num_distributed_processes=1, distributed_process_id=0)

    def setEnvVarNames(self, var_num_processes, var_process_id):
        return self.configureProcessId(
            int(os.environ.get(var_process_id, "0")), int(os.environ.get(var_num_processes, "1"))
        )

    def configureProcessId(self, process_id, num_processes):
        expect_positive(num_processes, "num_processes")
        expect(isinstance(process_id, int), f"process_id must be an integer, not {process_id!r}")
        return self._set(distributed_process_id=process_id, num_distributed_processes=num_processes)

    @property
    def processId(self):
        return self.distributed_process_id

    @property
    def numProcesses(self):
        return self.num_distributed_processes


class TensorLocationSettings(Values):
    """Where a kind of tensor is kept."""

    def minElementsForOffChip(self, min_elements):
        expect(isinstance(min_elements, int), f"Not an integer: {min_elements!r}")
        return self._set(minElementsForOffChip=min_elements)

    def minElementsForReplicatedTensorSharding(self, min_elements):
        expect(isinstance(min_elements, int), f"Not an integer: {min_elements!r}")
        return self._set(minElementsForReplicatedTensorSharding=min_elements)

    def useOnChipStorage(self, use=True):
        expect_bool(use, "useOnChipStorage")
        return self._set(onChip=int(use))

    def useReplicatedTensorSharding(self, use=True):
        expect_bool(use, "useReplicatedTensorSharding")
        return self._set(useReplicatedTensorSharding=int(use))

    def useIOTilesToLoad(self, use=True):
        expect_bool(use, "useIOTilesToLoad")
        return self._set(useIOTilesToLoad=int(use))

    def useIOTilesToStore(self, use=True):
        expect_bool(use, "useIOTilesToStore")
        return self._set(useIOTilesToStore=int(use))


class _TensorLocationOptions(Values):
    def numIOTiles(self, num_tiles):
        expect(
            isinstance(num_tiles, int) and 32 <= num_tiles <= 192 and num_tiles % 2 == 0,
            f"numIOTiles must be an even number from 32 to 192, not {num_tiles!r}",
        )
        return self._set(numIOTiles=num_tiles)

    def _locate(self, name, location):
        expect(
            isinstance(location, TensorLocationSettings),
            f"Not a poptorch.TensorLocationSettings: {location!r}",
        )
        return self._set(**{name: location.toDict()})

    def setActivationLocation(self, location):
        return self._locate("location_activation", location)

    def setWeightLocation(self, location):
        return self._locate("location_weight", location)

    def setOptimizerLocation(self, location):
        return self._locate("location_optimizer", location)

    def setAccumulatorLocation(self, location):
        return self._locate("location_accumulator", location)
