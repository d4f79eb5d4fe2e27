"""A check names what stands in the way: kind, file, line, operator, and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from zoo.backends.check import check

HERE = Path(__file__)


def line_of(text: str) -> int:
    """The number of the first line of this file that ends with a comment `# text`."""
    lines = HERE.read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.endswith(f"# {text}"))


class Bad(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, index):
        x = self.linear(x)
        kept = x[x[:, 0] > -9]  # mask
        scale = x.sum().item()  # item
        out = torch.zeros(3, 4).index_put((index,), x, accumulate=True)  # accumulate
        big = x.double() * 1e300  # wide
        return out.sum() * scale + kept.sum() + big.sum()


class Branch(nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # branch
            return x
        return -x


def judged(module, backend="ipu", training=True, **batch):
    return check(
        module=module,
        step=lambda m, b: m(**b),
        batch=batch,
        backend=backend,
        training=training,
    )


def kinds(found, level="error"):
    return {(f.kind, f.line) for f in found["findings"] if f.level == level}


EXAMPLE = {"x": torch.ones(6, 4), "index": torch.tensor([0, 1, 2, 0, 1, 2])}


def test_a_bad_model_has_four_findings_each_with_its_line():
    found = judged(Bad(), **EXAMPLE)
    assert not found["ok"]
    assert kinds(found) == {
        ("data-dependent-shape", line_of("mask")),
        ("host-read", line_of("item")),
        ("index-put-accumulate", line_of("accumulate")),
        ("wide-value", line_of("wide")),
    }
    for finding in found["findings"]:
        assert finding.file == str(HERE) and finding.operator and finding.says
        assert finding.level == "warning" or finding.instead
    put = next(f for f in found["findings"] if f.kind == "index-put-accumulate")
    assert put.operator == "index_put.default" and "scatter_add" in put.instead
    assert "accumulate=True" in put.code


def test_a_branch_on_a_value_is_told_once():
    for backend in ("ipu", "export"):
        found = judged(Branch(), backend, x=torch.ones(3))
        assert not found["ok"] and found["operators"] is None
        assert kinds(found) == {("branch-on-value", line_of("branch"))}
        (finding,) = found["findings"]
        assert "torch.where" in finding.instead
    found = judged(Branch(), "inductor", x=torch.ones(3))
    assert kinds(found) == {("not-exportable", line_of("branch"))}


def test_a_good_model_goes_everywhere_and_leaves_no_gradient():
    module = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1))
    for backend in ("ipu", "export", "inductor"):
        found = judged(module, backend, input=torch.ones(3, 4))
        assert found["ok"] and not found["findings"]
        assert found["operators"]["linear.default"] == 2
    assert all(p.grad is None for p in module.parameters())


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: torch.isinf(x), "missing-operator"),
        (lambda x: torch.linalg.inv(x @ x.T), "missing-operator"),
        (lambda x: x.to(torch.complex64).abs(), "dtype"),
        (lambda x: torch.topk(x, 2, sorted=False).values, "constrained-operator"),
        (lambda x: torch.unique(x).sum(), "data-dependent-shape"),
        (lambda x: x.long() * 2**40, "wide-value"),
        (lambda x: torch.zeros(9).index_add(0, x[:, 0].long(), x[:, 0]), "missing-operator"),
        (lambda x: torch.autograd.grad((x * 1).tanh().sum(), x)[0], "autograd-inside"),
    ],
)
def test_what_poptorch_lacks(function, kind):
    class One(nn.Module):
        def forward(self, x):
            return function(x)

    found = judged(One(), x=torch.ones(5, 4, requires_grad=kind == "autograd-inside"))
    assert kind in {f.kind for f in found["findings"] if f.level == "error"}, found["findings"]
    assert not found["ok"]


def test_operators_that_fall_apart_are_judged_by_their_parts():
    class Broadcast(nn.Module):
        def forward(self, x):
            a, b = torch.broadcast_tensors(x, x[:1])
            return a + b

    assert judged(Broadcast(), x=torch.ones(5, 4))["ok"]

    class Hidden(nn.Module):
        def forward(self, x):
            return torch.ops.aten.matrix_power(x, 2) + torch.diag(x)

    found = judged(Hidden(), x=torch.ones(4, 4))
    assert {f.operator for f in found["findings"]} == {"diag.default"}


def test_a_failing_example_is_a_finding():
    class Fails(nn.Module):
        def forward(self, x):
            return x @ x  # shapes

    found = judged(Fails(), x=torch.ones(5, 4))
    assert ("not-exportable", line_of("shapes")) in kinds(found)


def test_memory_is_estimated_and_too_much_is_refused_with_advice():
    module = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
    small = judged(module, input=torch.ones(100, 64))["memory"]
    assert small["fits"]
    parameters = 4 * (64 * 64 + 64)
    assert small["weights"] == 4 * parameters and small["optimiser"] == 12 * parameters
    assert small["inputs"] == 100 * 64 * 4 and small["activations"] == 4 * small["inputs"]
    idle = judged(module, training=False, input=torch.ones(100, 64))["memory"]
    assert idle["optimiser"] == 0 and idle["activations"] == 2 * small["inputs"]
    large = judged(module, "ipu", input=torch.ones(1_000_000, 64))
    assert kinds(large) == {("memory", None)}
    (finding,) = large["findings"]
    assert "packs of" in finding.instead and "stages" in finding.instead


class Filled(nn.Module):
    def forward(self, x):
        out = x.new_empty(3, dtype=torch.int64)
        out[:] = x.long().sum()
        return out


def test_memory_that_nothing_was_written_to_says_nothing(monkeypatch):
    # torch then fills it with the largest number there is, instead of what happens to be there.
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        found = judged(Filled(), training=False, x=torch.ones(4))
    finally:
        torch.use_deterministic_algorithms(False)
    assert found["ok"] and not found["findings"]


class Spelt(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 4)
        self.attention = nn.MultiheadAttention(4, 2)

    def forward(self, x):
        x = x * 1
        x[x[:, 0] > 2] = 0.0
        return self.attention(x, x, x, need_weights=False)[0] + self.cell(x, x)


def test_operators_that_poptorch_has_by_another_name_or_in_parts_are_not_missing():
    found = judged(Spelt(), x=torch.ones(6, 4))
    assert found["ok"], found["findings"]
    assert {"lift_fresh_copy.default", "gru_cell.default"} <= found["operators"].keys()
    assert "scaled_dot_product_attention.default" in found["operators"]


def test_an_out_argument_is_a_warning():
    class Sums(nn.Module):
        def forward(self, x):
            out = torch.zeros(7)
            torch.cumsum(x, 0, out=out[1:])
            return out

    found = judged(Sums(), training=False, x=torch.ones(6))
    assert found["ok"]
    assert [f.operator for f in found["findings"]] == ["cumsum.out"]


def test_pyg_is_checked_as_poptorch_geometric_has_it():
    from torch_geometric.nn import SortAggregation

    class Sorted(nn.Module):
        def __init__(self, **sizes):
            super().__init__()
            self.sizes = sizes
            self.sort = SortAggregation(k=2)

        def forward(self, x, index):
            return self.sort(x, index, **self.sizes)  # sort

    batch = {"x": torch.rand(4, 3), "index": torch.tensor([0, 0, 1, 1])}
    sized = Sorted(dim_size=2, max_num_elements=3)
    assert judged(sized, "ipu", **batch)["ok"]
    # Its assertion that the index is sorted, which PopTorch Geometric takes out, stays elsewhere.
    assert "branch-on-value" in {f.kind for f in judged(sized, "export", **batch)["findings"]}
    found = judged(Sorted(dim_size=2), "ipu", **batch)
    (refused,) = [f for f in found["findings"] if "disable_dynamic_shapes" in f.says]
    assert not found["ok"] and "'max_num_elements' needs to be set" in refused.says
