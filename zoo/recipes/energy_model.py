"""A trained energy or property model, ready to use: what `zoo.load` returns for molecules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from zoo.artifact import Spec, read_weights
from zoo.batching.pack import Batch, fill_batch, make_plan
from zoo.batching.shape import FixedSize
from zoo.batching.store import Store, make_store
from zoo.errors import RequestError, WeightsError
from zoo.files import sha256_file
from zoo.models.schnet import SchNet, SchNetArguments
from zoo.training.lanes import lane_map

if TYPE_CHECKING:
    import pandas as pd

Molecule = tuple[np.ndarray, np.ndarray]


class EnergyModel:
    """Weights, preprocessing and units in one.

    `module` is the plain network (scaled outputs), `spec` what the weight file says of itself. All
    quantities come out in the units of `spec.properties`; geometries are in Å.
    """

    def __init__(self, *, spec: Spec, module: SchNet, sha256: str = "") -> None:
        self.spec, self.module, self.sha256 = spec, module.eval(), sha256
        self._property = spec.properties[0]
        self._cutoff = module.arguments.cutoff

    def __repr__(self) -> str:
        count = sum(p.numel() for p in self.module.parameters())
        return (
            f"<{self.spec.entry}: {self.column} by {self.spec.architecture}, "
            f"{count:,} parameters, elements {' '.join(self.spec.elements)}>"
        )

    @property
    def column(self) -> str:
        """Name and unit of what is predicted, as in tables: `U0 [eV]`."""
        return f"{self._property.name} [{self._property.unit}]"

    def predict(
        self,
        source: Any,
        *,
        smiles: str | None = None,
        on_error: str = "nan",
        conformer_seconds: float = 10.0,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Predict for ase.Atoms, SMILES, a table or a file (see `zoo.chem.read_molecules`).

        One row per input in input order: its own columns, the property (`U0 [eV]`), `valid`,
        `reason`, and a `warning` where an input is unlike the training data. Rows that can't be
        used hold NaN ("nan"), are left out ("skip") or end the call ("raise", DataError).
        """
        import pandas as pd

        from zoo.recipes.predictions import predict_frames

        frames = list(
            predict_frames(
                model=self,
                source=source,
                smiles=smiles,
                on_error=on_error,
                conformer_seconds=conformer_seconds,
                seed=seed,
            )
        )
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def embed(self, source: Any, *, smiles: str | None = None) -> np.ndarray:
        """The sum of each molecule's atom features after the last interaction: [molecules, F].

        Raises DataError for a row that can't be used.
        """
        from zoo.recipes.predictions import valid_molecules

        molecules = valid_molecules(self, source, smiles=smiles)

        def summed(batch: Batch) -> Tensor:
            x = torch.where(batch["nodes_mask"].unsqueeze(1), self.module.embed(batch), 0.0)
            index = batch["batch"].to(torch.int64).unsqueeze(1).expand_as(x)
            return x.new_zeros(len(batch["graphs_mask"]), x.shape[1]).scatter_add(0, index, x)

        return self._run(molecules, summed, width=self.module.arguments.features)

    def values(self, molecules: Sequence[Molecule]) -> np.ndarray:
        """The property of molecules (atomic numbers [n], positions [n, 3] in Å): float64 [M].

        RequestError when the head was replaced by one for other properties.
        """
        self._check_head()
        scaled = self._run(molecules, self.module, width=1)[:, 0]
        return self._unscale(scaled, [numbers for numbers, _ in molecules])

    def energy_and_forces(
        self, numbers: np.ndarray, positions: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Energy (eV) and forces, its exact negative gradient [n, 3] (eV/Å), of one molecule.

        RequestError when the property isn't an energy of the whole molecule.
        """
        self._check_head()
        if self._property.unit != "eV" or self.module.arguments.readout != "sum":
            raise RequestError(f"{self.column} isn't an energy surface: it has no forces")
        count = len(numbers)
        shape = FixedSize(nodes=count + 1, edges=max(1, count * (count - 1)), graphs=2)
        store = _store([(numbers, positions)], dtype=self._dtype)
        batch = fill_batch(
            store=store, graphs=np.zeros(1, np.int64), shape=shape, cutoff=self._cutoff
        )
        batch["pos"].requires_grad_()
        scaled = self.module(batch)[0, 0]
        (slope,) = torch.autograd.grad(scaled, batch["pos"])
        std = self.spec.scaling[self._property.name].std
        energy = self._unscale(np.array([float(scaled.detach())]), [numbers])[0]
        return float(energy), -std * slope[:count].double().numpy()

    def calculator(self) -> Any:
        """An ASE calculator: energy in eV and forces in eV/Å."""
        from zoo.chem.calculator import calculator

        return calculator(
            energy_and_forces=self.energy_and_forces,
            elements=self.spec.elements,
            label=self.spec.entry,
        )

    def reset_head(self, *, outputs: int = 1, seed: int = 0) -> EnergyModel:
        """A copy with the body kept and the last two layers new, for `outputs` other properties.

        Its `module` predicts scaled values; the caller trains it and knows their meaning.
        """
        arguments = self.module.arguments.model_copy(update={"outputs": outputs})
        module = _untrained(arguments, seed=seed)
        kept = {
            name: value
            for name, value in self.module.state_dict().items()
            if not name.startswith(("hidden.", "output."))
        }
        module.load_state_dict(kept, strict=False)
        spec = self.spec.model_copy(update={"arguments": arguments.model_dump()})
        return EnergyModel(spec=spec, module=module)

    def double(self) -> EnergyModel:
        """A copy that computes in float64 (geometry optimisation to tight thresholds, tests)."""
        module = _untrained(self.module.arguments)
        module.load_state_dict(self.module.state_dict())
        return EnergyModel(spec=self.spec, module=module.double(), sha256=self.sha256)

    def _check_head(self) -> None:
        outputs = self.module.arguments.outputs
        if outputs != 1:
            raise RequestError(
                f"the head of this model is a new one with {outputs} outputs, not {self.column}\n"
                "its `module` predicts scaled values; their meaning is yours"
            )

    @property
    def _dtype(self) -> Any:
        double = next(self.module.parameters()).dtype == torch.float64
        return np.float64 if double else np.float32

    def _unscale(self, scaled: np.ndarray, numbers: Iterable[np.ndarray]) -> np.ndarray:
        from ase.data import atomic_numbers

        name = self._property.name
        shares = np.zeros(256)
        for symbol, value in self.spec.atom_refs.get(name, {}).items():
            shares[atomic_numbers[symbol]] = value
        scaling = self.spec.scaling[name]
        offset = np.array([shares[np.asarray(z, np.int64)].sum() for z in numbers])
        values: np.ndarray = offset + scaling.mean + scaling.std * scaled.astype(np.float64)
        return values

    def _run(self, molecules: Sequence[Molecule], function: Any, *, width: int) -> np.ndarray:
        """Packs of the trained shape (a larger one for larger molecules) through `function`."""
        out = np.zeros((len(molecules), width))
        if not molecules:
            return out
        store = _store(molecules, dtype=self._dtype)
        nodes, edges = store.nodes_per_graph(), store.edges_per_graph(cutoff=self._cutoff)
        shape = _shape(self.spec, nodes=nodes, edges=edges)
        plan = make_plan(ids=np.arange(len(store)), nodes=nodes, edges=edges, shape=shape)

        def one(number: int) -> tuple[np.ndarray, np.ndarray]:
            batch = fill_batch(
                store=store, graphs=plan.pack(number), shape=shape, cutoff=self._cutoff
            )
            with torch.no_grad():
                values = function(batch)
            real = batch["graphs_mask"]
            return batch["graph_id"][real].numpy(), values[real].double().numpy()

        for rows, values in lane_map(one, range(len(plan))):
            out[rows] = values
        return out


def load_energy_model(path: Path) -> EnergyModel:
    """Build the model that a weight file describes. WeightsError where tensors don't fit it, or
    where what it says of itself makes no sense.
    """
    spec, tensors = read_weights(path)
    _check_spec(spec, where=str(path))
    return EnergyModel(
        spec=spec, module=build_module(spec, tensors, where=str(path)), sha256=sha256_file(path)
    )


def _untrained(arguments: SchNetArguments, *, seed: int = 0) -> SchNet:
    """A network with random values, and the caller's random numbers as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return SchNet(arguments=arguments)


def _check_spec(spec: Spec, *, where: str) -> None:
    """Hold a spec to what prediction takes from it."""
    from ase.data import atomic_numbers

    names = [p.name for p in spec.properties]
    symbols = {*spec.elements, *(s for refs in spec.atom_refs.values() for s in refs)}
    problem = ""
    if spec.architecture != "schnet":
        problem = f"the architecture {spec.architecture!r} has no task 'energy' in this gnn-zoo"
    elif len(names) != 1:
        problem = f"{len(names)} properties, where one is expected"
    elif names[0] not in spec.scaling:
        problem = f"no scaling of {names[0]}"
    elif strange := sorted(symbols - set(atomic_numbers)):
        problem = f"{strange[0]!r} is no element"
    if problem:
        raise WeightsError(f"{where} has a damaged spec: {problem}")


def build_module(spec: Spec, tensors: Mapping[str, Tensor], *, where: str) -> SchNet:
    """The network of a spec with these weights. WeightsError where they don't fit together."""
    try:
        arguments = SchNetArguments(**spec.arguments)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, ("arguments", *first["loc"])))
        raise WeightsError(f"{where} has a damaged spec: {key}: {first['msg']}") from error
    module = _untrained(arguments)
    expected = {name: value.shape for name, value in module.state_dict().items()}
    if expected != {name: value.shape for name, value in tensors.items()}:
        raise WeightsError(
            f"{where}: its tensors are not those of the {spec.architecture} it names"
        )
    module = SchNet(arguments=SchNetArguments(**spec.arguments))
    module.load_state_dict(dict(tensors))
    return module


def _store(molecules: Sequence[Molecule], *, dtype: Any) -> Store:
    sizes = [len(numbers) for numbers, _ in molecules]
    return make_store(
        node_ptr=np.concatenate([[0], np.cumsum(sizes)]),
        node={
            "z": np.concatenate([np.asarray(z, np.int32) for z, _ in molecules]),
            "pos": np.concatenate([np.asarray(r, dtype) for _, r in molecules]),
        },
        graph={},
    )


def _shape(spec: Spec, *, nodes: np.ndarray, edges: np.ndarray) -> FixedSize:
    """The trained batch shape, no larger than these molecules fill, large enough for each."""
    trained = spec.batch_shape
    return FixedSize(
        nodes=max(min(trained.nodes, int(nodes.sum()) + 1), int(nodes.max()) + 1),
        edges=max(min(trained.edges, int(edges.sum())), int(edges.max()), 1),
        graphs=max(min(trained.graphs, len(nodes) + 1), 2),
    )
