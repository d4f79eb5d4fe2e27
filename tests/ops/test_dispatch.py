"""Who computes a call: the kernel at once, the op for who watches, the reference for tracers."""

import subprocess
import sys

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.ops import dispatch
from zoo.ops.dispatch import plain_torch
from zoo.ops.segment import segment_reduce

PTR = torch.tensor([0, 2, 5], dtype=torch.int32)


class Watching(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def dispatched(monkeypatch):
    """Whether each call so far went through torch's dispatcher."""
    calls = []
    chosen = dispatch._nobody_watches

    def note(args):
        calls.append(not chosen(args))
        return chosen(args)

    monkeypatch.setattr(dispatch, "_nobody_watches", note)
    return calls


def test_plain_calls_skip_the_dispatcher_and_others_do_not(dispatched):
    x = torch.randn(5, 3)
    expected = segment_reduce(x, PTR)
    wanting = x.clone().requires_grad_()
    with torch.no_grad():
        assert torch.equal(segment_reduce(wanting, PTR), expected)
    with torch.inference_mode():
        segment_reduce(x, PTR)
    segment_reduce(torch.nn.Parameter(x, requires_grad=False), PTR)
    assert dispatched == [False] * 4
    out = segment_reduce(wanting, PTR)
    assert out.requires_grad and torch.equal(out, expected)
    segment_reduce(x.bfloat16(), PTR)
    assert dispatched[4:] == [True, True]


def test_modes_see_the_op():
    x = torch.randn(5, 3)
    with Watching() as mode:
        segment_reduce(x, PTR)
    assert mode.seen == ["zoo.segment_reduce.default"]


def test_the_profiler_sees_the_op():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        segment_reduce(torch.randn(5, 3), PTR)
    assert "zoo::segment_reduce" in {event.name for event in recorded.events()}


def test_tracers_see_the_op_or_its_reference():
    def form(x):
        return segment_reduce(x, PTR, "max")

    def targets(program):
        return {str(node.target) for node in program.graph.nodes}

    x = torch.randn(5, 3)
    assert "zoo.segment_reduce.default" in targets(make_fx(form)(x))

    class Module(torch.nn.Module):
        def forward(self, x):
            return form(x)

    for strict in (False, True):
        program = torch.export.export(Module(), (x,), strict=strict)
        assert "zoo.segment_reduce.default" in targets(program)
        with plain_torch():
            program = torch.export.export(Module(), (x,), strict=strict)
        names = targets(program)
        assert not any(name.startswith("zoo") for name in names)
        assert not any("index_add" in name or "index_put" in name for name in names)
        assert torch.equal(program.module()(x), form(x))


def test_compiled_as_one_graph():
    x = torch.randn(5, 3, requires_grad=True)

    def form(x):
        return segment_reduce(x * 2, PTR).square()

    compiled = torch.compile(form, backend="aot_eager", fullgraph=True, dynamic=False)
    assert torch.equal(compiled(x), form(x))
    (ours,) = torch.autograd.grad(compiled(x).sum(), x)
    (expected,) = torch.autograd.grad(form(x).sum(), x)
    assert torch.equal(ours, expected)


@pytest.mark.parametrize("value", ["reference", "", "other"])
def test_kernels_are_switched_off_by_the_environment(value):
    code = (
        "import sys, torch\n"
        "from zoo.ops.segment import segment_reduce\n"
        "print(segment_reduce(torch.ones(3, 2), torch.tensor([0, 1, 3])).tolist())\n"
        "print('zoo.ops.segment_kernel' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**__import__("os").environ, "ZOO_KERNELS": value},
    )
    out, loaded = run.stdout.splitlines()
    assert out == "[[1.0, 1.0], [2.0, 2.0]]" and loaded == str(value != "reference")
