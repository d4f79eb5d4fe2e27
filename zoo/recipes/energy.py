"""Predicting a molecule's energy or another of its properties from its atoms and geometry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.artifact import BatchShape, PropertySpec, Scaling, Spec
from zoo.batching.loader import PackLoader
from zoo.batching.pack import Batch
from zoo.batching.shape import FixedSize
from zoo.batching.store import Store
from zoo.chem.checks import spans
from zoo.datasets import qm9
from zoo.errors import DataError, RequestError, unknown
from zoo.models.schnet import SchNet
from zoo.recipes.oversize import count_oversize
from zoo.recipes.packed import INPUTS, packed_words
from zoo.recipes.scaling import Labels, fit_labels
from zoo.recipes.settings import EnergyConfig
from zoo.training import replicas
from zoo.training.lanes import lane_map

_LOSSES: dict[str, Callable[..., Tensor]] = {"mae": F.l1_loss, "mse": F.mse_loss}


@dataclass(frozen=True, kw_only=True)
class EnergyData:
    """A data set opened for one property: store, splits and their hash, scaled labels, shape."""

    store: Store
    splits: dict[str, np.ndarray]
    split_sha256: str
    labels: Labels
    shape: FixedSize
    unit: str
    reference: str


def open_data(config: EnergyConfig) -> EnergyData:
    """Read (or make up) the data, split it, fit the label scaling on the training split alone."""
    data = config.data
    names = [p.name for p in qm9.FACTS.properties]
    if data.property not in names:
        raise unknown(kind="property of qm9", name=data.property, known=names)
    folder = data.folder
    if data.synthetic:
        folder = qm9.synthetic_folder(seed=data.split_seed, size=data.synthetic)
    store = qm9.load(folder=folder)
    splits, digest = qm9.split(store=store, seed=data.split_seed)
    if data.limit:
        splits["train"] = splits["train"][: data.limit]
    cutoff = config.model.arguments.cutoff
    nodes, edges = store.nodes_per_graph(), store.edges_per_graph(cutoff=cutoff)
    labels = fit_labels(
        values=store.graph["y"][:, names.index(data.property)],
        node_ptr=store.node_ptr,
        z=store.node["z"],
        train=splits["train"],
        readout=config.model.arguments.readout,
    )
    for split, ids in splits.items():
        if np.isnan(labels.values[ids]).all():
            raise DataError(f"no {split} molecule has a known label ({data.property})")
    batch = config.batch
    wanted = min(batch.graphs, max(len(ids) for ids in splits.values()))
    fitted = FixedSize.fit(nodes=nodes, edges=edges, graphs=wanted)
    facts = qm9.FACTS.property(data.property)
    return EnergyData(
        store=store,
        splits=splits,
        split_sha256=digest,
        labels=labels,
        shape=FixedSize(
            nodes=batch.nodes or fitted.nodes,
            edges=batch.edges or fitted.edges,
            graphs=batch.slots or fitted.graphs,
        ),
        unit=facts.unit,
        reference=facts.reference,
    )


class EnergyTask:
    """SchNet on one property; see `zoo.training.task.Task`."""

    select, higher_is_better = "mae", False

    def __init__(self, *, config: EnergyConfig, data: EnergyData) -> None:
        self.config, self.data = config, data
        if config.model.arguments.outputs != 1:
            raise RequestError("model.arguments.outputs is 1 in this recipe: one property a model")
        torch.manual_seed(config.train.seed)
        self.device = torch.device(config.train.device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise RequestError("train.device=cuda, and torch sees no GPU here")
        self.module: nn.Module = SchNet(arguments=config.model.arguments).to(self.device)
        self.skipped = {
            split: count_oversize(
                store=data.store,
                ids=ids,
                split=split,
                shape=data.shape,
                cutoff=config.model.arguments.cutoff,
                allowed=config.batch.skip_oversize,
            )
            for split, ids in data.splits.items()
        }
        self.shape, self.split_sha256, self.digest = (
            data.shape,
            data.split_sha256,
            data.store.digest,
        )
        self.units = {"mae": data.unit, "rmse": data.unit, "r2": ""}
        self.outputs = [f"{config.data.property} [{data.unit}]"]
        self.inputs = INPUTS
        self.train_loader = self.loader("train", shuffle=True)
        smooth = partial(F.smooth_l1_loss, beta=config.loss_beta)
        self._criterion = _LOSSES.get(config.loss, smooth)

    def sizes(self) -> dict[str, int]:
        return {split: len(ids) for split, ids in self.data.splits.items()}

    def words(self) -> str:
        return packed_words(sizes=self.sizes(), skipped=self.skipped, shape=self.shape)

    def efficiency(self, split: str) -> dict[str, float]:
        return self.loader(split).efficiency()

    def loader(self, split: str, *, shuffle: bool = False) -> PackLoader:
        """The packs of a split, with scaled labels."""
        return PackLoader(
            store=self.data.store,
            ids=self.data.splits[split],
            shape=self.data.shape,
            cutoff=self.config.model.arguments.cutoff,
            targets=self.data.labels.scaled,
            seed=self.config.train.seed,
            shuffle=shuffle,
            rank=replicas.rank(),
            replicas=replicas.count(),
            skip_oversize=self.config.batch.skip_oversize,
        )

    def loss(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sum over known labels of the scaled error's loss, and their count."""
        predicted = self.predict(module, batch)
        known = batch["graphs_mask"].unsqueeze(1) & ~torch.isnan(batch["y"])
        zero = torch.zeros_like(predicted)
        target = torch.where(known, batch["y"], zero)
        # Replaced, not multiplied away: an unknown label's NaN must not reach a gradient.
        summed = self._criterion(torch.where(known, predicted, zero), target, reduction="sum")
        return summed, known.sum().to(predicted.dtype)

    def predict(self, module: nn.Module, batch: Batch) -> Tensor:
        """Scaled predictions [G, 1] in float32 or the module's precision; padding rows are zero."""
        output: Tensor = module(batch)
        return output if output.dtype == torch.float64 else output.float()

    def predictions(self, module: nn.Module, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Store indices of a split and the predictions in the property's unit (float64)."""
        module.eval()

        def one(batch: Batch) -> tuple[Tensor, Tensor]:
            with torch.no_grad():  # a thread's own setting
                values = self.predict(module, {k: v.to(self.device) for k, v in batch.items()})
            real = batch["graphs_mask"]
            return batch["graph_id"][real].to(torch.int64), values.cpu()[real, 0].double()

        ids, values = zip(*lane_map(one, self.loader(split)), strict=True)
        index, scaled = replicas.gather(torch.cat(ids)), replicas.gather(torch.cat(values))
        order = torch.argsort(index)
        rows = index[order].numpy()
        return rows, self.data.labels.unscale(scaled[order].numpy(), rows)

    def take_over(self, *, spec: Spec, module: nn.Module) -> None:
        """Evaluate this module with the label scaling that its weights carry."""
        data, name = self.data, self.config.data.property
        labels = data.labels.with_scaling(
            z=data.store.node["z"],
            node_ptr=data.store.node_ptr,
            atom_refs=spec.atom_refs.get(name, {}),
            mean=spec.scaling[name].mean,
            std=spec.scaling[name].std,
        )
        self.data, self.module = replace(data, labels=labels), module.to(self.device)

    def evaluate(self, module: nn.Module, split: str) -> dict[str, float]:
        return self.metrics(*self.predictions(module, split))

    def metrics(self, rows: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
        """MAE, RMSE and R² of predictions for some graphs, in the property's unit."""
        return metrics(truth=self.data.labels.values[rows], predicted=predicted)

    def write_model(self, folder: Path, module: nn.Module) -> None:
        """Nothing: the best checkpoint holds all there is to know."""

    def plots(self, folder: Path, rows: np.ndarray, predicted: np.ndarray) -> list[Path]:
        """Parity, and the error by the number of atoms."""
        from zoo.training import plots

        data, name = self.data, self.config.data.property
        truth = data.labels.values[rows]
        # Totals lie on a line whatever the model does; what it learnt is the part above the atoms'.
        offset = data.labels.offset[rows]
        return [
            plots.save_parity(
                path=folder / "parity.png",
                truth=truth - offset,
                predicted=predicted - offset,
                name=f"{name} less the atoms' shares" if data.labels.atom_refs else name,
                unit=data.unit,
            ),
            plots.save_error_by_size(
                path=folder / "error-by-size.png",
                sizes=data.store.nodes_per_graph()[rows],
                errors=predicted - truth,
                unit=data.unit,
            ),
        ]

    @cached_property
    def spec(self) -> Spec:
        """What the weight file says of itself."""
        data, config = self.data, self.config
        name = config.data.property
        return Spec(
            entry=config.entry,
            task=config.task,
            architecture=config.model.architecture,
            arguments=config.model.arguments.model_dump(),
            batch_shape=BatchShape(**data.shape.__dict__),
            properties=[
                PropertySpec(name=name, unit=data.unit, reference=data.reference or "none")
            ],
            atom_refs={name: data.labels.atom_refs} if data.labels.atom_refs else {},
            scaling={name: Scaling(mean=data.labels.mean, std=data.labels.std, per_atom=False)},
            elements=data.labels.elements,
            ranges=self._ranges(),
            extra={"split_sha256": data.split_sha256, "geometry": qm9.GEOMETRY},
        )

    def _ranges(self) -> dict[str, list[float]]:
        """What the training split spans, for warnings about molecules unlike it."""
        store, train = self.data.store, self.data.splits["train"]
        # The extremes of a large sample are extreme enough, and ten million graphs take minutes.
        sample = train[:: max(1, len(train) // 20_000)]
        ptr, z, pos = store.node_ptr, store.node["z"], store.node["pos"]
        ranges = spans((z[ptr[g] : ptr[g + 1]], pos[ptr[g] : ptr[g + 1]]) for g in sample)
        sizes = store.nodes_per_graph()[train]
        per_atom = self.data.labels.values[train] / sizes
        ranges["atoms"] = [float(sizes.min()), float(sizes.max())]
        name = self.config.data.property
        ranges[f"per_atom/{name}"] = [float(np.nanmin(per_atom)), float(np.nanmax(per_atom))]
        return ranges


def metrics(*, truth: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """MAE, RMSE and R² over the known labels, as sums over all of them in float64. R² only where
    these labels differ: of one value it means nothing.
    """
    from torchmetrics import MeanAbsoluteError, MeanSquaredError, MetricCollection, R2Score

    known = ~np.isnan(truth)
    collection = MetricCollection(
        {
            "mae": MeanAbsoluteError(),
            "rmse": MeanSquaredError(squared=False),
            **({"r2": R2Score()} if known.any() and np.ptp(truth[known]) > 0 else {}),
        },
        compute_groups=False,
    ).set_dtype(torch.float64)
    # The truth was gathered over replicas already: nothing to synchronise.
    for metric in collection.values():
        metric.sync_on_compute = False
    collection.update(torch.from_numpy(predicted[known]), torch.from_numpy(truth[known]))
    result: dict[str, Any] = collection.compute()
    return {name: float(value) for name, value in result.items()}
