"""Properties of models whose output is an energy of positions; see `properties`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from properties import Subject
from torch import Tensor

from zoo.batching.pack import Batch


def forces(subject: Subject, batch: Batch, *, create_graph: bool = False) -> Tensor:
    """-dE/dpos [N, 3] of the sum of all outputs."""
    pos = batch["pos"].detach().requires_grad_()
    energy = subject.predict(subject.module, {**batch, "pos": pos}).sum()
    return -torch.autograd.grad(energy, pos, create_graph=create_graph)[0]


def check_forces(subject: Subject, graphs: Sequence[int], *, tolerance: float = 1e-6) -> None:
    """Forces equal central differences of the energy, relative to the largest, and sum to zero."""
    batch = subject.pack(graphs)
    found = forces(subject, batch)
    assert not found[~batch["nodes_mask"]].any(), "padding is pushed"
    step = 1e-4
    with torch.no_grad():
        for atom in torch.nonzero(batch["nodes_mask"]).flatten().tolist():
            for axis in range(3):
                energies = []
                for sign in (1, -1):
                    pos = batch["pos"].clone()
                    pos[atom, axis] += sign * step
                    outputs = subject.predict(subject.module, {**batch, "pos": pos})
                    energies.append(float(outputs.sum()))
                slope = -(energies[0] - energies[1]) / (2 * step)
                error = abs(slope - float(found[atom, axis]))
                assert error <= tolerance * float(found.abs().max()), (atom, axis, slope)
    total = torch.zeros(subject.shape.graphs, 3, dtype=found.dtype)
    total.index_add_(0, batch["batch"], found)
    assert float(total.abs().max()) <= 1e-9 * float(found.abs().max())


def check_training_on_forces(
    subject: Subject, graphs: Sequence[int], *, tolerance: float = 1e-6
) -> None:
    """d|F|²/dw equals central differences along a random direction of each parameter."""
    batch = subject.pack(graphs)
    random = torch.Generator().manual_seed(0)
    subject.module.zero_grad(set_to_none=True)
    (forces(subject, batch, create_graph=True) ** 2).sum().backward()
    for name, parameter in subject.module.named_parameters():
        # a constant added to every energy has no force
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        direction = torch.randn(parameter.shape, generator=random, dtype=parameter.dtype)
        direction /= direction.norm()
        step, values = 1e-4, []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(direction, alpha=sign * step)
            values.append(float((forces(subject, batch) ** 2).sum()))
            with torch.no_grad():
                parameter.sub_(direction, alpha=sign * step)
        slope, found = (values[0] - values[1]) / (2 * step), float((gradient * direction).sum())
        scale = float(gradient.norm()) + values[0] * 1e-6  # rounding of a difference of |F|²
        assert abs(slope - found) <= tolerance * scale, (name, slope, found)
