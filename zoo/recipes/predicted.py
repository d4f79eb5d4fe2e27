"""What a model of labels of molecules says of some of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What a model says of M molecules.

    values: float64 [M, T], in the properties' units, or probabilities (of classes: [M, C]); their
    mean over the members. std: the members' standard deviation, same shape; None for one member.
    low, high: ends of the interval of each quantity [M, T]; None where there is none.
    """

    values: np.ndarray
    std: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
