"""Finding the missing facts of a graph: NBFNet, ranked against all entities."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import registry
from zoo.artifact import BatchShape, PropertySpec, Spec
from zoo.batching.pack import Batch
from zoo.batching.queries import QueryLoader
from zoo.datasets import kg
from zoo.datasets.kg import Graph, Knowledge
from zoo.errors import RequestError
from zoo.models.nbfnet import NBFNet, NBFNetArguments
from zoo.recipes.ranking import filtered_ranks, rank_metrics
from zoo.recipes.settings import LinkConfig
from zoo.training import replicas
from zoo.training.lanes import lane_map

LARGEST = 2**31
"""Bytes that the vectors of all relations may take."""


def open_knowledge(config: LinkConfig) -> Knowledge:
    """Read (or make up) the graph and its missing facts."""
    asked = config.data
    registry.adapter(asked.adapter)
    name = asked.adapter.partition(".")[2]
    folder = asked.folder
    if asked.synthetic:
        folder = kg.synthetic_folder(name=name, seed=0, size=asked.synthetic)
    return kg.load(name=name, folder=folder)


class LinkTask:
    """NBFNet on the facts of a graph; see `zoo.recipes.tasks.RecipeTask`.

    What is predicted of a fact is the rank of its tail, or of its head (`zoo.recipes.ranking`).
    """

    select = "mrr"
    higher_is_better = True

    def __init__(self, *, config: LinkConfig, data: Knowledge) -> None:
        self.config, self.data = config, data
        self.device = torch.device(config.train.device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise RequestError("train.device=cuda, and torch sees no GPU here")
        torch.manual_seed(config.train.seed)
        self.relations = len(data.relations)
        arguments = fitted_arguments(config, relations=self.relations)
        self.module: nn.Module = NBFNet(arguments=arguments).to(self.device)
        self._edges = {
            id(graph): kg.edges(graph, relations=self.relations)
            for graph in (data.graph, data.test_graph)
        }
        facts = data.graph.facts
        self.train_loader = QueryLoader(
            edges=self._edges[id(data.graph)],
            relations=self.relations,
            facts=facts[: config.data.limit] if config.data.limit else facts,
            known=facts,
            queries=config.batch.graphs,
            negatives=config.batch.negatives,
            hide=config.batch.hide,
            seed=config.train.seed,
            rank=replicas.rank(),
            replicas=replicas.count(),
        )
        self.shape = self.train_loader.shape
        self.digest = data.digest
        self.split_sha256 = hashlib.sha256(f"link {data.digest}".encode()).hexdigest()
        self.skipped: dict[str, int] = {}
        self.units: dict[str, str] = {}
        self.outputs = ["rank", "score"]
        self.inputs = {"head": "string", "relation": "string", "tail": "string"}

    def sizes(self) -> dict[str, int]:
        """Facts of each split."""
        asked = self.data.asked
        return {"train": len(self.data.graph.facts), **{k: len(v) for k, v in asked.items()}}

    def words(self) -> str:
        each = ", ".join(f"{count:,} {split}" for split, count in self.sizes().items())
        return (
            f"facts {each}; {self.shape.graphs} queries at a time on {self.shape.nodes:,} entities "
            f"and {self.shape.edges:,} edges"
        )

    def efficiency(self, split: str) -> dict[str, float]:
        return self.train_loader.efficiency()

    def loss(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sum over queries of the cross entropy of their true tail and of the others, and their
        count. Untrue tails count by how likely the model holds them (self-adversarial weighting).
        """
        scores = module(batch)
        true, untrue = scores[:, 0], scores[:, 1:]
        if self.config.temperature > 0:
            weight = torch.softmax(untrue.detach() / self.config.temperature, dim=1)
        else:
            weight = torch.full_like(untrue, 1 / untrue.shape[1])
        each = -F.logsigmoid(true) - (weight * F.logsigmoid(-untrue)).sum(1)
        real = batch["graphs_mask"]
        summed = torch.where(real, each, torch.zeros_like(each)).sum() / 2
        return summed, real.sum().to(scores.dtype)

    def predictions(self, module: nn.Module, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of a split's facts, then of the same asked the other way round, and the ranks of
        their answers: int64 [2 M, 4].
        """
        facts, graph = self._asked(split)
        queries = kg.both_ways(facts, relations=self.relations)
        mine = slice(replicas.rank(), None, replicas.count())
        ranks = filtered_ranks(
            facts=queries[mine],
            known=kg.both_ways(graph.known, relations=self.relations),
            entities=len(graph.entities),
            scores=lambda asked: self.all_scores(module, graph, asked),
            queries=self.config.batch.graphs,
        )
        numbers = replicas.gather(torch.arange(len(queries))[mine])
        found = replicas.gather(torch.from_numpy(ranks))
        order = torch.argsort(numbers)
        return numbers[order].numpy(), found[order].numpy()

    def _asked(self, split: str) -> tuple[np.ndarray, Graph]:
        if split == "train":
            return self.data.graph.facts, self.data.graph
        on = self.data.test_graph if split == "test" else self.data.graph
        return self.data.asked[split], on

    def all_scores(
        self, module: nn.Module, graph: Graph, asked: list[np.ndarray]
    ) -> Iterator[np.ndarray]:
        """Scores of all entities for queries int64 [B, 2], a list of them at a time."""
        module.eval()
        constant = graph_tensors(self._edges[id(graph)], device=self.device)

        def one(pairs: np.ndarray) -> np.ndarray:
            given = torch.from_numpy(pairs).to(self.device)
            with torch.no_grad():  # a thread's own setting
                scores = module.all_scores(  # type: ignore[operator]
                    {**constant, "head": given[:, 0], "relation": given[:, 1]}
                )
            found: np.ndarray = scores.float().cpu().numpy()
            return found

        return lane_map(one, asked)

    def evaluate(self, module: nn.Module, split: str) -> dict[str, float]:
        return self.metrics(*self.predictions(module, split))

    def metrics(self, rows: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
        return rank_metrics(predicted)

    def take_over(self, *, spec: Spec, module: nn.Module) -> None:
        """Evaluate this module. RequestError if its relations are other ones than the data's."""
        if spec.extra["relations"] != list(self.data.relations):
            raise RequestError(f"{spec.entry} was trained on other relations than these facts have")
        self.module = module.to(self.device)

    def write_model(self, folder: Path, module: nn.Module) -> None:
        """Write the network with the graph that it was tested on."""
        from zoo.recipes.link_model import write_link_model

        if replicas.rank() == 0:
            write_link_model(task=self, module=module, folder=folder)

    def plots(self, folder: Path, rows: np.ndarray, predicted: np.ndarray) -> list[Path]:
        from zoo.recipes.link_plots import save_link_plots

        facts, _ = self._asked("test")
        return save_link_plots(
            folder=folder, facts=facts, ranks=predicted, relations=self.data.relations
        )

    @cached_property
    def spec(self) -> Spec:
        """What the weight file says of itself."""
        arguments: NBFNetArguments = self.module.arguments  # type: ignore[assignment]
        return Spec(
            entry=self.config.entry,
            task="link",
            architecture="nbfnet",
            arguments=arguments.model_dump(mode="json"),
            batch_shape=BatchShape(**self.shape.__dict__),
            properties=[PropertySpec(name="tail", unit="probability")],
            extra={"split_sha256": self.split_sha256, "relations": list(self.data.relations)},
        )


def graph_tensors(edges: dict[str, np.ndarray], *, device: torch.device) -> dict[str, Tensor]:
    """The graph of a batch, with every edge kept."""
    graph = {n: torch.from_numpy(edges[n]) for n in ("src", "dst", "edge_type", "dst_ptr")}
    graph["keep"] = torch.ones(len(edges["src"]), dtype=torch.bool)
    return {name: values.to(device) for name, values in graph.items()}


def fitted_arguments(config: LinkConfig, *, relations: int) -> NBFNetArguments:
    """The arguments with the data's relations and their inverses. RequestError where others are
    asked, or where their vectors would take more memory than there is.
    """
    arguments, needed = config.model.arguments, 2 * relations
    if "relations" in arguments.model_fields_set and arguments.relations != needed:
        raise RequestError(
            f"model.arguments.relations={arguments.relations}, and these facts need {needed}\n"
            "leave it out: it follows from the data"
        )
    width = arguments.features
    size = 4 * needed * width * config.batch.graphs
    if arguments.by_query:  # parameters, their gradients and what Adam keeps of them
        size += 4 * 4 * needed * width**2 * arguments.layers
    if size > LARGEST:
        raise RequestError(
            f"the vectors of {relations:,} relations for {config.batch.graphs} queries take "
            f"{size / 2**30:.0f} GB\nask fewer at a time (batch.graphs), let vectors not depend on "
            "the query (model.arguments.by_query=false), or join relations that are rare"
        )
    return arguments.model_copy(update={"relations": needed})
