"""A group of named values that can be frozen: what the options are made of."""

from __future__ import annotations

import copy


def expect(condition, message):
    """Raise AssertionError, which is what the library's own checks of arguments raise."""
    if not condition:
        raise AssertionError(message)


def expect_positive(value, name):
    """Raise AssertionError unless `value` is an integer above zero."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    expect(whole and value > 0, f"{name} must be a positive integer, not {value!r}")


def expect_bool(value, name):
    """Raise AssertionError unless `value` is a bool."""
    expect(isinstance(value, bool), f"{name} must be a bool, not {value!r}")


class Values:
    """Named values, set only through `_set`, read as attributes, and refused once frozen."""

    def __init__(self, **defaults):
        object.__setattr__(self, "_values", defaults)
        object.__setattr__(self, "_frozen", False)

    def checkIsFrozen(self, option=None):
        """Raise AttributeError where these values have been handed to a loader or an executor."""
        if self._frozen:
            raise AttributeError("Can't modify frozen Options")

    def _set(self, **values):
        self.checkIsFrozen()
        self._values.update(values)
        return self

    def _freeze(self, frozen=True):
        object.__setattr__(self, "_frozen", frozen)

    def toDict(self):
        """A copy of the values by name."""
        return copy.deepcopy(self._values)

    def exists(self, option):
        """Whether a value of this name is set."""
        return option in self._values

    def __setattr__(self, name, value):
        self.checkIsFrozen()
        raise AttributeError(f"Invalid attribute {name}: set it through its method")

    def __getattr__(self, name):
        values = self.__dict__.get("_values", {})
        if name not in values:
            raise AttributeError(f"Invalid attribute {name}")
        return values[name]

    def __setstate__(self, state):
        self.__dict__.update(state)

    def __deepcopy__(self, memo):
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        new.__dict__.update(copy.deepcopy(self.__dict__, memo))
        new._freeze(False)
        return new

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"
