"""The exceptions of PopTorch. Everything that the compiler or the runtime refuses is an `Error`."""

from __future__ import annotations


class Error(Exception):
    """What PopTorch raises; `message`, `type` and `location` as in the library."""

    def __init__(self, message, type="poptorch_cpp_error", location=""):
        super().__init__(message)
        self.message = message
        self.type = type
        self.location = location


class RecoverableError(Error):
    """A failure of the machine that a reset cures; `recovery_action` says which."""

    def __init__(self, message, recovery_action="FULL_RESET"):
        super().__init__(message, type="poplar_recoverable_runtime_error")
        self.recovery_action = recovery_action


class UnrecoverableError(Error):
    """A failure of the machine that no reset cures."""


class ConfigFileError(Exception):
    """A line of an options file that isn't a call of a setter of `Options`."""


class BatchDimensionError(Error, AssertionError):
    """Dimension 0 of an argument doesn't divide, which the source that we read asserts."""


def unsupported_ops(names):
    """The error for operators without a lowering, all of them at once, as the compiler reports."""
    return Error(f"Unsupported ops found in compiled model: [{', '.join(sorted(names))}]")
