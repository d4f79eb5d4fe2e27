"""Tracing: the inputs that are used, the model's own lines, our ops as torch's, clear failures."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from zoo.backends.graph import innermost, place, told_place, trace
from zoo.errors import ZooError
from zoo.ops import cfconv
from zoo.ops.dispatch import kernels_enabled, plain_torch


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def hidden(self, x):
        return torch.tanh(self.linear(x))

    def forward(self, batch):
        return self.hidden(batch["x"]) + batch["y"]


BATCH = {"unused": torch.zeros(4), "y": torch.ones(2), "x": torch.ones(5, 3), "z": torch.zeros(1)}


def step(module, batch):
    return module(batch)


def test_inputs_that_are_not_read_are_no_inputs():
    module = Small()
    program = trace(module=module, step=step, batch=BATCH)
    assert program.graph_signature.user_inputs == ("y", "x")
    found = program.module()(y=BATCH["y"], x=BATCH["x"])
    assert torch.equal(found, module(BATCH))
    assert "empty" not in str(program.graph)


def test_nodes_know_the_innermost_line_of_the_model():
    program = trace(module=Small(), step=step, batch=BATCH)
    by_name = {str(n.target): place(n) for n in program.graph.nodes if n.op == "call_function"}
    first = Small.hidden.__code__.co_firstlineno
    assert by_name["aten.tanh.default"] == (__file__, first + 1)
    assert by_name["aten.add.Tensor"] == (__file__, Small.forward.__code__.co_firstlineno + 1)


def test_ops_are_traced_as_their_references_and_kernels_return():
    edges = 3
    index = torch.zeros(edges, dtype=torch.int32)
    ptr = torch.tensor([0, 0, 0], dtype=torch.int32)

    def convolve(module, batch):
        assert not kernels_enabled()
        return cfconv.cfconv(
            *(module(batch["x"]), torch.ones(4, 2, 3), torch.ones(edges)),
            src=index,
            dst=index,
            dst_ptr=ptr,
            src_ptr=ptr,
            src_perm=index,
            cutoff=2.0,
        )

    program = trace(module=nn.Linear(3, 3), step=convolve, batch={"x": torch.ones(2, 3)})
    assert "zoo." not in str(program.graph) and "scatter_add" in str(program.graph)
    assert kernels_enabled()
    with plain_torch(), plain_torch():
        assert not kernels_enabled()
    assert kernels_enabled()


def test_what_is_no_graph_says_so():
    def branch(module, batch):
        return batch["x"] if batch["x"].sum() > 0 else batch["y"]

    with pytest.raises(
        ZooError, match="Small can't be exported as one graph: .*\n`zoo check`"
    ) as e:
        trace(module=Small(), step=branch, batch=BATCH)
    where = innermost(e.value.__cause__)
    assert where == (__file__, branch.__code__.co_firstlineno + 1)


def test_exporting_says_nothing_of_itself(capfd):
    def branch(module, batch):
        return batch["x"] if batch["x"].sum() > 0 else batch["y"]

    with pytest.raises(ZooError):
        trace(module=Small(), step=branch, batch=BATCH)
    trace(module=Small(), step=step, batch=BATCH)
    said = capfd.readouterr()
    assert said.out == said.err == ""


def test_the_last_place_of_a_traceback_is_told():
    text = 'File "/a b/one.py", line 3, in f\n  x\nFile "two.py", line 14, in g'
    assert told_place(text) == ("two.py", 14) and told_place("nothing") is None


def test_gradients_flow_through_a_training_graph():
    module = Small()
    program = trace(
        module=module, step=lambda m, b: m(b).sum(), batch=BATCH, gradients=True
    ).module()
    program(y=BATCH["y"], x=BATCH["x"]).backward()
    given = program.get_parameter("module.linear.weight").grad
    module(BATCH).sum().backward()
    assert torch.equal(given, module.linear.weight.grad)
