"""What PyG's layers are built from and called with: values by the names of their parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zoo.batching.pack import fill_batch
from zoo.batching.shape import FixedSize
from zoo.batching.store import make_store

SHAPE = FixedSize(nodes=24, edges=48, graphs=4)
"""Three rings of 5, 6 and 7 nodes, the rest padding."""
RINGS = (5, 6, 7)
CHANNELS = 8
MOST = 8
"""Slots for the nodes of one graph, where a layer wants each graph apart."""
_KINDS = ["a", "b"]
_METADATA = (_KINDS, [("a", "to", "b"), ("b", "to", "a")])


def _mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, CHANNELS), nn.ReLU(), nn.Linear(CHANNELS, outputs))


def _conv() -> nn.Module:
    from torch_geometric.nn import GraphConv

    conv: nn.Module = GraphConv(CHANNELS, CHANNELS)
    return conv


def _hetero() -> dict[tuple[str, str, str], nn.Module]:
    return {kind: _conv() for kind in _METADATA[1]}


# Constructors: what is required, and of what has a default, what is named in _ALSO. A function is
# called for a value of its own.
_BUILD: dict[str, Any] = {
    "in_channels": CHANNELS,
    "out_channels": CHANNELS,
    "hidden_channels": CHANNELS,
    "channels": CHANNELS,
    "edge_dim": CHANNELS,
    "in_edge_channels": CHANNELS,
    "space_dimensions": 3,
    "propagate_dimensions": CHANNELS,
    "edge_type_emb_dim": CHANNELS,
    "edge_attr_emb_dim": CHANNELS,
    "num_relations": 2,
    "num_types": 2,
    "num_node_types": 2,
    "num_edge_types": 2,
    "num_nodes": SHAPE.nodes,
    "num_layers": 2,
    "num_clusters": 4,
    "heads": 2,
    "groups": 2,
    "K": 2,
    "k": 3,
    "alpha": 0.1,
    "dim": CHANNELS,
    "kernel_size": 2,
    "filter_size": 2,
    "patch_size": 4,
    "processing_steps": 2,
    "num_cells": 2,
    "num_cells_to_visit": 1,
    "bits_per_vector": 8,
    "max_num_elements": MOST,
    "q": 0.5,
    "first_aggr": True,
    "add_self_loops": False,
    "aggr": "mean",
    "aggrs": ["sum", "max"],
    "aggregators": ["mean", "max"],
    "scaler": ["identity", "amplification"],
    "scalers": ["identity", "amplification"],
    "deg": lambda: torch.tensor([0, 2, 16]),
    "metadata": _METADATA,
    "types": _KINDS,
    "nn": partial(_mlp, CHANNELS, CHANNELS),
    "gate_nn": partial(_mlp, CHANNELS, 1),
    "mlp_h": partial(_mlp, CHANNELS, 3),
    "mlp_f": partial(_mlp, CHANNELS + 3, CHANNELS),
    "mlp_g": partial(_mlp, CHANNELS, CHANNELS),
    "conv": _conv,
    "convs": _hetero,
}
_ALSO = ("add_self_loops", "edge_dim", "in_edge_channels", "types")

# Calls: what isn't a tensor. Parameters that are in none of these tables keep their default.
_CALL: dict[str, Any] = {
    "dim_size": SHAPE.graphs,
    "batch_size": SHAPE.graphs,
    "max_num_elements": MOST,
    "max_num_nodes": MOST,
    "num_edges": SHAPE.nodes // 2,
    "num_nodes": SHAPE.nodes,
    "k": 3,
    "r": 2.0,
    "decimation_factor": 2,
    "ratio": 0.5,
    "loop": True,
}


@dataclass(frozen=True, kw_only=True)
class Made:
    """A value that a step makes of the tensors it needs, since a batch holds tensors alone."""

    needs: tuple[str, ...]
    make: Callable[[Mapping[str, Tensor]], Any]


def _data(batch: Mapping[str, Tensor]) -> Any:
    from torch_geometric.data import Data

    return Data(**{name: batch[name] for name in ("x", "edge_index", "pos", "batch")})


def _sparse(batch: Mapping[str, Tensor]) -> Any:
    from torch_geometric.typing import SparseTensor

    row, column = batch["edge_index"]
    return SparseTensor(row=row, col=column, sparse_sizes=(SHAPE.nodes, SHAPE.nodes))


_MADE: dict[str, Made] = {
    "M": Made(needs=("edge_index",), make=_sparse),
    "x_dict": Made(needs=("x",), make=lambda b: dict.fromkeys(_KINDS, b["x"])),
    "edge_index_dict": Made(
        needs=("edge_index",), make=lambda b: dict.fromkeys(_METADATA[1], b["edge_index"])
    ),
    "data": Made(needs=("x", "edge_index", "pos", "batch"), make=_data),
}

# What some layers are built from otherwise, by their names; also what their signature hides, "*"
# being positional.
_BUILD_OTHERWISE: dict[str, dict[str, Any]] = {
    "AntiSymmetricConv": {"phi": _conv},
    "CGConv": {"dim": CHANNELS},
    "DegreeScalerAggregation": {"aggr": ["mean", "max"]},
    "DynamicEdgeConv": {"nn": partial(_mlp, 2 * CHANNELS, CHANNELS)},
    "EdgeConv": {"nn": partial(_mlp, 2 * CHANNELS, CHANNELS)},
    "EquilibriumAggregation": {"num_layers": [CHANNELS]},
    "FusedGATConv": {"in_channels": CHANNELS, "out_channels": CHANNELS, "add_self_loops": False},
    "GAT": {"add_self_loops": False},
    "GCN": {"add_self_loops": False},
    "MLPAggregation": {"num_layers": 1},
    "NNConv": {"nn": partial(_mlp, CHANNELS, CHANNELS * CHANNELS)},
    "PNA": {name: _BUILD[name] for name in ("aggregators", "scalers", "deg")},
    "Reshape": {"*": (SHAPE.nodes, 2, CHANNELS // 2)},
    "Sequential": {
        "input_args": "x, edge_index",
        "modules": lambda: [(_conv(), "x, edge_index -> x"), nn.ReLU()],
    },
    "XConv": {"dim": 3},
}
# The same of calls: a name is a tensor's, None leaves a parameter out.
_CALL_OTHERWISE: dict[str, dict[str, Any]] = {
    "AntiSymmetricConv": {"edge_index": "edge_index"},
    "ClusterGCNConv": {"edge_index": "looped_edges"},
    "DNAConv": {"x": "layers_x"},
    "FAConv": {"edge_weight": None},
    "GAT": {"edge_attr": None},
    "HeteroConv": {name: _MADE[name] for name in ("x_dict", "edge_index_dict")},
    "MeanSubtractionNorm": {"x": "x", "batch": "batch", "dim_size": SHAPE.graphs},
    "MemPooling": {"mask": None},
    "MeshCNNConv": {"edge_index": "four_each"},
    "PNA": {"edge_attr": None},
    "PositionalEncoding": {"x": "time"},
    "Sequential": {"x": "x", "edge_index": "edge_index"},
    "TemporalEncoding": {"x": "time"},
    "WLConv": {"x": "node_type"},
    "avg_pool_x": {"size": MOST, "cluster": "small_cluster"},
    "max_pool_x": {"size": MOST, "cluster": "small_cluster"},
    "consecutive_cluster": {"src": "cluster"},
    "decimation_indices": {"ptr": "offsets"},
    "global_add_pool": {"size": SHAPE.graphs},
    "global_max_pool": {"size": SHAPE.graphs},
    "global_mean_pool": {"size": SHAPE.graphs},
    "voxel_grid": {"size": 1.0},
}


@cache
def tensors() -> dict[str, Tensor]:
    """The padded batch, as PyG names and types its parts, and what stands for other parameters."""
    batch = fill_batch(
        store=_store(), graphs=np.arange(len(RINGS)), shape=SHAPE, cutoff=None, targets=None
    )
    generator = torch.Generator().manual_seed(0)
    normal = partial(torch.randn, generator=generator)
    N, E, G, C = SHAPE.nodes, SHAPE.edges, SHAPE.graphs, CHANNELS
    edge_index = torch.stack([batch["src"], batch["dst"]]).long()
    real = batch["edges_mask"]
    kinds = torch.arange(N) % 2
    dense = (normal(G, MOST, MOST) > 0).float()
    x = batch["x"].requires_grad_()  # as it is where another layer comes before
    found = {
        "x": x,
        "x_0": normal(N, C),
        "msg": normal(N, C),
        "pos": batch["pos"],
        "normal": nn.functional.normalize(normal(N, 3), dim=1),
        "batch": batch["batch"].long(),
        "index": batch["batch"].long(),
        "offsets": batch["node_ptr"].long(),
        "time": torch.arange(float(N)),
        "edge_index": edge_index,
        "looped_edges": torch.cat([edge_index[:, real], torch.arange(N).expand(2, N)], dim=1),
        "pos_edge_index": edge_index,
        "neg_edge_index": edge_index.flip(0),
        "edge_weight": torch.rand(E, generator=generator),
        "weight": torch.rand(E, generator=generator),
        "edge_attr": torch.rand(E, C, generator=generator),
        "edge_type": torch.arange(E) % 2,
        "hyperedge_index": torch.stack([edge_index[0], edge_index[1] // 2]),
        "hyperedge_weight": torch.rand(N // 2, generator=generator),
        "four_each": torch.stack([torch.arange(N).repeat_interleave(4), torch.arange(4 * N) % N]),
        "node_type": kinds,
        "type_vec": kinds,
        "cluster": torch.arange(N) // 2,
        "small_cluster": torch.arange(N) % (G * MOST),
        "head_index": torch.arange(N),
        "rel_type": kinds,
        "tail_index": torch.arange(N).flip(0),
        "layers_x": normal(N, 3, C),
        "z": torch.ones(N, dtype=torch.int64),
        "w": normal(N, C),
        "y": batch["x"].detach() + 0.1,
        "pos_x": batch["pos"],
        "pos_y": batch["pos"] + 0.1,
        "batch_x": batch["batch"].long(),
        "batch_y": batch["batch"].long(),
        "adj": (dense + dense.mT) / 2,
        "mask": torch.arange(MOST) < torch.tensor([*RINGS, MOST])[:, None],
        "s": normal(G, MOST, 4),
        "dense_x": normal(G, MOST, C).requires_grad_(),
    }
    return {name: value.contiguous() for name, value in found.items()}


def _store() -> Any:
    """Rings whose nodes are joined both ways, with features and positions."""
    sizes = np.array(RINGS)
    random = np.random.default_rng(0)
    ends = []
    for size in sizes:
        at = np.arange(size)
        pairs = np.stack([np.r_[at, (at + 1) % size], np.r_[(at + 1) % size, at]])
        ends.append(pairs[:, np.lexsort(pairs)])
    src, dst = np.concatenate(ends, axis=1)
    nodes = int(sizes.sum())
    return make_store(
        node_ptr=np.concatenate([[0], sizes.cumsum()]),
        node={
            "x": random.normal(size=(nodes, CHANNELS)).astype(np.float32),
            "pos": random.normal(size=(nodes, 3)).astype(np.float32),
        },
        graph={},
        edge={"src": src, "dst": dst},
        edge_ptr=np.concatenate([[0], (2 * sizes).cumsum()]),
    )


def built(target: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
    """A class's instance, or the function itself, and the arguments that it was built with.

    TypeError for a required parameter that no table knows.
    """
    if not _is_class(target):
        return target, {}
    given: dict[str, Any] = {}
    for name, required in _parameters(target.__init__).items():
        if name in _BUILD and (required or name in _ALSO):
            given[name] = _BUILD[name]
        elif required:
            given[name] = None
    given |= _BUILD_OTHERWISE.get(target.__name__, {})
    _all_known(given)
    given = {name: value() if callable(value) else value for name, value in given.items()}
    hidden = given.get("*", ())
    return target(*hidden, **{name: given[name] for name in given if name != "*"}), given


def called(target: Any) -> dict[str, Any]:
    """What a layer is called with: names of tensors, values to make (Made), constants.

    TypeError for a required parameter that no table knows.
    """
    parameters = _parameters(target.forward if _is_class(target) else target)
    given: dict[str, Any] = {}
    for name, required in parameters.items():
        if name in tensors():
            given[name] = "dense_x" if name == "x" and "adj" in parameters else name
        elif name in _MADE or name in _CALL:
            given[name] = _MADE.get(name, _CALL.get(name))
        elif required:
            given[name] = None
    special = _CALL_OTHERWISE.get(target.__name__, {})
    given |= special
    _all_known({name: given[name] for name in given if name not in special})
    return {name: value for name, value in given.items() if value is not None}


def _is_class(target: Any) -> bool:
    return inspect.isclass(target)


def _all_known(given: Mapping[str, Any]) -> None:
    unknown = [name for name, value in given.items() if value is None]
    if {"model", "module"} & set(unknown):
        raise TypeError("takes a whole model: no layer")
    if unknown:
        raise TypeError(f"no value is known for its parameter {unknown[0]}")


def _parameters(function: Callable[..., Any]) -> dict[str, bool]:
    """A function's parameters, and whether they are required."""
    return {
        name: one.default is one.empty
        for name, one in inspect.signature(function).parameters.items()
        if name != "self" and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }
