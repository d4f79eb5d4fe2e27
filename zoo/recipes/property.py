"""Predicting labels of whole graphs: quantities, or one of two or more classes."""

from __future__ import annotations

from collections.abc import Callable
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
from zoo.errors import RequestError
from zoo.models.gin import GIN, GINArguments
from zoo.recipes.metrics import property_metrics
from zoo.recipes.oversize import count_oversize
from zoo.recipes.packed import INPUTS, packed_words
from zoo.recipes.property_data import PropertyData, columns, fit_scaling, readable
from zoo.recipes.settings import PropertyConfig
from zoo.training import replicas
from zoo.training.lanes import lane_map

_LOSSES: dict[str, Callable[..., Tensor]] = {"mae": F.l1_loss, "mse": F.mse_loss}
_HIGHER = ("roc_auc", "ap", "accuracy", "f1", "r2")


class PropertyTask:
    """GIN on the labels of graphs; see `zoo.recipes.tasks.RecipeTask`."""

    def __init__(
        self,
        *,
        entry: str,
        data: PropertyData,
        module: nn.Module,
        seed: int,
        device: str = "cpu",
        loss: str = "mse",
        loss_beta: float = 1.0,
        skip_oversize: bool = False,
    ) -> None:
        self.entry, self.data, self._seed, self._skip = entry, data, seed, skip_oversize
        self.device = torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise RequestError("train.device=cuda, and torch sees no GPU here")
        self.module: nn.Module = module.to(self.device)
        self.mean, self.std = fit_scaling(data)
        self.shape, self.split_sha256, self.digest = (
            data.shape,
            data.split_sha256,
            data.store.digest,
        )
        self.select = data.metric
        self.higher_is_better = data.metric in _HIGHER
        unit = data.properties[0].unit if len({p.unit for p in data.properties}) == 1 else ""
        self.units = {"mae": unit, "rmse": unit} if data.kind == "regression" else {}
        self.outputs = columns(data.properties)
        self.skipped = {
            split: count_oversize(
                store=data.store,
                ids=ids,
                split=split,
                shape=data.shape,
                cutoff=None,
                allowed=skip_oversize,
            )
            for split, ids in data.splits.items()
        }
        self.inputs = INPUTS
        self.train_loader = self.loader("train", shuffle=True)
        smooth = partial(F.smooth_l1_loss, beta=loss_beta)
        own: dict[str, Callable[..., Tensor]] = {
            "binary": F.binary_cross_entropy_with_logits,
            "multiclass": F.cross_entropy,
        }
        self._criterion = own.get(data.kind, _LOSSES.get(loss, smooth))

    @classmethod
    def of(cls, *, config: PropertyConfig, data: PropertyData) -> PropertyTask:
        """The task of a recipe, with an untrained network."""
        torch.manual_seed(config.train.seed)
        arguments = fitted_arguments(config.model.arguments, data)
        return cls(
            entry=config.entry,
            data=data,
            module=GIN(arguments=arguments),
            seed=config.train.seed,
            device=config.train.device,
            loss=config.loss,
            loss_beta=config.loss_beta,
            skip_oversize=config.batch.skip_oversize,
        )

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
            cutoff=None,
            targets=self._scaled,
            seed=self._seed,
            shuffle=shuffle,
            rank=replicas.rank(),
            replicas=replicas.count(),
            skip_oversize=self._skip,
            draws=shuffle,
        )

    @cached_property
    def _scaled(self) -> np.ndarray:
        scaled: np.ndarray = ((self.data.values - self.mean) / self.std).astype(np.float32)
        return scaled

    def loss(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sum over known labels of their losses, and their count."""
        predicted = self.predict(module, batch)
        known = batch["graphs_mask"].unsqueeze(1) & ~torch.isnan(batch["y"])
        zero = torch.zeros((), dtype=predicted.dtype, device=predicted.device)
        target = torch.where(known, batch["y"].to(predicted.dtype), zero)
        # Replaced, not multiplied away: an unknown label's NaN must not reach a gradient.
        kept = torch.where(known, predicted, zero)
        if self.data.kind == "multiclass":
            each = self._criterion(kept, target[:, 0].to(torch.int64), reduction="none")
            summed = torch.where(known[:, 0], each, zero).sum()
        else:
            each = self._criterion(kept, target, reduction="none")
            summed = torch.where(known, each, zero).sum()
        return summed, known.sum().to(predicted.dtype)

    def predict(self, module: nn.Module, batch: Batch) -> Tensor:
        """Scaled values or logits [G, outputs] in float32 or the module's precision."""
        output: Tensor = module(batch)
        return output if output.dtype == torch.float64 else output.float()

    def predictions(self, module: nn.Module, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Store indices of a split, and values in their units or probabilities: float64 [M, T]
        (of classes [M, C]).
        """
        rows, raw = self.raw_predictions(module, split)
        return rows, readable(raw, kind=self.data.kind, mean=self.mean, std=self.std)

    def raw_predictions(self, module: nn.Module, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Store indices of a split, and what the network gives: float64 [M, outputs]."""
        module.eval()

        def one(batch: Batch) -> tuple[Tensor, Tensor]:
            with torch.no_grad():  # a thread's own setting
                values = self.predict(module, {k: v.to(self.device) for k, v in batch.items()})
            real = batch["graphs_mask"]
            return batch["graph_id"][real].to(torch.int64), values.cpu()[real].double()

        ids, values = zip(*lane_map(one, self.loader(split)), strict=True)
        index, raw = replicas.gather(torch.cat(ids)), replicas.gather(torch.cat(values))
        order = torch.argsort(index)
        return index[order].numpy(), raw[order].numpy()

    def evaluate(self, module: nn.Module, split: str) -> dict[str, float]:
        return self.metrics(*self.predictions(module, split))

    def metrics(self, rows: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
        """The kind's metrics over some graphs; means over the properties, and each where there are
        several.
        """
        found, _ = property_metrics(
            truth=self.data.values[rows],
            predicted=predicted,
            kind=self.data.kind,
            names=self.data.names,
        )
        return found

    def take_over(self, *, spec: Spec, module: nn.Module) -> None:
        """Evaluate this module with the label scaling that its weights carry."""
        self.module = module.to(self.device)
        if self.data.kind == "regression":
            scaling = [spec.scaling[name] for name in self.data.names]
            self.mean = np.array([s.mean for s in scaling])
            self.std = np.array([s.std for s in scaling])

    def write_model(self, folder: Path, module: nn.Module) -> None:
        """Write the network with what was fitted on validation and what it was trained on."""
        from zoo.recipes.property_weights import write_run

        write_run(task=self, module=module, folder=folder)

    def plots(self, folder: Path, rows: np.ndarray, predicted: np.ndarray) -> list[Path]:
        from zoo.recipes.property_plots import save_property_plots

        return save_property_plots(
            folder=folder,
            truth=self.data.values[rows],
            predicted=predicted,
            properties=self.data.properties,
        )

    @cached_property
    def spec(self) -> Spec:
        """What the weight file says of itself."""
        data = self.data
        arguments: Any = self.module.arguments
        scaling = {
            p.name: Scaling(mean=float(m), std=float(s), per_atom=False)
            for p, m, s in zip(data.properties, self.mean, self.std, strict=True)
        }
        return Spec(
            entry=self.entry,
            task="property",
            architecture="gin",
            arguments=arguments.model_dump(mode="json"),
            batch_shape=BatchShape(**data.shape.__dict__),
            properties=[PropertySpec(name=p.name, unit=p.unit) for p in data.properties],
            scaling=scaling if data.kind == "regression" else {},
            ranges=self._ranges(),
            extra={
                "split_sha256": data.split_sha256,
                "kind": data.kind,
                "classes": {p.name: list(p.classes) for p in data.properties if p.classes},
            },
        )

    def _ranges(self) -> dict[str, list[float]]:
        """What the training split spans, for warnings about molecules unlike it."""
        sizes = self.data.store.nodes_per_graph()[self.data.splits["train"]]
        return {"nodes": [float(sizes.min()), float(sizes.max())]}


def fitted_arguments(arguments: GINArguments, data: PropertyData) -> GINArguments:
    """The arguments with as many outputs as the data have. RequestError where others are asked."""
    if arguments.outputs not in (1, data.outputs):
        raise RequestError(
            f"model.arguments.outputs={arguments.outputs}, and these data need {data.outputs}\n"
            "leave it out: it follows from the data"
        )
    return arguments.model_copy(update={"outputs": data.outputs})
