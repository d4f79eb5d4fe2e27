"""Made-up molecules in OGB's categories, and GINs to try on them."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from properties import Subject

from zoo.batching.shape import FixedSize
from zoo.batching.store import make_store
from zoo.models.gin import ATOM_CATEGORIES, BOND_CATEGORIES, GIN, GINArguments

SIZES = [5, 1, 9, 2, 7, 3, 8, 6, 4, 2, 1, 9]
PACK = [2, 0, 1, 3, 5]
FORMS = {
    "mean": {},
    "sum": {"readout": "sum", "outputs": 2},
    "attention": {"readout": "attention"},
    "virtual": {"virtual_node": True, "residual": True},
}


def store():
    """Trees with a few rings, each bond both ways with one set of categories."""
    rng = np.random.default_rng(0)
    src, dst, bond, counts = [], [], [], []
    for size in SIZES:
        pairs = {(int(rng.integers(0, i)), i) for i in range(1, size)}
        pairs |= {(0, size - 1)} if size > 4 else set()
        kinds = {p: [int(rng.integers(0, c)) for c in BOND_CATEGORIES] for p in sorted(pairs)}
        both = [(j, i, k) for (i, j), k in kinds.items()]
        both = sorted(both + [(i, j, k) for j, i, k in both])
        dst += [d for d, _, _ in both]
        src += [s for _, s, _ in both]
        bond += [k for _, _, k in both]
        counts.append(len(both))
    atoms = np.stack([rng.integers(0, c, sum(SIZES)) for c in ATOM_CATEGORIES], 1)
    return make_store(
        node_ptr=np.concatenate([[0], np.cumsum(SIZES)]),
        node={"atom": atoms.astype(np.uint8)},
        graph={},
        edge={
            "src": np.array(src),
            "dst": np.array(dst),
            "bond": np.array(bond, np.uint8).reshape(-1, 3),
        },
        edge_ptr=np.concatenate([[0], np.cumsum(counts)]),
    )


@cache
def subject(form: str) -> Subject:
    torch.manual_seed(0)
    arguments = GINArguments(features=6, layers=3, **FORMS[form])
    module = GIN(arguments=arguments).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for name, buffer in module.named_buffers():
            if buffer.is_floating_point():
                buffer.add_(torch.rand_like(buffer) * (1 if "var" in name else 0.1))
    targets = np.random.default_rng(1).standard_normal((len(SIZES), arguments.outputs))
    targets[3, 0] = np.nan
    return Subject(
        module=module,
        store=store(),
        shape=FixedSize(nodes=32, edges=80, graphs=8),
        targets=targets,
        cutoff=None,
        ids={"atom": 2, "bond": 2},
    )
