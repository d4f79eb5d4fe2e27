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
