"""A trained model of labels of molecules, ready to use: what `zoo.load` returns for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from zoo.artifact import Spec, read_weights
from zoo.batching.pack import Batch
from zoo.batching.store import Store
from zoo.chem.fingerprints import Fingerprints
from zoo.errors import RequestError, WeightsError
from zoo.files import sha256_file
from zoo.models.gin import ATOM_CATEGORIES, BOND_CATEGORIES, GIN, GINArguments
from zoo.recipes.calibration import Calibration, Interval
from zoo.recipes.packed import run_store
from zoo.recipes.predicted import Predicted
from zoo.recipes.property_data import columns, readable
from zoo.recipes.property_spec import (
    calibrations_of,
    intervals_of,
    members_of,
    properties_of,
    reference_of,
)

if TYPE_CHECKING:
    import pandas as pd

    from zoo.recipes.exported_model import ExportedNetwork

    Network = GIN | ExportedNetwork

    from zoo.chem.report import Report


class PropertyModel:
    """Weights of one or several networks, preprocessing, units and calibration in one.

    `module` is the (first) plain network, `modules` are all whose predictions are averaged, `spec`
    what the weight file says of itself. `fixed` networks take batches of the trained shape alone.
    """

    def __init__(
        self,
        *,
        spec: Spec,
        modules: Sequence[Network],
        reference: Fingerprints | None = None,
        sha256: str = "",
        fixed: bool = False,
    ) -> None:
        self._fixed = fixed
        self.spec, self.sha256, self.reference = spec, sha256, reference
        self.modules = [module.eval() for module in modules]
        self.properties = properties_of(spec)
        self.kind = self.properties[0].kind
        self._calibrations: list[Calibration] | None = calibrations_of(spec)
        self._intervals: list[Interval] | None = intervals_of(spec)

    def __repr__(self) -> str:
        count = sum(p.numel() for p in self.module.parameters())
        several = f"{len(self.modules)} networks of " if len(self.modules) > 1 else ""
        return (
            f"<{self.spec.entry}: {', '.join(self.columns)} by {self.spec.architecture}, "
            f"{several}{count:,} parameters>"
        )

    @property
    def module(self) -> Network:
        return self.modules[0]

    @property
    def columns(self) -> list[str]:
        """Names and units of what is predicted, as in tables: `logS [log mol/L]`."""
        return columns(self.properties)

    @property
    def level(self) -> float | None:
        """Of the intervals around quantities, 0.9 say; None where the weights hold none."""
        known = [one.level for one in self._intervals or [] if one.quantile is not None]
        return known[0] if known else None

    @property
    def doubts(self) -> list[str]:
        """Why there is no interval or calibration for a property, where there is none."""
        notes = [one.note for one in self._intervals or []]
        notes = notes or [one.note for one in self._calibrations or []]
        return [f"{p.name}: {n}" for p, n in zip(self.properties, notes, strict=False) if n]

    def predict(
        self,
        source: Any,
        *,
        smiles: str | None = None,
        on_error: str = "nan",
        largest_fragment: bool | None = None,
        workers: int | None = None,
    ) -> pd.DataFrame:
        """Predict for SMILES, RDKit Mols, a table or a file (see `zoo.chem.read_molecules`).

        One row per input in input order: its own columns; each property with its unit, or its
        probability; for quantities the ensemble's standard deviation and the ends of the 90 %
        interval; the similarity to the nearest training molecule; `valid`, `reason`, and a
        `warning` where an input is unlike the training data. Rows that can't be used hold NaN
        ("nan"), are left out ("skip") or end the call ("raise", DataError).
        """
        from zoo.recipes.predictions import table_of

        return table_of(
            self.predict_frames(
                source,
                smiles=smiles,
                on_error=on_error,
                largest_fragment=largest_fragment,
                workers=workers,
            )
        )

    def predict_frames(
        self,
        source: Any,
        *,
        smiles: str | None = None,
        on_error: str = "nan",
        report: Report | None = None,
        largest_fragment: bool | None = None,
        workers: int | None = None,
    ) -> Iterator[pd.DataFrame]:
        """`predict`, some rows at a time, so that an input of any length takes the same memory."""
        from zoo.recipes.property_predictions import predict_frames

        return predict_frames(
            model=self,
            source=source,
            smiles=smiles,
            on_error=on_error,
            report=report,
            largest_fragment=largest_fragment,
            workers=workers,
        )

    def values(self, store: Store) -> Predicted:
        """Predictions for the graphs of a store (node `atom`, edge `bond`, `src`, `dst`).

        RequestError when the head was replaced by one for other properties.
        """
        self._check_head()
        raw = np.stack([self._run(store, module, module) for module in self.modules])
        return self.finished(raw)

    def finished(self, raw: np.ndarray) -> Predicted:
        """What members' outputs [members, M, outputs] mean: units, probabilities, intervals."""
        from zoo.recipes.calibration import calibrated

        scaling = [self.spec.scaling.get(p.name) for p in self.properties]
        mean = np.array([s.mean if s else 0.0 for s in scaling])
        std = np.array([s.std if s else 1.0 for s in scaling])
        made = np.stack([readable(one, kind=self.kind, mean=mean, std=std) for one in raw])
        spread = made.std(axis=0, ddof=1) if len(made) > 1 else None
        values = made.mean(axis=0)
        if self.kind != "regression" and self._calibrations:
            logits = raw.mean(axis=0)
            if self.kind == "multiclass":
                values = calibrated(logits=logits, calibration=self._calibrations[0])
            else:
                values = np.stack(
                    [
                        calibrated(logits=logits[:, at], calibration=one)
                        for at, one in enumerate(self._calibrations)
                    ],
                    axis=1,
                )
        low = high = None
        half = self.half_widths(spread, rows=len(values))
        if half is not None:
            low, high = values - half, values + half
        return Predicted(values=values, std=spread, low=low, high=high)

    def half_widths(self, std: np.ndarray | None, *, rows: int) -> np.ndarray | None:
        """Half the width of each quantity's interval: float64 [rows, T], in its unit; std [rows, T]
        is the ensemble's. None where the weights hold no intervals.
        """
        from zoo.recipes.calibration import half_widths

        if not self._intervals:
            return None
        each = [
            half_widths(interval=one, rows=rows, std=None if std is None else std[:, at])
            for at, one in enumerate(self._intervals)
        ]
        return np.stack(each, axis=1)

    def embed(self, source: Any, *, smiles: str | None = None) -> np.ndarray:
        """Each molecule's features before the output layer: float64 [molecules, F], the mean or sum
        of its atoms' as the network reads them out. DataError for a row that can't be used.
        """
        from zoo.recipes.property_predictions import valid_store

        store = valid_store(self, source, smiles=smiles)
        width = self.module.arguments.features
        return self._run(store, self.module, self.module.graph_features, width=width)

    def reset_head(self, *, outputs: int = 1, seed: int = 0) -> PropertyModel:
        """A copy of the first network with the body kept and a new output layer, for `outputs`
        other properties. Its `module` predicts scaled values; the caller trains it and knows their
        meaning.
        """
        module = self.with_new_head(outputs=outputs, seed=seed)
        arguments = module.arguments.model_dump(mode="json")
        spec = self.spec.model_copy(update={"arguments": arguments})
        return PropertyModel(spec=spec, modules=[module])

    def with_new_head(self, *, outputs: int, seed: int) -> GIN:
        """The first network's body under a new output layer. RequestError for an exported file."""
        if self._fixed:
            raise RequestError(f"{self.spec.entry} is an exported file: start from its weights")
        arguments = self.module.arguments.model_copy(update={"outputs": outputs})
        module = untrained(arguments, seed=seed)
        kept = {k: v for k, v in self.module.state_dict().items() if not k.startswith(GIN.HEAD)}
        module.load_state_dict(kept, strict=False)
        return module

    def check_readable(self) -> None:
        """RequestError for a model whose graphs aren't those that RDKit's molecules give."""
        arguments = self.module.arguments
        own = (arguments.atom_categories, arguments.bond_categories)
        if own != (ATOM_CATEGORIES, BOND_CATEGORIES):
            raise RequestError(
                f"{self.spec.entry} was trained on graphs whose atoms are numbers without a name: "
                "it can't read molecules\nuse its `values` on graphs of its own kind"
            )

    def _check_head(self) -> None:
        outputs = self.module.arguments.outputs
        if outputs != len(self.columns):
            raise RequestError(
                f"the head of this model is a new one with {outputs} outputs, not "
                f"{', '.join(self.columns)}\nits `module` predicts scaled values; their meaning is "
                "yours"
            )

    def _run(
        self,
        store: Store,
        module: Network,
        function: Callable[[Batch], Tensor],
        *,
        width: int | None = None,
    ) -> np.ndarray:
        return run_store(
            store=store,
            function=function,
            width=width or module.arguments.outputs,
            shape=self.spec.batch_shape,
            cutoff=None,
            fixed=self._fixed,
        )


def load_property_model(path: Path) -> PropertyModel:
    """Build the model that a weight file describes. WeightsError where tensors don't fit it, or
    where what it says of itself makes no sense.
    """
    spec, tensors = read_weights(path)
    try:
        arguments = GINArguments(**spec.arguments)
        if arguments.outputs != len(columns(properties_of(spec))):
            raise ValueError(f"{arguments.outputs} outputs for {len(spec.properties)} properties")
        members, rest = members_of(spec, tensors)
        reference = reference_of(rest)
        return PropertyModel(
            spec=spec,
            modules=[_module(arguments, one, where=str(path)) for one in members],
            reference=reference,
            sha256=sha256_file(path),
        )
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise WeightsError(f"{path} has a damaged spec: {key}: {first['msg']}") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise WeightsError(f"{path} has a damaged spec: {error}") from error


def untrained(arguments: GINArguments, *, seed: int = 0) -> GIN:
    """A network with random values, and the caller's random numbers as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GIN(arguments=arguments)


def _module(arguments: GINArguments, tensors: Mapping[str, Tensor], *, where: str) -> GIN:
    module = untrained(arguments)
    expected = {name: value.shape for name, value in module.state_dict().items()}
    if expected != {name: value.shape for name, value in tensors.items()}:
        raise WeightsError(f"{where}: its tensors are not those of the gin it names")
    module.load_state_dict(dict(tensors))
    return module
