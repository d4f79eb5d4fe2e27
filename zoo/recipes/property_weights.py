"""The one file that a trained model of labels is: its networks, how sure they are, and what they
were trained on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from zoo import artifact
from zoo.chem.fingerprints import Fingerprints, fingerprints, joined, selected
from zoo.chem.pool import cores
from zoo.chem.similarity import nearest_similarity, references
from zoo.recipes.calibration import Calibration, Interval, fit_calibration, fit_interval
from zoo.recipes.property import PropertyTask
from zoo.recipes.property_data import PropertyData
from zoo.recipes.property_model import PropertyModel, load_property_model
from zoo.recipes.property_predictions import FAR
from zoo.recipes.property_spec import (
    member_tensors,
    reference_tensors,
    with_members,
    with_uncertainty,
)
from zoo.training import replicas

MOST = 200_000
"""Training molecules whose fingerprints a file holds at most (about 90 bytes each)."""


class Member(Protocol):
    """A trained network: its task, best weights, and for validation and test the store indices and
    outputs, as `PropertyTask.raw_predictions` has them.
    """

    @property
    def task(self) -> PropertyTask: ...
    @property
    def tensors(self) -> Mapping[str, Tensor]: ...
    @property
    def raw(self) -> Mapping[str, tuple[np.ndarray, np.ndarray]]: ...


@dataclass(frozen=True, kw_only=True)
class Single:
    """The one member of a recipe's run."""

    task: PropertyTask
    tensors: Mapping[str, Tensor]
    raw: Mapping[str, tuple[np.ndarray, np.ndarray]]


def write_run(*, task: PropertyTask, module: nn.Module, folder: Path) -> None:
    """Write the model of a recipe's run into its folder. Every replica takes part; one writes."""
    raw = {split: task.raw_predictions(module, split) for split in ("valid", "test")}
    if replicas.rank() != 0:
        return
    data = task.data
    prints = None
    if data.smiles is not None:
        prints = joined(fingerprints(data.smiles(), workers=cores()))
    write_model(
        path=folder / artifact.MODEL,
        entry=task.entry,
        largest_fragment=False,
        parted=[data],
        tuned=[[Single(task=task, tensors=module.state_dict(), raw=raw)]],
        prints=prints,
    )


def write_model(
    *,
    path: Path,
    entry: str,
    largest_fragment: bool,
    parted: Sequence[PropertyData],
    tuned: Sequence[Sequence[Member]],
    prints: Fingerprints | None,
) -> PropertyModel:
    """Write the members of all folds as one model, and read it back.

    `parted` are the data of each fold, the same but for their splits; `prints` are the
    fingerprints of all their graphs, None where nothing is known of them but the graph.
    """
    members = [one for some in tuned for one in some]
    first = members[0].task
    data = parted[0]
    train = np.unique(np.concatenate([one.splits["train"] for one in parted]))
    spec = with_members(first.spec, len(members))
    extra: dict[str, Any] = {**spec.extra, "largest_fragment": largest_fragment}
    ranges, elements = dict(spec.ranges), []
    if prints is not None:
        limit = similarity_limit(prints, train=train, valid=data.splits["valid"])
        ranges["similarity"] = [limit, 1.0]
        elements = elements_of(data, rows=train)
    spec = spec.model_copy(
        update={"entry": entry, "elements": elements, "extra": extra, "ranges": ranges}
    )
    bare = PropertyModel(spec=spec, modules=[])
    calibrations, intervals = uncertainty(
        bare, truth=data.values, tuned=tuned, folds=len(parted) > 1
    )
    spec = with_uncertainty(spec, calibrations=calibrations, intervals=intervals)
    tensors = member_tensors([common_scale(one, first.mean, first.std) for one in members])
    if prints is not None:
        kept = train
        if len(kept) > MOST:
            kept = np.sort(np.random.default_rng(0).permutation(train)[:MOST])
        tensors |= reference_tensors(selected(prints, rows=kept))
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


def similarity_limit(prints: Fingerprints, *, train: np.ndarray, valid: np.ndarray) -> float:
    """Similarity to the nearest training molecule below which a molecule is unlike the data: what
    one validation molecule in twenty is below, and at most `FAR`.
    """
    known = references(selected(prints, rows=train))
    found, _ = nearest_similarity(query=selected(prints, rows=valid), reference=known)
    found = found[np.isfinite(found)]
    return min(FAR, float(np.quantile(found, 0.05))) if len(found) else FAR


def common_scale(member: Member, mean: np.ndarray, std: np.ndarray) -> dict[str, Tensor]:
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
    truth: np.ndarray,
    tuned: Sequence[Sequence[Member]],
    folds: bool,
) -> tuple[list[Calibration], list[Interval]]:
    """Calibration of each class label and interval of each quantity, from validation molecules; or,
    with folds, from each fold's test molecules, which its members never saw.
    """
    split = "test" if folds else "valid"
    rows = np.concatenate([some[0].raw[split][0] for some in tuned])
    truth = truth[rows]
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


def in_units(members: Sequence[Member], split: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Mean and standard deviation of what members give for a split: units or probabilities."""
    from zoo.recipes.property_data import readable

    made = np.stack(
        [
            readable(
                one.raw[split][1], kind=one.task.data.kind, mean=one.task.mean, std=one.task.std
            )
            for one in members
        ]
    )
    return made.mean(axis=0), made.std(axis=0, ddof=1) if len(made) > 1 else None
