"""What a weight file of a property model holds besides one network: several of them, calibration,
and the training molecules' fingerprints.

Tensors of several members are named `0.atoms...`, `1.atoms...`; fingerprints are `reference.bits`
and `reference.ptr`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoo.artifact import Spec
from zoo.chem.fingerprints import Fingerprints
from zoo.datasets.facts import Property
from zoo.recipes.calibration import Calibration, Interval

_REFERENCE = "reference."


def properties_of(spec: Spec) -> tuple[Property, ...]:
    """The properties that a spec names, with their kind and classes."""
    classes = spec.extra.get("classes", {})
    return tuple(
        Property(
            name=p.name,
            unit=p.unit,
            description="",
            kind=spec.extra["kind"],
            classes=tuple(classes.get(p.name, ())),
        )
        for p in spec.properties
    )


def calibrations_of(spec: Spec) -> list[Calibration] | None:
    """How probabilities are calibrated, for each property; None where they aren't."""
    found = spec.extra.get("calibration")
    return None if found is None else [Calibration(**one) for one in found]


def intervals_of(spec: Spec) -> list[Interval] | None:
    """The interval of each property; None where there is none."""
    found = spec.extra.get("intervals")
    return None if found is None else [Interval(**one) for one in found]


def with_uncertainty(
    spec: Spec, *, calibrations: Sequence[Calibration] = (), intervals: Sequence[Interval] = ()
) -> Spec:
    """The spec with what was fitted on the validation split."""
    extra: dict[str, Any] = dict(spec.extra)
    if calibrations:
        extra["calibration"] = [asdict(one) for one in calibrations]
    if intervals:
        extra["intervals"] = [asdict(one) for one in intervals]
    return spec.model_copy(update={"extra": extra})


def with_members(spec: Spec, count: int) -> Spec:
    """The spec of so many networks in one file."""
    return spec.model_copy(update={"extra": {**spec.extra, "members": count}})


def member_tensors(members: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors of one or several networks, as they are called in a file."""
    if len(members) == 1:
        return dict(members[0])
    return {f"{at}.{name}": value for at, one in enumerate(members) for name, value in one.items()}


def members_of(
    spec: Spec, tensors: Mapping[str, Tensor]
) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
    """The tensors of each network in a file, and those of none. Half precision is widened."""
    count = int(spec.extra.get("members", 1))
    own = {k: _widened(v) for k, v in tensors.items() if not k.startswith(_REFERENCE)}
    rest = {k: v for k, v in tensors.items() if k.startswith(_REFERENCE)}
    if count == 1:
        return [own], rest
    members: list[dict[str, Tensor]] = [{} for _ in range(count)]
    for key, value in own.items():
        number, _, name = key.partition(".")
        members[int(number)][name] = value
    return members, rest


def _widened(value: Tensor) -> Tensor:
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value


def halved(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with numbers in half precision, for files that ship. Running variances stay: they
    may be larger than half precision holds.
    """
    return {
        name: value.half()
        if value.dtype == torch.float32 and not name.endswith("running_var")
        else value
        for name, value in tensors.items()
    }


def reference_tensors(fingerprints: Fingerprints) -> dict[str, Tensor]:
    """Fingerprints as tensors of a weight file."""
    bits = torch.from_numpy(fingerprints.bits.astype(np.int16))  # 2,048 bits: none is negative
    return {
        f"{_REFERENCE}bits": bits,
        f"{_REFERENCE}ptr": torch.from_numpy(fingerprints.ptr.astype(np.int32)),
    }


def reference_of(tensors: Mapping[str, Tensor]) -> Fingerprints | None:
    """The training molecules' fingerprints in a file, without counts; None where it has none."""
    if f"{_REFERENCE}bits" not in tensors:
        return None
    bits = tensors[f"{_REFERENCE}bits"].numpy().astype(np.uint16)
    ptr = tensors[f"{_REFERENCE}ptr"].numpy().astype(np.int64)
    if ptr[0] != 0 or ptr[-1] != len(bits) or (np.diff(ptr) < 0).any():
        raise ValueError("the fingerprints' offsets don't fit their bits")
    return Fingerprints(bits=bits, times=np.ones(len(bits), np.uint8), ptr=ptr)
