"""The one file that a finetuned model is: its members, what it knows of itself and its limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from zoo import artifact
from zoo.chem.fingerprints import Fingerprints, selected
from zoo.chem.similarity import nearest_similarity, references
from zoo.datasets.labelled import Labelled
from zoo.recipes.calibration import Calibration, Interval, fit_calibration, fit_interval
from zoo.recipes.finetune_data import Fold
from zoo.recipes.finetune_request import FinetuneRequest
from zoo.recipes.finetune_train import Trained
from zoo.recipes.property import PropertyData
from zoo.recipes.property_model import PropertyModel, load_property_model
from zoo.recipes.property_predictions import FAR
from zoo.recipes.property_spec import (
    member_tensors,
    reference_tensors,
    with_members,
    with_uncertainty,
)

MOST = 200_000
"""Training molecules whose fingerprints a file holds at most (about 90 bytes each)."""


def write_model(
    *,
    path: Path,
    entry: str,
    request: FinetuneRequest,
    table: Labelled,
    parted: Sequence[Fold],
    tuned: Sequence[Sequence[Trained]],
    fingerprints: Fingerprints,
) -> PropertyModel:
    """Write the members of all folds as one model, and read it back."""
    members = [one for some in tuned for one in some]
    first = members[0].task
    train = np.unique(np.concatenate([fold.data.splits["train"] for fold in parted]))
    spec = with_members(first.spec, len(members))
    extra: dict[str, Any] = {**spec.extra, "largest_fragment": request.largest_fragment}
    limit = similarity_limit(fingerprints, train=train, valid=parted[0].data.splits["valid"])
    spec = spec.model_copy(
        update={
            "entry": entry,
            "elements": elements_of(parted[0].data, rows=train),
            "extra": extra,
            "ranges": {**spec.ranges, "similarity": [limit, 1.0]},
        }
    )
    bare = PropertyModel(spec=spec, modules=[])
    calibrations, intervals = uncertainty(bare, table=table, tuned=tuned, folds=len(parted) > 1)
    spec = with_uncertainty(spec, calibrations=calibrations, intervals=intervals)
    kept = train
    if len(kept) > MOST:
        kept = np.sort(np.random.default_rng(0).permutation(train)[:MOST])
    tensors = member_tensors([common_scale(one, first.mean, first.std) for one in members])
    tensors |= reference_tensors(selected(fingerprints, rows=kept))
    artifact.write_weights(path=path, tensors=tensors, spec=spec)
    return load_property_model(path)


def elements_of(data: PropertyData, *, rows: np.ndarray) -> list[str]:
    """Symbols of the elements of some graphs, whose atoms' first category is the element's."""
    from ase.data import chemical_symbols

    ptr, atom = data.store.node_ptr, data.store.node["atom"]
    seen = np.zeros(256, bool)
    for row in rows:
        seen[atom[ptr[row] : ptr[row + 1], 0]] = True
    return [chemical_symbols[number + 1] for number in np.flatnonzero(seen[:118])]


def similarity_limit(fingerprints: Fingerprints, *, train: np.ndarray, valid: np.ndarray) -> float:
    """Similarity to the nearest training molecule below which a molecule is unlike the data: what
    one validation molecule in twenty is below, and at most `FAR`.
    """
    known = references(selected(fingerprints, rows=train))
    found, _ = nearest_similarity(query=selected(fingerprints, rows=valid), reference=known)
    found = found[np.isfinite(found)]
    return min(FAR, float(np.quantile(found, 0.05))) if len(found) else FAR


def common_scale(member: Trained, mean: np.ndarray, std: np.ndarray) -> dict[str, Tensor]:
    """A member's tensors, its output layer changed so that its outputs are scaled by this mean and
    standard deviation [T], not by those of its own training split.
    """
    import torch

    own = member.task
    tensors = dict(member.tensors)
    stretch = torch.from_numpy(own.std / std)
    shift = torch.from_numpy((own.mean - mean) / std)
    if own.data.kind == "regression":
        weight, bias = tensors["output.weight"], tensors["output.bias"]
        tensors["output.weight"] = (stretch.unsqueeze(1) * weight.double()).to(weight.dtype)
        tensors["output.bias"] = (stretch * bias.double() + shift).to(bias.dtype)
    return tensors


def uncertainty(
    model: PropertyModel,
    *,
    table: Labelled,
    tuned: Sequence[Sequence[Trained]],
    folds: bool,
) -> tuple[list[Calibration], list[Interval]]:
    """Calibration of each class label and interval of each quantity, from validation molecules; or,
    with folds, from each fold's test molecules, which its members never saw.
    """
    split = "test" if folds else "valid"
    rows = np.concatenate([some[0].raw[split][0] for some in tuned])
    truth = table.y[rows]
    if model.kind != "regression":
        logits = np.concatenate(
            [np.mean([one.raw[split][1] for one in some], axis=0) for some in tuned]
        )
        if model.kind == "multiclass":
            return [fit_calibration(logits=logits, labels=truth[:, 0])], []
        each = [
            fit_calibration(logits=logits[:, at], labels=truth[:, at])
            for at in range(truth.shape[1])
        ]
        return each, []
    means, spreads = zip(*(in_units(some, split) for some in tuned), strict=True)
    predicted = np.concatenate(means)
    alone = folds or len(tuned[0]) == 1  # members that weren't all blind to the row say nothing
    spread = None if alone else np.concatenate([one for one in spreads if one is not None])
    intervals = [
        fit_interval(
            truth=truth[:, at],
            predicted=predicted[:, at],
            std=None if spread is None else spread[:, at],
        )
        for at in range(truth.shape[1])
    ]
    return [], intervals


def in_units(members: Sequence[Trained], split: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Mean and standard deviation of what members give for a split: units or probabilities."""
    from zoo.recipes.property import readable

    made = np.stack(
        [
            readable(
                one.raw[split][1], kind=one.task.data.kind, mean=one.task.mean, std=one.task.std
            )
            for one in members
        ]
    )
    return made.mean(axis=0), made.std(axis=0, ddof=1) if len(made) > 1 else None
