"""There is one device here, and one executor at a time may hold it."""

from __future__ import annotations

import weakref

from ._errors import Error

_reference = None


def holder():
    """The executor that is attached to the device, or None."""
    return None if _reference is None else _reference()


def check_free(executor):
    """Raise Error where another executor is attached."""
    if holder() not in (None, executor):
        raise Error("The device is attached to another executor: call its detachFromDevice() first")


def attach(executor):
    """Give the device to this executor; Error where another holds it."""
    global _reference
    check_free(executor)
    _reference = weakref.ref(executor)


def release(executor):
    """Take the device from this executor, if it holds it."""
    global _reference
    if holder() is executor:
        _reference = None
