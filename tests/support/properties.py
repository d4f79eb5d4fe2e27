"""Properties that every model on packs of graphs must have, whatever its architecture.

Build a `Subject` and call the `check_*` functions; each raises AssertionError with what differs.
Modules are in float64 and evaluation mode, so that what remains is rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from zoo.batching.pack import Batch, fill_batch
from zoo.batching.shape import FixedSize
from zoo.batching.store import Store

ROUNDING = 1e-10
"""Relative: float64 sums taken in another order, through a deep network."""


def masked_l1(module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Sum of absolute errors over known labels of real graphs, and their count."""
    predicted = module(batch)
    known = batch["graphs_mask"].unsqueeze(1) & ~torch.isnan(batch["y"])
    error = torch.where(known, predicted - batch["y"].nan_to_num(), torch.zeros_like(predicted))
    return error.abs().sum(), known.sum().to(predicted.dtype)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A module with graphs to try it on.

    `store` holds float64 attributes, `targets` [graphs, T] their labels, `ids` how many values each
    integer attribute may take. `predict` gives one row per graph of the batch.
    """

    module: nn.Module
    store: Store
    shape: FixedSize
    targets: np.ndarray
    cutoff: float | None
    ids: Mapping[str, int]
    loss: Callable[[nn.Module, Batch], tuple[Tensor, Tensor]] = masked_l1
    predict: Callable[[nn.Module, Batch], Tensor] = field(
        default=lambda module, batch: module(batch)
    )

    def pack(self, graphs: Sequence[int], store: Store | None = None) -> Batch:
        """The batch that holds these graphs, in this order."""
        return fill_batch(
            store=store or self.store,
            graphs=np.asarray(graphs, np.int64),
            shape=self.shape,
            cutoff=self.cutoff,
            targets=self.targets,
        )

    def kind(self, name: str) -> str:
        """What a tensor of the batch has rows of."""
        if name in ("node_ptr", "graph_id", "graphs_mask", "y"):
            return "graph"
        edges = ("src", "dst", "src_perm", "edges_mask")
        return "edge" if name in edges or name in self.store.edge else "node"

    def real(self, batch: Batch) -> dict[str, int]:
        """Counts of real nodes, edges and graphs."""
        return {kind: int(batch[f"{kind}s_mask"].sum()) for kind in ("node", "edge", "graph")}

    def unpadded(self, graph: int) -> Batch:
        """One graph alone, without a single padding slot."""
        batch = self.pack([graph])
        count = self.real(batch)
        return {
            name: values[: count[self.kind(name)] + name.endswith("_ptr")].clone()
            for name, values in batch.items()
        }

    def outcome(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        """Outputs of real graphs, loss, count and each parameter's gradient."""
        self.module.zero_grad(set_to_none=True)
        outputs = self.predict(self.module, batch)[batch["graphs_mask"]].detach()
        loss, count = self.loss(self.module, batch)
        loss.backward()
        gradients = {
            name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
            for name, p in self.module.named_parameters()
        }
        return outputs, loss.detach(), count, gradients


def close(actual: Tensor, expected: Tensor, what: str, *, rounding: float = ROUNDING) -> None:
    """Equal up to rounding of the largest value."""
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    assert_close(
        actual, expected, rtol=0, atol=rounding * scale + 1e-300, msg=lambda m: f"{what}: {m}"
    )


def check_padding_adds_nothing(subject: Subject, graphs: Sequence[int]) -> None:
    """A pack gives the outputs, loss and gradients of its graphs one by one, unpadded."""
    outputs, loss, count, gradients = subject.outcome(subject.pack(graphs))
    singles = [subject.outcome(subject.unpadded(g)) for g in graphs]
    for row, (output, *_) in enumerate(singles):
        close(outputs[row : row + 1], output, f"output of graph {graphs[row]}")
    close(loss, torch.stack([s[1] for s in singles]).sum(), "loss")
    assert int(count) == sum(int(s[2]) for s in singles)
    for name, gradient in gradients.items():
        expected = torch.stack([s[3][name] for s in singles]).sum(0)
        close(gradient, expected, f"gradient of {name}")


def fill_padding(subject: Subject, batch: Batch, *, fill: str, seed: int, strays: bool) -> Batch:
    """The batch with every padding slot overwritten: by NaN (`fill="nan"`) or by large random
    numbers, integers by random valid ids; padding edges join padding nodes, or with `strays` any.
    """
    random = torch.Generator().manual_seed(seed)
    count = subject.real(batch)
    slots = {
        "node": subject.shape.nodes,
        "edge": subject.shape.edges,
        "graph": subject.shape.graphs,
    }
    filled = {}
    for name, values in batch.items():
        kind = subject.kind(name)
        filled[name] = values = values.clone()
        if name.endswith(("_ptr", "_mask")) or name == "src_perm":
            continue  # structure, not content
        padding = values[count[kind] :]
        if values.is_floating_point():
            noise = torch.randn(padding.shape, generator=random, dtype=torch.float64) * 1e6
            padding.copy_(torch.full_like(noise, torch.nan) if fill == "nan" else noise)
            continue
        owner = {"src": "node", "dst": "node", "batch": "graph"}.get(name)
        first = count[owner] if owner and not strays else 0
        last = slots[owner] if owner else subject.ids.get(name, 1000)
        padding.copy_(torch.randint(first, last, padding.shape, generator=random))
    return filled


def check_padding_is_never_read(
    subject: Subject, graphs: Sequence[int], *, strays: bool = False
) -> None:
    """Whatever stands in padding slots, outputs, loss and gradients keep their bits."""
    batch = subject.pack(graphs)
    count = subject.real(batch)
    assert count["node"] < subject.shape.nodes and count["edge"] < subject.shape.edges
    expected = subject.outcome(batch)
    for fill, seed in (("nan", 0), ("random", 1), ("random", 2)):
        spoilt = fill_padding(subject, batch, fill=fill, seed=seed, strays=strays)
        outputs, loss, known, gradients = subject.outcome(spoilt)
        assert torch.equal(outputs, expected[0]), f"outputs change with {fill} in padding"
        assert torch.equal(loss, expected[1]), f"the loss changes with {fill} in padding"
        assert torch.equal(known, expected[2]), f"{fill} in padding is counted as a label"
        for name, gradient in gradients.items():
            same = torch.equal(gradient, expected[3][name])
            assert same, f"the gradient of {name} changes with {fill} in padding"


def check_order_of_graphs(subject: Subject, graphs: Sequence[int]) -> None:
    """Permuting the graphs of a pack permutes the outputs and leaves the rest."""
    order = np.random.default_rng(0).permutation(len(graphs))
    outputs, loss, count, gradients = subject.outcome(subject.pack(graphs))
    permuted = subject.outcome(subject.pack(np.asarray(graphs)[order]))
    close(permuted[0], outputs[torch.from_numpy(order)], "outputs")
    close(permuted[1], loss, "loss")
    assert torch.equal(permuted[2], count)
    for name, gradient in gradients.items():
        close(permuted[3][name], gradient, f"gradient of {name}")


def check_order_of_nodes(subject: Subject, graphs: Sequence[int]) -> None:
    """Renumbering the nodes of each graph changes no output (edges are those within a cutoff)."""
    store, generator = subject.store, np.random.default_rng(0)
    assert subject.cutoff is not None, "stored edges would have to be renumbered too"
    starts, ends = store.node_ptr[:-1], store.node_ptr[1:]
    order = np.concatenate(
        [generator.permutation(np.arange(a, b)) for a, b in zip(starts, ends, strict=True)]
    )
    shuffled = {name: values[order] for name, values in store.node.items()}
    outputs = subject.outcome(subject.pack(graphs))[0]
    permuted = subject.outcome(subject.pack(graphs, _with_nodes(store, shuffled)))[0]
    close(permuted, outputs, "outputs")


def check_rigid_motion(subject: Subject, graphs: Sequence[int]) -> None:
    """Translating, rotating and reflecting each graph changes no output."""
    outputs = subject.outcome(subject.pack(graphs))[0]
    generator = np.random.default_rng(0)
    pos = subject.store.node["pos"].copy()
    for start, end in zip(subject.store.node_ptr[:-1], subject.store.node_ptr[1:], strict=True):
        turn = np.linalg.qr(generator.standard_normal((3, 3)))[0]  # half of them reflect
        pos[start:end] = pos[start:end] @ turn + 20 * generator.standard_normal(3)
    moved = _with_nodes(subject.store, {**subject.store.node, "pos": pos})
    # a distance taken 20 Å from the origin has lost a digit
    close(subject.outcome(subject.pack(graphs, moved))[0], outputs, "outputs", rounding=1e-9)


def check_all_padding(subject: Subject) -> None:
    """A pack without graphs: zero loss, nothing counted, zero gradients."""
    empty = subject.pack([])
    for batch in (empty, fill_padding(subject, empty, fill="nan", seed=0, strays=False)):
        outputs, loss, count, gradients = subject.outcome(batch)
        assert len(outputs) == 0 and float(loss) == 0 and int(count) == 0
        for name, gradient in gradients.items():
            assert not gradient.any(), f"{name} gets a gradient from padding alone"


def check_padding_rows_are_zero(subject: Subject, graphs: Sequence[int]) -> None:
    """Outputs of padding graphs are zero."""
    batch = subject.pack(graphs)
    outputs = subject.predict(subject.module, batch)
    assert outputs.shape[0] == subject.shape.graphs
    assert not outputs[~batch["graphs_mask"]].any()


def check_every_parameter_learns(subject: Subject, graphs: Sequence[int]) -> None:
    """No parameter is left out of the graph."""
    for name, gradient in subject.outcome(subject.pack(graphs))[3].items():
        assert gradient.isfinite().all() and gradient.any(), f"{name} gets no gradient"


def count_compilations(
    subject: Subject, packs: Sequence[Sequence[int]], *, backend: str = "aot_eager"
) -> int:
    """How often the loss is compiled over these packs, forward and backward, as whole graphs of
    fixed shape; the compiled losses and gradients equal the eager ones.
    """
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(subject.loss, backend=counter, fullgraph=True, dynamic=False)
    for graphs in packs:
        batch = subject.pack(graphs)
        _, expected, _, gradients = subject.outcome(batch)
        subject.module.zero_grad(set_to_none=True)
        loss, _ = compiled(subject.module, batch)
        loss.backward()
        close(loss.detach(), expected, "compiled loss")
        for name, parameter in subject.module.named_parameters():
            close(parameter.grad, gradients[name], f"compiled gradient of {name}")
    count: int = counter.frame_count
    torch._dynamo.reset()
    return count


def check_compiles_once(
    subject: Subject, packs: Sequence[Sequence[int]], *, backend: str = "aot_eager"
) -> None:
    """However many graphs the packs hold, they compile once."""
    assert len({len(p) for p in packs}) > 1, "packs of several fillings are needed"
    assert count_compilations(subject, packs, backend=backend) == 1


def _with_nodes(store: Store, node: Mapping[str, np.ndarray]) -> Store:
    return replace(store, node=dict(node))
