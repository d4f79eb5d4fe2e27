"""An exported energy or property model with its preprocessing and units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError
from torch import Tensor, nn

from zoo.artifact import Spec
from zoo.backends import exported
from zoo.batching.pack import Batch
from zoo.errors import RequestError, WeightsError
from zoo.models.gin import GINArguments
from zoo.recipes.packed import Molecule, column, run_packs, unscale

if TYPE_CHECKING:
    import pandas as pd

    from zoo.chem.report import Report
    from zoo.recipes.property_model import PropertyModel


class ExportedModel:
    """What `zoo.load` returns for a file that `zoo export` wrote.

    It predicts as the model it was exported from, at one batch shape: a molecule that doesn't fit a
    batch is a RequestError. It has no gradients, so no forces.
    """

    def __init__(self, *, spec: Spec, step: exported.Exported) -> None:
        self.spec, self.step = spec, step
        self._cutoff = float(spec.arguments["cutoff"])

    def __repr__(self) -> str:
        return f"<{self.spec.entry}: {self.column} by {self.step.path.name}>"

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
        """As `EnergyModel.predict`."""
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

    def values(self, molecules: Sequence[Molecule]) -> np.ndarray:
        """The property of molecules (atomic numbers [n], positions [n, 3] in Å): float64 [M]."""
        scaled = run_packs(
            molecules=molecules,
            function=lambda batch: self.step(batch)[0],
            width=1,
            shape=self.spec.batch_shape,
            cutoff=self._cutoff,
            fixed=True,
        )
        return unscale(self.spec, scaled[:, 0], [numbers for numbers, _ in molecules])


class ExportedNetwork(nn.Module):
    """An exported file in the place of a network, for predictions alone."""

    def __init__(self, *, step: exported.Exported, arguments: GINArguments):
        super().__init__()
        self.step, self.arguments = step, arguments

    def forward(self, batch: Batch) -> Tensor:
        result: Tensor = self.step(batch)[0]
        return result

    def graph_features(self, batch: Batch) -> Tensor:
        """Not in the file (RequestError)."""
        raise RequestError(f"{self.step.path} holds predictions alone: it can't embed")


def load_exported(path: Path) -> ExportedModel | PropertyModel:
    """The model in an exported file. Errors as `zoo.backends.exported.load`."""
    step = exported.load(path)
    try:
        spec = Spec.model_validate(step.facts["spec"])
        if spec.task == "property":
            from zoo.recipes.property_model import PropertyModel

            network = ExportedNetwork(step=step, arguments=GINArguments(**spec.arguments))
            return PropertyModel(spec=spec, modules=[network], fixed=True)
        return ExportedModel(spec=spec, step=step)
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise WeightsError(f"{path}.json has a damaged spec; export the model anew") from error
