"""A traced step as plain Python: same loss, same gradients, names and syntax of its time."""

from __future__ import annotations

import ast
import re
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from zoo.backends.graph import trace
from zoo.backends.ipu import rules
from zoo.backends.ipu.source import module_source, write_class
from zoo.errors import ZooError


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.linear = nn.Sequential(nn.Linear(3, 2))
        self.register_buffer("shift", torch.arange(2.0), persistent=False)

    def forward(self, batch):
        x = self.linear(self.norm(batch["x"])) + self.shift
        x = x.clamp(min=-float("inf"))
        first, second = x.unbind(1)
        return torch.stack([first, second.to(torch.float64).to(torch.float32)], 1)


def loss(module, batch):
    error = F.smooth_l1_loss(module(batch), batch["label"], reduction="sum")
    return error, batch["mask"].sum()


def batch():
    torch.manual_seed(1)
    return {"x": torch.randn(5, 3), "label": torch.randn(5, 2), "mask": torch.ones(5)}


@pytest.fixture
def poptorch(monkeypatch):
    stub = SimpleNamespace(identity_loss=lambda x, reduction: x.sum())
    monkeypatch.setitem(sys.modules, "poptorch", stub)


def written(module, **kwargs):
    program = trace(module=module, step=loss, batch=batch(), gradients=True)
    return write_class(program, name="Train", prefix="module.", loss=True, **kwargs)


def built(source, tensors, name="Train"):
    space = {}
    exec(source, space)
    return space[name](tensors)


def test_loss_gradients_and_buffers_are_those_of_the_step(poptorch):
    torch.manual_seed(0)
    module = Net().train()
    found = written(module)
    assert found.inputs == ["x", "label", "share"] and found.changes_buffers
    assert set(found.names.values()) == set(module.state_dict())
    assert list(found.constants) == ["shift"]
    source = module_source({"Train": found}, title="net")
    held = {name: value.clone() for name, value in module.state_dict().items()}
    plain = built(source, {**held, **found.constants})
    given = batch()
    out = plain(given["x"], given["label"], torch.tensor([0.25]))
    out.backward()
    summed, _ = loss(module, given)
    (0.25 * summed).backward()
    assert torch.equal(out, 0.25 * summed)
    members = dict(plain.named_parameters())
    for name, parameter in module.named_parameters():
        member = next(m for m, held_name in found.names.items() if held_name == name)
        assert torch.equal(members[member].grad, parameter.grad), name
    assert torch.equal(plain.norm_running_mean, module.norm.running_mean)


def test_prediction_returns_what_the_step_does(poptorch):
    module = Net().eval()
    program = trace(module=module, step=lambda m, b: m(b), batch=batch())
    found = write_class(program, name="Infer", prefix="module.", loss=False)
    source = module_source({"Infer": found}, title="net")
    plain = built(source, {**module.state_dict(), **found.constants}, "Infer")
    assert found.inputs == ["x"] and not found.changes_buffers
    assert torch.equal(plain(batch()["x"]), module(batch()))


def test_syntax_and_names_are_of_python_3_8_and_torch_2_0():
    source = module_source({"Train": written(Net().train())}, title="net")
    ast.parse(source, feature_version=(3, 8))
    called = set(re.findall(r"aten\.([a-z_0-9]+\.\w+)\(", source))
    assert {"linear.default", "batch_norm.default", "smooth_l1_loss.default"} <= called
    for operator in called - {"broadcast_tensors.default"}:  # which torch takes apart
        assert operator in rules.operators()[rules.base_name(operator)], operator
    assert "device=" not in source and "_assert" not in source


@pytest.mark.parametrize("used", [True, False])
def test_what_cannot_be_written_says_so(used):
    """A graph in the graph: its value is used, or it does no more than write into a buffer."""

    def step(module, given):
        with torch.no_grad():
            y = (given["x"] * 2).sum()
            module.seen.add_(y)
        return module(given).sum() + (y if used else 0.0), torch.tensor(1.0)

    net = Net()
    net.register_buffer("seen", torch.zeros(()))
    program = trace(module=net, step=step, batch=batch(), gradients=True)
    with pytest.raises(ZooError, match=r"it holds[\s\S]*detach"):
        write_class(program, name="Train", prefix="module.", loss=True)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, batch):
        out = self.linear(batch["x"])
        out[batch["mask"] > 0] = 0.5
        return out


def test_what_only_a_trace_says_is_written_as_poptorch_knows_it(poptorch):
    module = Masked().eval()
    given = {**batch(), "mask": torch.tensor([1.0, 0, 0, 1, 0])}
    program = trace(module=module, step=lambda m, b: m(b), batch=given)
    assert "lift_fresh_copy" in str(program.graph)
    found = write_class(program, name="Infer", prefix="module.", loss=False)
    source = module_source({"Infer": found}, title="net")
    assert "aten.lift_fresh_copy" not in source and "aten.clone.default" in source
    plain = built(source, {**module.state_dict(), **found.constants}, "Infer")
    assert torch.equal(plain(*(given[name] for name in found.inputs)), module(given))
