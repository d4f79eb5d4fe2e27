"""A traced step written out for PopTorch: what it says, and that it computes the same."""

from __future__ import annotations

import sys
import types

import torch
from torch import nn

from zoo.backends.graph import trace
from zoo.backends.ipu.source import module_source, write_class


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x, mask):
        out = self.linear(x)
        out[mask] = 0.5
        return out


def test_what_only_a_trace_says_is_written_as_poptorch_knows_it(monkeypatch):
    batch = {"x": torch.randn(5, 4), "mask": torch.tensor([True, False, True, False, False])}
    module = Masked().eval()
    program = trace(module=module, step=lambda m, b: m(**b), batch=batch)
    assert "lift_fresh_copy" in str(program.graph)
    written = write_class(program, name="Step", prefix="module.", loss=False)
    source = module_source({"Step": written}, title="a test")
    assert "aten.lift_fresh_copy" not in source and "aten.clone.default" in source
    monkeypatch.setitem(sys.modules, "poptorch", types.ModuleType("poptorch"))
    scope: dict = {}
    exec(source, scope)
    step = scope["Step"]({**module.state_dict(), **written.constants})
    assert torch.equal(step(*(batch[name] for name in written.inputs)), module(**batch))
