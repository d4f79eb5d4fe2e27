"""A trained energy or property model, ready to use: what `zoo.load` returns for molecules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from zoo.artifact import Spec, read_weights
from zoo.batching.pack import Batch, fill_batch
from zoo.batching.shape import FixedSize
from zoo.errors import RequestError, WeightsError
from zoo.files import sha256_file
from zoo.models.schnet import SchNet, SchNetArguments
from zoo.recipes.packed import Molecule, column, molecule_store, run_packs, unscale

if TYPE_CHECKING:
    import pandas as pd

    from zoo.chem.report import Report


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
    def modules(self) -> list[SchNet]:
        """The networks whose predictions are averaged: this one alone."""
        return [self.module]

    @property
    def column(self) -> str:
        """Name and unit of what is predicted, as in tables: `U0 [eV]`."""
        return column(self.spec)

    @property
    def columns(self) -> list[str]:
        """All that is predicted: the one column."""
        return [self.column]

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
        from zoo.recipes.predictions import table_of

        return table_of(
            self.predict_frames(
                source,
                smiles=smiles,
                on_error=on_error,
                conformer_seconds=conformer_seconds,
                seed=seed,
            )
        )

    def predict_frames(
        self,
        source: Any,
        *,
        smiles: str | None = None,
        on_error: str = "nan",
        conformer_seconds: float = 10.0,
        seed: int = 0,
        report: Report | None = None,
    ) -> Iterator[pd.DataFrame]:
        """`predict`, some rows at a time, so that an input of any length takes the same memory."""
        from zoo.recipes.predictions import predict_frames

        return predict_frames(
            model=self,
            source=source,
            smiles=smiles,
            on_error=on_error,
            conformer_seconds=conformer_seconds,
            seed=seed,
            report=report,
        )

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
        return unscale(self.spec, scaled, [numbers for numbers, _ in molecules])

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
        store = molecule_store([(numbers, positions)], dtype=self._dtype)
        batch = fill_batch(
            store=store, graphs=np.zeros(1, np.int64), shape=shape, cutoff=self._cutoff
        )
        batch["pos"].requires_grad_()
        scaled = self.module(batch)[0, 0]
        (slope,) = torch.autograd.grad(scaled, batch["pos"])
        std = self.spec.scaling[self._property.name].std
        energy = unscale(self.spec, np.array([float(scaled.detach())]), [numbers])[0]
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
            if not name.startswith(SchNet.HEAD)
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

    def _run(self, molecules: Sequence[Molecule], function: Any, *, width: int) -> np.ndarray:
        return run_packs(
            molecules=molecules,
            function=function,
            width=width,
            shape=self.spec.batch_shape,
            cutoff=self._cutoff,
            dtype=self._dtype,
        )


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
