"""Our side of a comparison: the recipe's own loader, module, loss and training step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from zoo import registry
from zoo.backends import compiled
from zoo.backends.graph import Step
from zoo.batching.loader import groups
from zoo.batching.pack import Batch
from zoo.batching.shape import FixedSize
from zoo.bench.machine import describe
from zoo.bench.worker import Handlers
from zoo.errors import RequestError, UnavailableError
from zoo.recipes.config import Config, energy_config, load_config, with_overrides
from zoo.recipes.energy import EnergyData, EnergyTask, open_data
from zoo.recipes.settings import EnergyConfig, PropertyConfig
from zoo.training.lanes import lane_map
from zoo.training.optimiser import make_average, make_optimiser, make_plateau, make_schedule
from zoo.training.settings import TrainSettings
from zoo.training.state import Progress, TrainingState
from zoo.training.step import take_step
from zoo.training.task import Loss, Task

if TYPE_CHECKING:
    from zoo.recipes.property import PropertyTask
    from zoo.recipes.property_data import PropertyData

MADE_UP = 2000
"""Molecules to make up where QM9 is not on the machine."""


@dataclass(kw_only=True)
class Side:
    """One side of a training comparison; all go through the same `zoo.training.step`.

    `groups` never ends and yields the packs of one step and the real graphs in them.
    """

    state: TrainingState
    settings: TrainSettings
    loss: Loss
    groups: Iterator[tuple[list[Batch], int]]
    forward: Step | None = None
    """Predictions alone are measured where it is given."""
    making_ms: list[float] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)
    graphs: list[int] = field(default_factory=list)

    def step(self, packs: list[Batch]) -> None:
        """Forward, loss, backward, clipping, AdamW, schedule and moving average; or `forward`."""
        if self.forward is not None:
            module, forward = self.state.task.module.eval(), self.forward
            for _ in lane_map(partial(_predicted, module, forward, self.settings), packs):
                pass
            return
        take_step(self.state, self.state.task.module, self.loss, packs, self.settings)

    def run(self, *, seconds: float, steps: int = 1) -> float:
        """Train for so many seconds, and steps, at least; returns graphs/s with batch making."""
        spent, graphs, done = 0.0, 0, 0
        while spent < seconds or done < steps:
            began = time.perf_counter()
            packs, count = next(self.groups)
            made = time.perf_counter()
            self.step(packs)
            end = time.perf_counter()
            spent += end - began
            graphs += count
            done += 1
            self.making_ms.append((made - began) * 1e3)
            self.step_ms.append((end - made) * 1e3)
            self.graphs.append(count)
        return graphs / spent

    def warm_up(self, *, steps: int = 3) -> None:
        """Compile kernels and fill caches, then forget what was measured."""
        self.run(seconds=0, steps=steps)
        for measured in (self.making_ms, self.step_ms, self.graphs):
            measured.clear()

    def figures(self) -> dict[str, float]:
        """Medians over all steps since the warm-up."""
        return {
            "step_ms": statistics.median(self.step_ms),
            "batch_making_ms": statistics.median(self.making_ms),
            "graphs_per_step": statistics.fmean(self.graphs),
        }


def _predicted(module: nn.Module, forward: Step, settings: TrainSettings, batch: Batch) -> None:
    half = settings.precision == "bf16"
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=half):
        forward(module, batch)


def open_any(
    *, name: str, preset: str, overrides: Sequence[str], precision: str
) -> tuple[Config, EnergyData | PropertyData, list[str]]:
    """A recipe of molecules in this precision and its data or, where they are not here, made-up
    ones; and notes.
    """
    config = load_config(name, preset=preset, overrides=overrides)
    config = with_overrides(config, [f"train.precision={precision}"], where="bench")
    try:
        return config, _opened(config), []
    except UnavailableError as error:
        note = f"made-up molecules: {str(error).splitlines()[0]}"
    config = with_overrides(config, [f"data.synthetic={MADE_UP}"], where="bench")
    return config, _opened(config), [note]


def _opened(config: Config) -> EnergyData | PropertyData:
    if isinstance(config, EnergyConfig):
        return open_data(config)
    from zoo.recipes.property_data import open_data as open_labels

    if not isinstance(config, PropertyConfig):
        raise RequestError(f"this bench is for recipes of molecules, and {config.entry} is none")
    return open_labels(config)


def task_of(config: Config, data: EnergyData | PropertyData) -> EnergyTask | PropertyTask:
    """The task of a recipe on these data."""
    if isinstance(config, EnergyConfig) and isinstance(data, EnergyData):
        return EnergyTask(config=config, data=data)
    from zoo.recipes.property import PropertyTask
    from zoo.recipes.property_data import PropertyData

    assert isinstance(config, PropertyConfig) and isinstance(data, PropertyData)
    return PropertyTask.of(config=config, data=data)


def open_recipe(
    *, name: str, preset: str, overrides: Sequence[str]
) -> tuple[EnergyConfig, EnergyData, list[str]]:
    """A recipe in float32 and its data or, where QM9 is not here, made-up molecules; and notes."""
    config = load_config(name, preset=preset, overrides=overrides)
    config = with_overrides(config, ["train.precision=float32"], where="bench")
    chosen = energy_config(config, what="this benchmark")
    try:
        return chosen, open_data(chosen), []
    except UnavailableError as error:
        note = f"made-up molecules, not QM9: {str(error).splitlines()[0]}"
    chosen = with_overrides(chosen, [f"data.synthetic={MADE_UP}"], where="bench")
    return chosen, open_data(chosen), [note]


def training_state(*, module: nn.Module, task: Any, settings: TrainSettings) -> TrainingState:
    """Optimiser, schedule and average for a module, as the loop makes them."""
    optimiser = make_optimiser(module=module, settings=settings)
    held: Task = task
    return TrainingState(
        task=held,
        optimiser=optimiser,
        schedule=make_schedule(optimiser=optimiser, settings=settings, steps=1_000_000),
        plateau=make_plateau(optimiser=optimiser, settings=settings),
        average=make_average(module=module, settings=settings),
        progress=Progress(),
    )


def zoo_side(*, config: Config, data: EnergyData | PropertyData, inference: bool = False) -> Side:
    """A network as `zoo run` trains it: the config's packs, lanes, precision and backend; or, with
    `inference`, as it predicts.
    """
    task = task_of(config, data)

    def endless() -> Iterator[tuple[list[Batch], int]]:
        while True:
            for packs in groups(task.train_loader, size=config.train.accumulate):
                yield packs, sum(int(pack["graphs_mask"].sum()) for pack in packs)

    return Side(
        state=training_state(module=task.module, task=task, settings=config.train),
        settings=config.train,
        loss=compiled(task.loss, backend=config.train.backend),
        groups=endless(),
        forward=task.predict if inference else None,
    )


def _title(config: Config) -> str:
    title: str = registry.adapter(config.data.adapter)[1].title
    return title


def worker(
    *, name: str, preset: str, overrides: Sequence[str], precision: str, inference: bool
) -> Handlers:
    """What a process of our side answers to."""
    config, data, notes = open_any(
        name=name, preset=preset, overrides=overrides, precision=precision
    )
    cutoff = config.model.arguments.cutoff if isinstance(config, EnergyConfig) else None
    nodes, edges = data.store.nodes_per_graph(), data.store.edges_per_graph(cutoff=cutoff)
    sides: dict[tuple[str, int], Side] = {}
    shapes = {config.batch.graphs: data.shape}

    def warm(*, precision: str, graphs: int) -> None:
        if graphs not in shapes:
            shapes[graphs] = FixedSize.fit(nodes=nodes, edges=edges, graphs=graphs)
        side = zoo_side(
            config=with_overrides(config, [f"train.precision={precision}"], where=name),
            data=replace(data, shape=shapes[graphs]),
            inference=inference,
        )
        side.warm_up()
        sides[precision, graphs] = side

    def run(*, precision: str, graphs: int, seconds: float) -> float:
        return sides[precision, graphs].run(seconds=seconds)

    def figures(*, precision: str, graphs: int) -> dict[str, Any]:
        return {
            "precision": precision,
            "batch_shape": dict(shapes[graphs].__dict__),
            **sides[precision, graphs].figures(),
        }

    def break_down(*, graphs: int, seconds: float) -> dict[str, Any]:
        from zoo.bench.breakdown import break_down

        return break_down(sides[precision, graphs], seconds=seconds)

    def facts() -> dict[str, Any]:
        return {
            "entry": config.entry,
            "data": "made up" if config.data.synthetic else _title(config),
            "notes": notes,
            "model": config.model.arguments.model_dump(),
            "machine": describe(),
            "graphs_per_pack": config.batch.graphs,
            "side": {
                "backend": config.train.backend,
                "packs_per_step": config.train.accumulate,
                "lanes": min(config.train.accumulate, torch.get_num_threads()),
                "training_graphs": len(data.splits["train"]),
            },
        }

    return {"warm": warm, "run": run, "figures": figures, "break_down": break_down, "facts": facts}
