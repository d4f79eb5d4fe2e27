"""A stand-in for PopTorch 3.4 that runs on the CPU, eagerly, and holds a model to PopTorch's rules.

It exists to test programs written for IPUs where no SDK and no IPU can be had. It was made from a
reading of public source and documents; nothing of it was compared with a device. A program that
breaks a rule which it knows fails here with the library's own kind of exception, and where an IPU
silently computes something else than PyTorch, so does the stand-in. It needs torch alone, any
version from 2.0.1.

What it does:

* A call splits dimension 0 of its tensors into micro batches (iterations, then accumulation steps,
  then replicas), runs each, combines gradients by `ReductionType`, makes one optimiser step per
  device iteration, and returns what `OutputMode` says. Replicas run one after the other.
* Each micro batch runs under two modes, one above autograd (`_calls`), one below (`_kernels`):
  operators without a lowering, values or shapes that depend on data, CPU tensors among IPU tensors,
  and gradients asked for in forward are errors. `_operators` says how names are matched.
* Silent differences: `index_put(accumulate=True)` overwrites, writes out of range are dropped, a
  mask assignment is a where(), int64 inputs wrap to 32 bits, float64 is float32, integer buffers
  and Python attributes are as when compiled.
* Training starts from the one final loss: an intercepted loss function or `identity_loss`. What the
  model does to it afterwards changes its output, and not the gradient. A loss with a shape counts
  as its sum.
* Weights on the device are copies. Reading the wrapped module's parameters or buffers, or its
  state_dict, pulls them, as in the library; tensors taken out before go stale until
  `copyWeightsToHost` (`_host`).
* An optimiser's numbers are read at wrapping and at `setOptimizer`; its `step` does nothing here.

What it doesn't do: memory, tiles, half precision's rounding, loss scaling, several processes, the
asynchronous loader, anchored tensors, cycle counts, custom operators. A model that changes with
Python state outside of the module (a global, `random`) is run anew for each micro batch, where an
IPU would repeat the first trace.
"""

from __future__ import annotations

from . import enums, optim, options
from ._blocks import BeginBlock, Block, BlockFunction, removeBlocks
from ._dataloader import DataLoader
from ._errors import Error, RecoverableError, UnrecoverableError
from ._executor import PoplarExecutor
from ._program import registerPostCompileHook, registerPreCompileHook
from ._trace import isRunningOnIpu
from ._wrap import (
    VERSION,
    inferenceModel,
    ipuHardwareIsAvailable,
    ipuHardwareVersion,
    load,
    setLogLevel,
    trainingModel,
)
from .enums import (
    AutoStage,
    CommGroupType,
    ConnectionType,
    DataLoaderMode,
    HalfFloatCastingBehavior,
    Liveness,
    MatMulSerializationMode,
    MeanReductionStrategy,
    OutputMode,
    OverlapMode,
    ReductionType,
    SharingStrategy,
    SyncPattern,
)
from .ops import (
    cond,
    dynamic_slice,
    dynamic_update,
    for_loop,
    identity_loss,
    ipu_print_tensor,
    nop,
    recomputationCheckpoint,
    serializedMatMul,
    set_available_memory,
    set_overlap_for_input,
    set_overlap_for_output,
)
from .options import (
    ConfigFileError,
    Options,
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
    TensorLocationSettings,
)

__version__ = VERSION

__all__ = [
    "AutoStage",
    "BeginBlock",
    "Block",
    "BlockFunction",
    "CommGroupType",
    "ConfigFileError",
    "ConnectionType",
    "DataLoader",
    "DataLoaderMode",
    "Error",
    "HalfFloatCastingBehavior",
    "Liveness",
    "MatMulSerializationMode",
    "MeanReductionStrategy",
    "Options",
    "OutputMode",
    "OverlapMode",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "PoplarExecutor",
    "RecoverableError",
    "ReductionType",
    "SerialPhasedExecution",
    "ShardedExecution",
    "SharingStrategy",
    "Stage",
    "SyncPattern",
    "TensorLocationSettings",
    "UnrecoverableError",
    "cond",
    "dynamic_slice",
    "dynamic_update",
    "enums",
    "for_loop",
    "identity_loss",
    "inferenceModel",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "ipu_print_tensor",
    "isRunningOnIpu",
    "load",
    "nop",
    "optim",
    "options",
    "recomputationCheckpoint",
    "registerPostCompileHook",
    "registerPreCompileHook",
    "removeBlocks",
    "serializedMatMul",
    "setLogLevel",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
    "trainingModel",
]
