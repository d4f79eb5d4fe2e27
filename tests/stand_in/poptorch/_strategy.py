"""Execution strategies: which block of a model belongs to which stage, phase and IPU.

Everything runs in one process on the CPU. What is kept are the rules: which blocks a strategy
knows, that stages ascend, and how many stages and IPUs the model takes, which the executor needs.
"""

from __future__ import annotations

from . import enums
from ._errors import Error
from ._values import expect


class Stage:
    """Blocks that run together on one IPU."""

    def __init__(self, *block_ids):
        expect(all(isinstance(b, str) for b in block_ids), f"Block ids are strings: {block_ids}")
        self._blocks = block_ids
        self._stage_id = None
        self._ipu = None

    @property
    def blocks(self):
        return self._blocks

    def ipu(self, ipu):
        expect(isinstance(ipu, int), f"An IPU is named by an integer, not {ipu!r}")
        self._ipu = ipu
        return self


class Phase:
    """Stages that run at the same time."""

    def __init__(self, *arg):
        if all(isinstance(element, Stage) for element in arg):
            self.stages = list(arg)
        else:
            self.stages = [Stage(*arg)]

    def stage(self, idx):
        return self.stages[idx]

    def ipus(self, *ipus):
        expect(
            len(ipus) == len(self.stages),
            f"The phase has {len(self.stages)} stages, but {len(ipus)} IPUs are given",
        )
        for stage, ipu in zip(self.stages, ipus):
            stage.ipu(ipu)


class _Strategy:
    """The blocks that a strategy names, and those that a trace has come upon."""

    def __init__(self, stages, auto=None):
        self._auto = auto
        self._by_block = {}
        for stage in stages:
            for block in stage.blocks:
                expect(block not in self._by_block, f"{block} is in more than one stage")
                self._by_block[block] = stage
        self._start_trace()

    def _start_trace(self):
        self._next_auto_id = 0
        self._automatic = {}
        self._visited = []
        self._used_ipus = {0}

    def _reset_auto_id(self):
        self._next_auto_id = 0

    def _stage_of(self, block, ipu_id):
        if self._by_block:
            expect(block in self._by_block, f"Unknown block {block!r}; {list(self._by_block)}")
            return self._by_block[block]
        if block not in self._automatic:
            stage = Stage(block)
            if self._auto == enums.AutoStage.SameAsIpu:
                expect(ipu_id is not None, f"Block {block!r} needs an ipu_id (AutoStage.SameAsIpu)")
                stage._stage_id = ipu_id
            else:
                stage._stage_id = len(self._automatic) + 1
            self._automatic[block] = stage
        return self._automatic[block]

    def _begin(self, user_id, ipu_id):
        """A block begins; called for each block that a trace enters, in order."""
        if user_id is None:
            user_id = str(self._next_auto_id)
            self._next_auto_id += 1
        stage = self._stage_of(user_id, ipu_id)
        ipu = ipu_id if stage._ipu is None else stage._ipu
        self._used_ipus.add(stage._stage_id if ipu is None else ipu)
        last = self._visited[-1] if self._visited else 0
        if self._pipelined() and stage._stage_id < last:
            raise Error(
                f"Stages must ascend: block {user_id!r} is in stage {stage._stage_id}, "
                f"and comes after stage {last}"
            )
        self._visited.append(stage._stage_id)

    def _pipelined(self):
        return False

    def _stage_count(self):
        """Stages of the traced model; layers before the first block are in stage 0."""
        return max(len(set(self._visited)), 1)

    def _ipu_count(self):
        return max(self._used_ipus) + 1


class PipelinedExecution(_Strategy):
    """Stages work on successive micro batches at the same time; the default."""

    def __init__(self, *args):
        stages, auto = [], enums.AutoStage.SameAsIpu
        if len(args) == 1 and isinstance(args[0], enums.AutoStage):
            auto = args[0]
        else:
            for number, arg in enumerate(args):
                if not isinstance(arg, Stage):
                    arg = Stage(arg) if isinstance(arg, str) else Stage(*arg)
                arg._stage_id = number
                stages.append(arg)
        super().__init__(stages, auto)

    def backendOptions(self):
        return {"execution_mode": 0}

    def _pipelined(self):
        return True


class ShardedExecution(PipelinedExecution):
    """One stage after the other."""

    def backendOptions(self):
        return {"execution_mode": 1}

    def _pipelined(self):
        return False


class _Phased(_Strategy):
    def __init__(self, *phases):
        expect(phases, "There is no automatic staging for phased execution: give the phases")
        self._phases = [self._phase(phase) for phase in phases]
        self._liveness = enums.Liveness.AlwaysLive
        for number, phase in enumerate(self._phases):
            for stage in phase.stages:
                stage._stage_id = number
        super().__init__([stage for phase in self._phases for stage in phase.stages])

    @staticmethod
    def _phase(given):
        if isinstance(given, Phase):
            return given
        return Phase(*given) if isinstance(given, (list, tuple)) else Phase(given)

    def _backend(self, serial):
        return {
            "execution_mode": 2,
            "separate_backward_phase": False,
            "tensors_liveness": self._liveness.value,
            "serial_phases_execution": serial,
        }


class ParallelPhasedExecution(_Phased):
    """Phases alternate between two groups of IPUs."""

    def backendOptions(self):
        return self._backend(False)

    def sendTensorsOffChipAfterFwd(self, off_chip=True):
        self._liveness = enums.Liveness.OffChipAfterFwd if off_chip else enums.Liveness.AlwaysLive
        return self


class SerialPhasedExecution(_Phased):
    """Phases follow each other on one group of IPUs."""

    def setTensorsLiveness(self, liveness):
        expect(isinstance(liveness, enums.Liveness), f"Not a poptorch.Liveness: {liveness!r}")
        self._liveness = liveness
        return self

    def backendOptions(self):
        return self._backend(True)
