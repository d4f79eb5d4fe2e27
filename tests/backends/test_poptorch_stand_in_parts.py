"""Loaders, loops, slices and blocks of the stand-in of PopTorch."""

from __future__ import annotations

import pytest
import torch
from poptorch_stand_in import Calling, options_for, poptorch_stand_in


@pytest.fixture(scope="module")
def poptorch():
    with poptorch_stand_in() as module:
        yield module


def infer(poptorch, function, *args, options=None):
    model = poptorch.inferenceModel(Calling(function), options)
    try:
        return model(*args)
    finally:
        model.destroy()


def train(poptorch, function, *args, options=None):
    model = poptorch.trainingModel(Calling(function), options)
    try:
        return model(*args)
    finally:
        model.destroy()


def test_a_loader_gives_what_a_call_takes(poptorch):
    options = options_for(poptorch, 2, 3, 4)
    options.inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    rows = torch.utils.data.TensorDataset(torch.arange(100))
    loader = poptorch.DataLoader(options, rows, batch_size=2)
    batches = [b for (b,) in loader]
    assert loader.combinedBatchSize == 24 and loader.options is options
    assert [len(b) for b in batches] == [24] * 4 and len(loader) == 4
    assert torch.cat(batches).tolist() == list(range(96))
    loader.terminate()


def test_a_ragged_end_must_be_dropped(poptorch):
    rows = torch.utils.data.TensorDataset(torch.arange(10))
    with pytest.raises(AssertionError, match="drop_last"):
        poptorch.DataLoader(options_for(poptorch, 4), rows, drop_last=False)
    loader = poptorch.DataLoader(options_for(poptorch, 5), rows, drop_last=False)
    assert len(list(loader)) == 2


def test_a_loader_shuffles_if_told_to(poptorch):
    rows = torch.utils.data.TensorDataset(torch.arange(64))
    torch.manual_seed(0)
    ((batch,),) = poptorch.DataLoader(poptorch.Options(), rows, batch_size=64, shuffle=True)
    assert sorted(batch.tolist()) == list(range(64)) != batch.tolist()


def test_batches_of_a_sampler_are_joined(poptorch):
    rows = torch.utils.data.TensorDataset(torch.arange(10))
    sampler = [[0, 1], [4], [2, 3], [5], [6], [7]]
    loader = poptorch.DataLoader(options_for(poptorch, 2), rows, batch_sampler=sampler[:5])
    assert [b.tolist() for (b,) in loader] == [[0, 1, 4], [2, 3, 5]]
    assert len(loader) == 2 and loader.combinedBatchSize is None


def test_a_loop_keeps_shapes(poptorch):
    x = torch.ones(2)

    def forward(m, x):
        return poptorch.for_loop(3, lambda a, b: [a + b, b * 2], [x, x])

    assert [t.tolist() for t in infer(poptorch, forward, x)] == [[8, 8], [8, 8]]
    for loop, message in [
        (lambda m, x: poptorch.for_loop(2, lambda a: [a, a], [x]), "must be like its inputs"),
        (lambda m, x: poptorch.for_loop(2, lambda a: [a[:1]], [x]), "must be like its inputs"),
        (lambda m, x: poptorch.for_loop(x[0], lambda a: [a], [x]), "count"),
        (lambda m, x: poptorch.for_loop(2, lambda a: [a], x), "list"),
    ]:
        with pytest.raises(poptorch.Error, match=message):
            infer(poptorch, loop, x)


def test_a_condition_is_for_inference_only(poptorch):
    def forward(m, x):
        return poptorch.cond(x.sum() > 0, lambda a: [a + 1], [x], lambda a: [a - 1], [x])[0]

    assert infer(poptorch, forward, torch.ones(2)).tolist() == [2, 2]
    assert infer(poptorch, forward, -torch.ones(2)).tolist() == [-2, -2]
    with pytest.raises(poptorch.Error, match="inference only"):
        train(poptorch, lambda m, x: poptorch.identity_loss(forward(m, x), "sum"), torch.ones(2))
    with pytest.raises(poptorch.Error, match="other body"):
        infer(
            poptorch,
            lambda m, x: poptorch.cond(x[0] > 0, lambda: [x], [], lambda: [x, x], []),
            torch.ones(2),
        )


def test_slices_at_a_place_in_a_tensor(poptorch):
    x = torch.arange(6.0)

    def cut(m, x, at):
        return poptorch.dynamic_slice(x, 0, at, 2, 1)

    def put(m, x, at):
        return poptorch.dynamic_update(x, x[:2] * 0, 0, at, 2)

    assert infer(poptorch, cut, x, torch.tensor(4)).tolist() == [4, 5]
    assert infer(poptorch, put, x, torch.tensor(2)).tolist() == [0, 1, 0, 0, 4, 5]
    with pytest.raises(poptorch.Error, match="must divide"):
        infer(poptorch, lambda m, x, at: poptorch.dynamic_slice(x, 0, at, 4, 1), x, torch.tensor(0))


def test_losses_are_reduced(poptorch):
    x = torch.tensor([[1.0, 2.0, 3.0]])

    def forward(kind):
        return lambda m, x: poptorch.identity_loss((x @ m.weight).square(), kind)

    square = (x @ Calling(None).weight.detach()).square()
    for kinds, expected in [
        (("sum", 0), square.sum()),
        (("mean", 1), square.mean()),
        (("none", 2), square),
    ]:
        for kind in kinds:
            torch.testing.assert_close(train(poptorch, forward(kind), x), expected)
    with pytest.raises(AssertionError, match="reduction"):
        train(poptorch, forward("max"), x)


def test_what_only_a_compiler_obeys_changes_nothing(poptorch):
    x = torch.eye(3)

    def forward(m, x):
        x = poptorch.set_available_memory(poptorch.nop(x), 0.5)
        x, y = poptorch.recomputationCheckpoint(x, poptorch.ipu_print_tensor(x, "x"))
        y = poptorch.set_overlap_for_input(y, poptorch.OverlapMode.NoOverlap)
        mode = poptorch.MatMulSerializationMode.ReducingDim
        return poptorch.recomputationCheckpoint(poptorch.serializedMatMul(x, y, mode, 3))

    assert torch.equal(infer(poptorch, forward, x), x)
    for bad in (
        lambda m, x: poptorch.set_available_memory(x, 2),
        lambda m, x: poptorch.set_overlap_for_output(x, "no_overlap"),
        lambda m, x: poptorch.serializedMatMul(x, x, "reducing_dim", 3),
    ):
        with pytest.raises(AssertionError):
            infer(poptorch, bad, x)
    with pytest.raises(poptorch.Error, match="doesn't divide"):
        mode = poptorch.MatMulSerializationMode.OutputChannels
        infer(poptorch, lambda m, x: poptorch.serializedMatMul(x, x, mode, 2), x)


def two_stages(poptorch, first=0, second=1):
    def forward(m, x):
        with poptorch.Block("first", ipu_id=first):
            x = x @ m.weight
        with poptorch.Block("second", ipu_id=second):
            return poptorch.identity_loss(x.square(), "sum")

    return forward


def test_a_pipeline_must_be_kept_busy(poptorch):
    x = torch.ones(12, 3)
    with pytest.raises(poptorch.Error, match="gradientAccumulation of at least 3"):
        train(poptorch, two_stages(poptorch), x, options=options_for(poptorch, accumulation=2))
    train(poptorch, two_stages(poptorch), x, options=options_for(poptorch, accumulation=3))
    with pytest.raises(poptorch.Error, match="deviceIterations of at least 2"):
        infer(poptorch, two_stages(poptorch), x)
    infer(poptorch, two_stages(poptorch), x, options=options_for(poptorch, 2))
    sharded = poptorch.Options().setExecutionStrategy(poptorch.ShardedExecution())
    infer(poptorch, two_stages(poptorch), x, options=sharded)


def test_stages_ascend_and_are_known(poptorch):
    x = torch.ones(2, 3)
    with pytest.raises(poptorch.Error, match="must ascend"):
        infer(poptorch, two_stages(poptorch, 1, 0), x, options=options_for(poptorch, 2))
    for strategy, message in [
        (poptorch.PipelinedExecution("first"), "Unknown block 'second'"),
        (poptorch.PipelinedExecution("second", "first"), "must ascend"),
    ]:
        options = options_for(poptorch, 2).setExecutionStrategy(strategy)
        with pytest.raises((poptorch.Error, AssertionError), match=message):
            infer(poptorch, two_stages(poptorch), x, options=options)
    strategy = poptorch.PipelinedExecution(poptorch.Stage("first", "second"))
    options = poptorch.Options().setExecutionStrategy(strategy)
    infer(poptorch, two_stages(poptorch, 0, 0), x, options=options)
    with pytest.raises(AssertionError, match="more than one"):
        poptorch.PipelinedExecution("a", "a")
    with pytest.raises(AssertionError, match="phases"):
        poptorch.SerialPhasedExecution()


def test_ipus_are_a_power_of_two(poptorch):
    x = torch.ones(6, 3)
    with pytest.raises(poptorch.Error, match="3 IPUs"):
        infer(poptorch, lambda m, x: x * 1, x, options=options_for(poptorch, replicas=3))
    sharded = poptorch.Options().setExecutionStrategy(poptorch.ShardedExecution())
    with pytest.raises(poptorch.Error, match="3 IPUs"):
        infer(poptorch, two_stages(poptorch, 0, 2), x, options=sharded)
    rounded = options_for(poptorch, replicas=3).autoRoundNumIPUs()
    infer(poptorch, lambda m, x: x * 1, x, options=rounded)


def test_a_layer_begins_a_block_once(poptorch):
    layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    assert poptorch.BeginBlock(layers[1], "second", ipu_id=1) is layers[1]
    with pytest.raises(poptorch.Error, match="already begins a block"):
        poptorch.BeginBlock(layers[1], "third")
    x = torch.ones(2, 3)
    assert torch.equal(layers(x), layers[1](layers[0](x)))  # outside of a trace it means nothing
    model = poptorch.inferenceModel(layers)
    with pytest.raises(poptorch.Error, match="2 stages|2 IPUs|pipeline of"):
        poptorch.BeginBlock(layers[0], "first", ipu_id=0)
        model(x)
    poptorch.removeBlocks(layers)
    model(x)
    model.destroy()


def test_a_function_is_a_block(poptorch):
    @poptorch.BlockFunction("first", ipu_id=0)
    def double(x):
        return 2 * x

    strategy = poptorch.PipelinedExecution("other")
    options = poptorch.Options().setExecutionStrategy(strategy)
    with pytest.raises(AssertionError, match="Unknown block 'first'"):
        infer(poptorch, lambda m, x: double(x), torch.ones(1), options=options)
    assert infer(poptorch, lambda m, x: double(x), torch.ones(1)).tolist() == [2]


def test_hooks_are_called_around_a_compilation(poptorch):
    calls = []
    handles = [
        poptorch.registerPreCompileHook(lambda: calls.append("before")),
        poptorch.registerPostCompileHook(lambda: calls.append("after")),
    ]
    infer(poptorch, lambda m, x: [calls.append("trace"), x * 1][1], torch.ones(1))
    assert calls[:3] == ["before", "trace", "after"]
    for handle in handles:
        handle.remove()
    calls.clear()
    infer(poptorch, lambda m, x: x * 1, torch.ones(1))
    assert calls == []
