"""SchNet: continuous-filter convolutions on atoms (Schütt et al., NeurIPS 2017; JCP 148, 241722).

A filter is a smooth function of one number, the distance. Here it is not evaluated once per edge
but at `knots` distances, value and analytic slope, and interpolated by cubic Hermite polynomials
(`zoo.ops.cfconv`): continuously differentiable, so forces are exact derivatives of the energy, and
exact to train, since gradients flow through the table into the filter network. `filters="direct"`
evaluates the network per edge; both read the same weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, cast

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.ops.cfconv import cfconv

Readout = Literal["sum", "mean", "dipole", "spatial_extent"]
ELEMENTS = 100
"""Rows of the element embedding: atomic numbers 0 (padding) to 99."""


class SchNetArguments(BaseModel):
    """What a SchNet is built from."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    features: int = Field(128, ge=1, description="width of atom features and filters")
    interactions: int = Field(6, ge=1, description="message-passing steps")
    gaussians: int = Field(50, ge=2, description="radial basis functions on [0, cutoff]")
    cutoff: float = Field(10.0, gt=0, description="neighbours within this distance [Å]")
    knots: int = Field(256, ge=4, description="distances at which filters are tabulated")
    filters: Literal["table", "direct"] = Field(
        "table", description="interpolate filters from a table, or evaluate them per edge"
    )
    readout: Readout = Field("sum", description="how atoms' outputs make the molecule's")
    outputs: int = Field(1, ge=1, description="properties predicted")


def shifted_softplus(x: Tensor) -> Tensor:
    """ln(0.5 e^x + 0.5): zero at zero."""
    return F.softplus(x) - math.log(2.0)


class FilterBank(nn.Module):
    """The filter networks of all interactions, evaluated together: distance -> [L, ..., F].

    W_l(d) = (ssp(rbf(d) A_l + a_l) B_l + b_l) (cos(pi d / cutoff) + 1) / 2, rbf the Gaussians.

    Interpolated from 256 knots over 10 Å they are off by at most 7e-5 of their spread (7e-6 root
    mean square) as initialised and 2e-4 (1e-5) when trained on QM9's U0; the error falls with the
    fourth power of the knots. On 400 molecules of QM9 that moves the trained model's energies by
    0.007 meV on average and 0.03 at most, and forces by 0.06 and 1.2 meV/Å.
    """

    centres: Tensor
    knot_distances: Tensor
    knot_basis: Tensor
    knot_window: Tensor

    def __init__(self, *, layers: int, features: int, gaussians: int, cutoff: float, knots: int):
        super().__init__()
        self.cutoff = cutoff
        self.first = nn.Parameter(torch.empty(layers, gaussians, features))
        self.first_bias = nn.Parameter(torch.zeros(layers, 1, features))
        self.second = nn.Parameter(torch.empty(layers, features, features))
        self.second_bias = nn.Parameter(torch.zeros(layers, 1, features))
        for weight in (*self.first.unbind(), *self.second.unbind()):
            nn.init.xavier_uniform_(weight)
        self.width = -0.5 / (cutoff / (gaussians - 1)) ** 2
        self.register_buffer(
            "centres", torch.linspace(0, cutoff, gaussians, dtype=torch.float64), persistent=False
        )
        distance = torch.linspace(0, cutoff, knots, dtype=torch.float64)
        offset = distance.unsqueeze(1) - self.centres
        basis = self._gaussians(offset)
        slope = 2 * self.width * offset * basis
        angle = math.pi / cutoff
        fall = (-0.5 * angle * torch.sin(distance * angle)).unsqueeze(1)
        self.register_buffer("knot_distances", distance, persistent=False)
        self.register_buffer("knot_basis", torch.cat([basis, slope]), persistent=False)
        window = torch.stack([self._window(distance).unsqueeze(1), fall])
        self.register_buffer("knot_window", window, persistent=False)
        self.float()

    def _gaussians(self, offset: Tensor) -> Tensor:
        exponent = self.width * offset**2
        # Far Gaussians would be denormal numbers, which slow a matrix product tenfold.
        return torch.where(exponent < -60, torch.zeros_like(exponent), torch.exp(exponent))

    def _window(self, distance: Tensor) -> Tensor:
        angle = distance * (math.pi / self.cutoff)
        window = 0.5 * (torch.cos(angle) + 1)
        # asked this way round, a NaN distance stays NaN
        return torch.where(distance >= self.cutoff, torch.zeros_like(angle), window)

    def forward(self, distance: Tensor) -> Tensor:
        """Filters at distances [E] (Å): [L, E, F]."""
        basis = self._gaussians(distance.unsqueeze(1) - self.centres)
        hidden = shifted_softplus(basis @ self.first + self.first_bias)
        value = hidden @ self.second + self.second_bias
        return value * self._window(distance).unsqueeze(1)

    def table(self) -> Tensor:
        """Value and slope of each filter at each knot: [L, K, 2, F]."""
        # Values and slopes go through each matrix as one: two halves of [L, 2K, ...].
        layers, _, features = self.first.shape
        halves = (layers, 2, self.knot_distances.shape[0], features)
        value, slope = (self.knot_basis @ self.first).view(halves).unbind(1)
        value = value + self.first_bias
        hidden = torch.stack([shifted_softplus(value), torch.sigmoid(value) * slope], 1)
        value, slope = (hidden.flatten(1, 2) @ self.second).view(halves).unbind(1)
        value = value + self.second_bias
        window, fall = self.knot_window[0], self.knot_window[1]
        return torch.stack([value * window, torch.addcmul(slope * window, value, fall)], 2)


class Interaction(nn.Module):
    """One message-passing step: the atoms' update from their neighbours' filtered features."""

    def __init__(self, *, features: int):
        super().__init__()
        self.before = nn.Linear(features, features, bias=False)
        self.after = nn.Linear(features, features)
        self.update = nn.Linear(features, features)
        for layer in (self.before, self.after, self.update):
            nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(self.after.bias)
        nn.init.zeros_(self.update.bias)

    def forward(self, messages: Tensor) -> Tensor:
        """[N, F] summed messages -> [N, F] update."""
        update: Tensor = self.update(shifted_softplus(self.after(messages)))
        return update


class SchNet(nn.Module):
    """Molecules in fixed-shape batches -> one value per graph and output.

    `forward(batch)` takes z int [N], pos [N, 3] (Å), batch int [N], the edges (src, dst, dst_ptr,
    src_ptr, src_perm: all pairs within `cutoff`, each with its reverse) and the masks; it returns
    [G, outputs] in the units of the (scaled) label; rows of padding graphs are zero. Gradients with
    respect to `pos` exist to any order.
    """

    HEAD = ("hidden.", "output.")
    """How the parameters that belong to the predicted properties begin."""

    masses: Tensor

    def __init__(self, *, arguments: SchNetArguments):
        super().__init__()
        a = self.arguments = arguments
        self.embedding = nn.Embedding(ELEMENTS, a.features, padding_idx=0)
        self.filters = FilterBank(
            layers=a.interactions,
            features=a.features,
            gaussians=a.gaussians,
            cutoff=a.cutoff,
            knots=a.knots,
        )
        self.interactions = nn.ModuleList(
            Interaction(features=a.features) for _ in range(a.interactions)
        )
        self.hidden = nn.Linear(a.features, a.features // 2)
        self.output = nn.Linear(a.features // 2, a.outputs)
        for layer in (self.hidden, self.output):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        if a.readout in ("dipole", "spatial_extent"):
            from ase.data import atomic_masses

            masses = torch.tensor(atomic_masses[:ELEMENTS], dtype=torch.float32)
            self.register_buffer("masses", masses.clamp(min=1e-3), persistent=False)

    def embed(self, batch: dict[str, Tensor]) -> Tensor:
        """Atoms' features after the last interaction: [N, F]; padding rows hold no meaning."""
        x: Tensor = self.embedding(batch["z"])
        distance = edge_distance(batch)
        # float64 evaluation of a float32 model, and the reverse, follow the weights.
        distance = distance.to(x.dtype)
        graph = {name: batch[name] for name in ("src", "dst", "dst_ptr", "src_ptr", "src_perm")}
        interactions = cast("Sequence[Interaction]", self.interactions)
        if self.arguments.filters == "direct":
            filters: Tensor = self.filters(distance)
            filters = torch.where(
                batch["edges_mask"].unsqueeze(1), filters, torch.zeros_like(filters)
            )
            for layer, interaction in enumerate(interactions):
                messages = interaction.before(x).index_select(0, batch["src"]) * filters[layer]
                target = batch["dst"].to(torch.int64).unsqueeze(1).expand_as(messages)
                summed = torch.zeros_like(x).scatter_add(0, target, messages)
                x = x + interaction(summed)
            return x
        # unbind, not indexing: its backward is one stack, not a sum of zero-filled tensors
        tables = self.filters.table().unbind()
        for table, interaction in zip(tables, interactions, strict=True):
            messages = cfconv(
                *(interaction.before(x), table, distance),
                **graph,
                cutoff=self.arguments.cutoff,
                symmetric=True,
            )
            x = x + interaction(messages)
        return x

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        x = shifted_softplus(self.hidden(self.embed(batch)))
        per_atom = self.output(x)
        return self._read_out(per_atom, batch)

    def _read_out(self, per_atom: Tensor, batch: dict[str, Tensor]) -> Tensor:
        real = batch["nodes_mask"].unsqueeze(1)
        per_atom = torch.where(real, per_atom, torch.zeros_like(per_atom))
        graphs = batch["graphs_mask"].shape[0]
        if self.arguments.readout == "sum":
            return _per_graph(per_atom, batch, graphs)
        if self.arguments.readout == "mean":
            atoms = _per_graph(real.to(per_atom.dtype), batch, graphs)
            return _per_graph(per_atom, batch, graphs) / atoms.clamp(min=1)
        pos = torch.where(real, batch["pos"], torch.zeros_like(batch["pos"])).to(per_atom.dtype)
        mass = self.masses.index_select(0, batch["z"]).unsqueeze(1).to(pos.dtype) * real
        centre = _per_graph(mass * pos, batch, graphs) / _per_graph(mass, batch, graphs).clamp(
            min=1e-3
        )
        offset = pos - centre.index_select(0, batch["batch"])
        if self.arguments.readout == "spatial_extent":
            return _per_graph(per_atom * (offset**2).sum(1, keepdim=True), batch, graphs)
        moment = _per_graph((per_atom.unsqueeze(2) * offset.unsqueeze(1)).flatten(1), batch, graphs)
        square = (moment.view(graphs, -1, 3) ** 2).sum(2)
        # The norm has no gradient at zero, where padding graphs are: there it is taken as zero.
        zero = square == 0
        norm = torch.where(zero, torch.ones_like(square), square).sqrt()
        return torch.where(zero, torch.zeros_like(norm), norm)


def edge_distance(batch: dict[str, Tensor]) -> Tensor:
    """Length of each edge [E] (Å), differentiable in pos; 1 for padding edges."""
    pos = batch["pos"]
    vector = pos.index_select(0, batch["src"]) - pos.index_select(0, batch["dst"])
    # Padding may hold NaN, and a padding edge has no length to differentiate: replace first.
    vector = torch.where(batch["edges_mask"].unsqueeze(1), vector, torch.ones_like(vector) / 3**0.5)
    return (vector**2).sum(1).sqrt()


def _per_graph(values: Tensor, batch: dict[str, Tensor], graphs: int) -> Tensor:
    """Sum rows [N, T] of each graph: [G, T]."""
    index = batch["batch"].to(torch.int64).unsqueeze(1).expand_as(values)
    return values.new_zeros(graphs, values.shape[1]).scatter_add(0, index, values)
