"""Weights of the GIN in OGB's own examples, with and without virtual node, for `zoo.models.gin`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from zoo.errors import WeightsError
from zoo.models.gin import GIN, GINArguments

_PLACES = (
    (r"gnn_node\.atom_encoder\.atom_embedding_list\.(\d+)", r"atoms.embeddings.\1"),
    (
        r"gnn_node\.convs\.(\d+)\.bond_encoder\.bond_embedding_list\.(\d+)",
        r"layers.\1.bonds.embeddings.\2",
    ),
    (r"gnn_node\.convs\.(\d+)\.mlp\.0", r"layers.\1.first"),
    (r"gnn_node\.convs\.(\d+)\.mlp\.1", r"layers.\1.first_norm"),
    (r"gnn_node\.convs\.(\d+)\.mlp\.3", r"layers.\1.second"),
    (r"gnn_node\.convs\.(\d+)\.eps", r"layers.\1.eps"),
    (r"gnn_node\.batch_norms\.(\d+)", r"layers.\1.norm"),
    (r"gnn_node\.mlp_virtualnode_list\.(\d+)\.0", r"virtual_layers.\1.first"),
    (r"gnn_node\.mlp_virtualnode_list\.(\d+)\.1", r"virtual_layers.\1.first_norm"),
    (r"gnn_node\.mlp_virtualnode_list\.(\d+)\.3", r"virtual_layers.\1.second"),
    (r"gnn_node\.mlp_virtualnode_list\.(\d+)\.4", r"virtual_layers.\1.second_norm"),
    (r"gnn_node\.virtualnode_embedding\.weight", r"virtual"),
    (r"graph_pred_linear", r"output"),
)


def from_ogb(state: Mapping[str, Tensor], *, dropout: float = 0.5, residual: bool = False) -> GIN:
    """A GIN with the weights of OGB's example (its `state_dict`; mean read-out, last layer), which
    gives equal outputs. `dropout` and `residual` are not in the weights.

    WeightsError for tensors that are not of such a model.
    """
    tensors = {}
    for name, value in state.items():
        for pattern, place in _PLACES:
            if re.match(pattern + r"(\.|$)", name):
                tensors[re.sub("^" + pattern, place, name)] = value
                break
        else:
            raise WeightsError(f"{name} is no part of OGB's example GIN with mean read-out")
    try:
        outputs, features = tensors["output.weight"].shape
        layers = 1 + max(int(n.split(".")[1]) for n in tensors if n.startswith("layers."))
    except (KeyError, ValueError) as error:
        raise WeightsError("these are not the weights of OGB's example GIN") from error
    model = GIN(
        arguments=GINArguments(
            features=features,
            layers=layers,
            outputs=outputs,
            dropout=dropout,
            residual=residual,
            virtual_node="virtual" in tensors,
        )
    )
    expected = {name: value.shape for name, value in model.state_dict().items()}
    if expected != {name: value.shape for name, value in tensors.items()}:
        odd = sorted(expected.keys() ^ tensors.keys()) or ["a tensor's shape"]
        raise WeightsError(f"these are not the weights of OGB's example GIN: {odd[0]} doesn't fit")
    model.load_state_dict(tensors)
    return model
