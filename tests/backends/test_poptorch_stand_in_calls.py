"""A call of the stand-in of PopTorch: its batches, its gradients, its outputs."""

from __future__ import annotations

import collections
import copy

import pytest
import torch
import torch.nn.functional as F
from poptorch_stand_in import (
    Calling,
    options_for,
    poptorch_stand_in,
    rows_for_squares,
    squares,
    trainer,
)

Pair = collections.namedtuple("Pair", ["left", "right"])


@pytest.fixture(scope="module")
def poptorch():
    with poptorch_stand_in() as module:
        yield module


@pytest.fixture
def free(poptorch):
    """Executors that are destroyed after the test, whatever becomes of it."""
    made = []

    def keep(executor):
        made.append(executor)
        return executor

    yield keep
    for executor in made:
        executor.destroy()


@pytest.mark.parametrize("reduction", ["Mean", "Sum"])
@pytest.mark.parametrize("accumulation, replicas", [(1, 1), (3, 1), (1, 2), (3, 2)])
def test_gradients_of_a_step_are_combined(poptorch, free, reduction, accumulation, replicas):
    parts = accumulation * replicas
    x, y = rows_for_squares(2 * 2 * parts)
    module = Calling(squares)
    reference = copy.deepcopy(module)
    kind = poptorch.ReductionType[reduction]
    model = free(trainer(poptorch, module, 0.1, iterations=2, accumulation=accumulation,
                         replicas=replicas, reduction=kind))  # fmt: skip
    model(x, y)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    micro = [(x[i : i + 2], y[i : i + 2]) for i in range(0, len(x), 2)]
    for step in (micro[:parts], micro[parts:]):
        optimizer.zero_grad()
        for part in step:
            (squares(reference, *part)[1] / (parts if reduction == "Mean" else 1)).backward()
        optimizer.step()
    torch.testing.assert_close(module.weight.detach(), reference.weight.detach())


def test_training_returns_the_last_micro_batch_and_inference_all(poptorch, free):
    x, y = rows_for_squares(8)
    model = free(trainer(poptorch, Calling(squares), lr=0.0, iterations=2, accumulation=2))
    out, loss = model(x, y)
    expected = squares(Calling(squares), x[6:], y[6:])
    assert torch.equal(out, expected[0]) and torch.equal(loss, expected[1])
    model.detachFromDevice()
    model = free(poptorch.inferenceModel(Calling(squares), options_for(poptorch, iterations=4)))
    out, loss = model(x, y)
    torch.testing.assert_close(out, x @ Calling(squares).weight.detach())
    assert loss.shape == (4,)


def test_output_modes(poptorch, free):
    x = torch.arange(12.0)[:, None]
    Mode = poptorch.OutputMode

    def rows(*mode, replicas=1):
        options = options_for(poptorch, iterations=6 // replicas, replicas=replicas, mode=mode)
        model = poptorch.inferenceModel(Calling(lambda m, x: x * 1), options)
        out = model(x)[:, 0].tolist()
        model.destroy()
        return out

    assert rows(Mode.All) == list(range(12))
    assert rows(Mode.Final) == [10, 11]
    assert rows(Mode.Final, replicas=2) == [8, 9, 10, 11]
    assert rows(Mode.EveryN, 2) == [2, 3, 6, 7, 10, 11]
    with pytest.raises(poptorch.Error, match="must divide"):
        rows(Mode.EveryN, 4)
    assert rows(Mode.Sum) == [0 + 2 + 4 + 6 + 8 + 10, 1 + 3 + 5 + 7 + 9 + 11]


def test_dimension_0_must_divide(poptorch, free):
    model = free(trainer(poptorch, Calling(squares), iterations=2, accumulation=2))
    with pytest.raises(poptorch.Error, match="multiple of .* = 4"):
        model(*rows_for_squares(6))
    model(*rows_for_squares(4))


def test_a_tensor_without_dimensions_goes_to_all(poptorch, free):
    model = free(poptorch.inferenceModel(Calling(lambda m, x, s: x * s), options_for(poptorch, 4)))
    assert torch.equal(model(torch.ones(4), torch.tensor(3.0)), torch.full((4,), 3.0))


def test_replicas_of_a_group_share_their_input(poptorch, free):
    options = options_for(poptorch, replicas=4)
    options.inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    model = free(poptorch.inferenceModel(Calling(lambda m, x: x * 1), options))
    assert model(torch.tensor([1.0, 2.0])).tolist() == [1, 1, 2, 2]
    model.destroy()
    options = options_for(poptorch, replicas=4)
    options.inputReplicaGrouping(2, poptorch.CommGroupType.Orthogonal)
    model = free(poptorch.inferenceModel(Calling(lambda m, x: x * 1), options))
    assert model(torch.tensor([1.0, 2.0])).tolist() == [1, 2, 1, 2]
    with pytest.raises(poptorch.Error, match="inputReplicaGrouping"):
        options = options_for(poptorch, replicas=4)
        options.inputReplicaGrouping(3, poptorch.CommGroupType.Consecutive)
        poptorch.inferenceModel(Calling(squares), options)


def test_outputs_keep_their_structure_in_32_bits(poptorch, free):
    def forward(m, pair):
        return {"sum": Pair(pair.left + 1, [pair.right.double()]), "name": "kept"}

    model = free(poptorch.inferenceModel(Calling(forward)))
    out = model(Pair(torch.tensor([1, 2]), torch.tensor([0.5])))
    assert out["name"] == "kept" and isinstance(out["sum"], Pair)
    assert out["sum"].left.dtype == torch.int32 and out["sum"].right[0].dtype == torch.float32


def test_values_are_narrowed_to_32_bits(poptorch, free):
    model = free(poptorch.inferenceModel(Calling(lambda m, i, x: (i < 10, x > 1))))
    whole, real = torch.tensor([2**32 + 5]), torch.tensor([1 + 2**-40], dtype=torch.double)
    assert [t.item() for t in model(whole, real)] == [True, False]


def test_inputs_are_made_contiguous(poptorch, free):
    model = free(poptorch.inferenceModel(Calling(lambda m, x: x.view(-1))))
    assert model(torch.arange(4).view(2, 2).t()).tolist() == [0, 2, 1, 3]


def test_later_calls_must_be_like_the_compiled_one(poptorch, free):
    model = free(poptorch.inferenceModel(Calling(lambda m, x, k, t: x * k + t[0])))
    x = torch.ones(2)
    assert model(x, 3, (x,)).tolist() == [4, 4]
    for arguments, message in [
        ((torch.ones(4), 3, (x,)), "Shape mismatch"),
        ((x.double(), 3, (x,)), "Data type mismatch"),
        ((x, 4, (x,)), "Value mismatch .* 3 .* 4"),
        ((x, 3.0, (x,)), "Type mismatch"),
        ((x, 3, (x, x)), "Length mismatch"),
        ((x, 3, [x]), "Type mismatch"),
        ((x, 3), "Length mismatch"),
    ]:
        with pytest.raises(poptorch.Error, match=message):
            model(*arguments)
    assert model(2 * x, 3, (x,)).tolist() == [7, 7]
    model.destroy()
    assert model(torch.ones(4), 4, (torch.ones(4),)).tolist() == [5, 5, 5, 5]


def test_arguments_must_fit_forward(poptorch, free):
    module = torch.nn.Bilinear(3, 2, 1)
    model = free(poptorch.inferenceModel(module))
    x, y = rows_for_squares(2)
    with pytest.raises(poptorch.Error, match="don't fit"):
        model(x)
    assert torch.equal(model(input2=y, input1=x), module(x, y).detach())


def test_inputs_must_not_require_gradients(poptorch, free):
    model = free(poptorch.inferenceModel(Calling(lambda m, x: x * 1)))
    with pytest.raises(poptorch.Error, match="requires_grad"):
        model(torch.ones(2, requires_grad=True))


def test_inputs_are_left_alone(poptorch, free):
    model = free(poptorch.inferenceModel(Calling(lambda m, x: x.add_(1))))
    x = torch.ones(2)
    assert model(x).tolist() == [2, 2] and x.tolist() == [1, 1]


def test_backward_on_an_output_is_refused(poptorch, free):
    model = free(trainer(poptorch, Calling(squares)))
    with pytest.raises(poptorch.Error, match="backward"):
        model(*rows_for_squares(2))[1].backward()


def test_what_python_saw_at_compilation_stays(poptorch, free):
    def forward(m, x):
        m.calls += 1
        return F.dropout(torch.ones_like(x), 0.5, m.training) * m.calls

    module = Calling(forward).eval()
    module.calls = 0
    model = free(poptorch.inferenceModel(module))
    assert model(torch.ones(64)).eq(1).all()
    module.train()
    module.calls = 7
    assert model(torch.ones(64)).eq(1).all()


def test_random_numbers_are_the_devices_own(poptorch, free):
    options = poptorch.Options().randomSeed(5)
    model = free(poptorch.inferenceModel(Calling(lambda m, x: F.dropout(x, 0.5)), options))
    x = torch.ones(64)
    torch.manual_seed(1)
    first, state = model(x), model.rng_state
    second = model(x)
    assert torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(1))
    assert not torch.equal(first, second)
    model.rng_state = state
    assert torch.equal(model(x), second)


def test_it_runs_on_an_ipu_only_while_it_is_traced(poptorch, free):
    seen = []
    model = free(poptorch.inferenceModel(Calling(lambda m, x: [seen.append(on()), x][1])))
    on = poptorch.isRunningOnIpu
    model(torch.ones(1))
    assert set(seen) == {True} and on() is False
