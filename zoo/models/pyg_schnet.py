"""PyG's SchNet weights in ours."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from zoo.errors import RequestError
from zoo.models.schnet import ELEMENTS, Readout, SchNet, SchNetArguments


def from_pyg(
    model: nn.Module, *, filters: Literal["table", "direct"] = "table", knots: int = 256
) -> SchNet:
    """A `torch_geometric.nn.models.SchNet` as a `SchNet` of the same outputs, precision and device.

    `mean`, `std` and `scale` go into the last layer. PyG looks at 32 neighbours at most unless told
    otherwise (`max_num_neighbors`); here all within the cutoff count. RequestError for what has no
    counterpart here: fewer or more filters than features, per-element references, a read-out other
    than sum, mean or dipole.
    """
    from torch_geometric.nn.models import SchNet as PyGSchNet

    if not isinstance(model, PyGSchNet):
        raise RequestError(f"from_pyg takes a torch_geometric SchNet, not {type(model).__name__}")
    source: Any = model
    _check(source)
    arguments = SchNetArguments(
        features=source.hidden_channels,
        interactions=source.num_interactions,
        gaussians=source.num_gaussians,
        cutoff=source.cutoff,
        readout=_readout(source),
        filters=filters,
        knots=knots,
    )
    converted = SchNet(arguments=arguments).to(source.embedding.weight)
    converted.load_state_dict(_state(source))
    return converted.train(source.training)


def _readout(source: Any) -> Readout:
    name = type(source.readout).__name__
    if source.dipole and name == "SumAggregation":
        return "dipole"
    known: dict[str, Readout] = {"SumAggregation": "sum", "MeanAggregation": "mean"}
    if source.dipole or name not in known:
        kind = f"dipole with {name}" if source.dipole else name
        raise RequestError(f"this PyG SchNet reads out by {kind}; sum, mean and dipole are known")
    return known[name]


def _check(source: Any) -> None:
    if source.hidden_channels != source.num_filters:
        raise RequestError(
            f"this PyG SchNet has {source.hidden_channels} features and {source.num_filters} "
            "filters; only equal numbers can be converted"
        )
    if source.atomref is not None and not source.dipole:
        raise RequestError(
            "this PyG SchNet adds a reference of each element (atomref); set model.atomref = None "
            "and add the references to the converted model's predictions"
        )
    if source.embedding.num_embeddings != ELEMENTS:
        raise RequestError(
            f"this PyG SchNet embeds {source.embedding.num_embeddings} elements, not {ELEMENTS}"
        )
    centres = source.distance_expansion.offset
    expected = torch.linspace(0, source.cutoff, source.num_gaussians).to(centres)
    if centres.shape != expected.shape or not torch.allclose(centres, expected):
        raise RequestError("this PyG SchNet's Gaussians don't span 0 to the cutoff evenly")


def _state(source: Any) -> dict[str, Tensor]:
    """The state of a `SchNet` with the source's weights."""
    blocks = list(source.interactions)

    def stack(path: str) -> Tensor:
        return torch.stack([block.get_parameter(path).detach() for block in blocks])

    state = {
        "embedding.weight": source.embedding.weight,
        "filters.first": stack("mlp.0.weight").transpose(1, 2),
        "filters.first_bias": stack("mlp.0.bias").unsqueeze(1),
        "filters.second": stack("mlp.2.weight").transpose(1, 2),
        "filters.second_bias": stack("mlp.2.bias").unsqueeze(1),
        "hidden.weight": source.lin1.weight,
        "hidden.bias": source.lin1.bias,
    }
    for number, block in enumerate(blocks):
        state[f"interactions.{number}.before.weight"] = block.conv.lin1.weight
        for ours, theirs in (("after", block.conv.lin2), ("update", block.lin)):
            state[f"interactions.{number}.{ours}.weight"] = theirs.weight
            state[f"interactions.{number}.{ours}.bias"] = theirs.bias
    mean, std = 0.0, 1.0
    if source.mean is not None and source.std is not None and not source.dipole:
        mean, std = source.mean, source.std
    scale = 1.0 if source.scale is None else source.scale
    state["output.weight"] = source.lin2.weight * (std * scale)
    state["output.bias"] = (source.lin2.bias * std + mean) * scale
    return {name: value.detach() for name, value in state.items()}
