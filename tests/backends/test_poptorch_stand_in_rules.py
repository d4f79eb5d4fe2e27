"""The stand-in of PopTorch refuses what an IPU can't run, and computes what it would."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from poptorch_stand_in import Calling, poptorch_stand_in, train_once

ops = torch.ops.aten
X = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.0, -0.5], [-2.0, 1.0, 0.25], [0.75, -0.25, 1.0]])
I = torch.tensor([0, 2, 2, 1])


@pytest.fixture(scope="module")
def poptorch():
    with poptorch_stand_in() as module:
        yield module


def infer(poptorch, function, *args, **buffers):
    """Outputs of a function of a module and of arguments, as an inference model."""
    model = poptorch.inferenceModel(Calling(function, **buffers).eval())
    try:
        return model(*args)
    finally:
        model.destroy()


KEPT = {
    "parts of a composite": lambda m, x, i: F.normalize(x, dim=1),
    "a whole composite": lambda m, x, i: torch.einsum("nf,ng->fg", x, x),
    "one_hot of a number": lambda m, x, i: F.one_hot(i, 3),
    "batch_norm": lambda m, x, i: F.batch_norm(x, None, None, x[0], x[1], True),
    "row gather": lambda m, x, i: x[i],
    "scatter_add": lambda m, x, i: torch.zeros(3, 3).scatter_add(0, i[:, None].expand(4, 3), x),
    "calls of aten": lambda m, x, i: ops.add.Tensor(ops.mm.default(x, m.weight), 1.0),
    "in place": lambda m, x, i: x.clone().mul_(2).fill_(1.0).zero_(),
    "a factory of torch's": lambda m, x, i: x + torch.ones(4, 3),
    "a factory on x's device": lambda m, x, i: x + ops.ones.default([4, 3], device=x.device),
    "a constant": lambda m, x, i: x + torch.tensor([1.0, 2.0, 3.0]),
    "where of three": lambda m, x, i: torch.where(x > 0, x, 0.0),
    "a mask multiplied": lambda m, x, i: x * (x > 0),
    "topk": lambda m, x, i: x.topk(2, dim=1).values,
    "a view of torch.export's": lambda m, x, i: ops.view_copy.default(x, [12]),
    "triu of a constant": lambda m, x, i: x[:3] * torch.ones(3, 3).triu(),
    "layer_norm": lambda m, x, i: F.layer_norm(x, (3,), x[0], x[1]),
    "a cast": lambda m, x, i: i.to(torch.float32),
    "a buffer": lambda m, x, i: x + m.table,
    "attention": lambda m, x, i: F.scaled_dot_product_attention(x[None], x[None], x[None]),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_an_ipu_knows_gives_what_torch_gives(poptorch, name):
    table = torch.ones(3)
    expected = Calling(KEPT[name], table=table)(X.clone(), I)
    got = infer(poptorch, KEPT[name], X, I, table=table)
    assert torch.equal(got, expected.detach().to(got.dtype))


UNSUPPORTED = {
    "index_add": lambda m, x, i: torch.zeros(3, 3).index_add(0, i, x),
    "index_copy": lambda m, x, i: x.index_copy(0, i[:1], x[:1]),
    "repeat_interleave": lambda m, x, i: x.repeat_interleave(2, dim=0),
    "nan_to_num": lambda m, x, i: ops.nan_to_num.default(x),
    "isfinite": lambda m, x, i: torch.isfinite(x),
    "logaddexp": lambda m, x, i: torch.logaddexp(x, x),
    "masked_scatter": lambda m, x, i: x.masked_scatter(x > 0, x),
    "masked_select": lambda m, x, i: torch.masked_select(x, x > 0) + x,  # and then it fails
    "native_dropout": lambda m, x, i: ops.native_dropout.default(x, 0.5, True)[0],
    "tril": lambda m, x, i: x.tril(),
    "triu": lambda m, x, i: x.triu(),
    "triu of what was a constant": lambda m, x, i: torch.ones(4, 3).mul_(x).triu(),
    "take": lambda m, x, i: x.take(i),
    "xlogy": lambda m, x, i: torch.xlogy(x, x),
    "linalg_inv_ex": lambda m, x, i: torch.linalg.inv(x[:3] + torch.ones(3).diag() * 9),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_operator_without_a_lowering_is_named(poptorch, name):
    with pytest.raises(poptorch.Error, match=r"Unsupported ops found in compiled model: \[.*") as e:
        infer(poptorch, UNSUPPORTED[name], X, I)
    assert f"aten::{name.split()[0]}" in str(e.value)


def test_all_operators_without_a_lowering_are_named_at_once(poptorch):
    with pytest.raises(poptorch.Error, match=r"\[aten::tril, aten::xlogy\]"):
        infer(poptorch, lambda m, x: torch.xlogy(x.tril(), x), X)


REFUSED = {
    "a read by a mask": (lambda m, x, i: x[x > 0], "boolean mask"),
    "nonzero": (lambda m, x, i: x.nonzero(), "nonzero"),
    "where of one": (lambda m, x, i: torch.where(x > 0)[0], "where"),
    "item": (lambda m, x, i: x * x.sum().item(), "item"),
    "a branch on data": (lambda m, x, i: x if x.sum() > 0 else -x, "__bool__"),
    "a size from data": (lambda m, x, i: x[: int(i[0])], "__int__"),
    "a range to data": (lambda m, x, i: torch.arange(i[1]), "_local_scalar_dense|item|__index__"),
    "print": (lambda m, x, i: [print(x), x][1], "__repr__|__format__"),
    "numpy": (lambda m, x, i: torch.from_numpy(x.numpy()), "numpy"),
    "cpu": (lambda m, x, i: x.cpu(), "cpu"),
    "to the cpu": (lambda m, x, i: x.to("cpu"), "CPU"),
    "a factory on the cpu": (lambda m, x, i: x + torch.ones(4, 3, device="cpu"), "CPU"),
    "a factory of aten's": (lambda m, x, i: x + ops.ones.default([4, 3]), "CPU"),
    "a tensor that isn't a buffer": (lambda m, x, i: x + X, "CPU"),
    "a gradient in forward": (
        lambda m, x, i: torch.autograd.grad((x @ m.weight).sum(), m.weight)[0],
        "grad inside forward",
    ),
    "backward in forward": (lambda m, x, i: (x @ m.weight).sum().backward(), "backward inside"),
    "one_hot of the data's size": (lambda m, x, i: F.one_hot(i), "num_classes"),
    "bincount of the data's size": (lambda m, x, i: torch.bincount(i), "minlength"),
    "topk unsorted": (lambda m, x, i: x.topk(2, sorted=False)[0], "sorted=False"),
    "an empty slice": (lambda m, x, i: x[:0], "empty"),
    "negative indices": (lambda m, x, i: x[i - 1], "negative"),
    "complex numbers": (lambda m, x, i: x.to(torch.complex64).abs(), "complex"),
    "a nuclear norm": (lambda m, x, i: x.norm("nuc"), "nuclear"),
    "layers of an LSTM": (lambda m, x, i: torch.nn.LSTM(3, 3, 2)(x)[0], "one layer"),
    "as_strided": (lambda m, x, i: x.as_strided((2, 2), (3, 1)), "as_strided"),
    "a norm without weights": (lambda m, x, i: F.layer_norm(x, (3,)), "affine"),
    "uint8 bits": (lambda m, x, i: x.to(torch.uint8) & x.to(torch.uint8), "uint8"),
    "packed values for a mask": (lambda m, x, i: ops.index_put.default(x, [x > 0], i), "broadcast"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_an_ipu_cannot_do_is_refused(poptorch, name):
    function, message = REFUSED[name]
    with pytest.raises(poptorch.Error, match=message):
        infer(poptorch, function, X, I)


def test_a_device_named_ipu_is_the_device(poptorch):
    def forward(m, x):
        assert x.device.type == "ipu"
        return x.to("ipu") + torch.ones(3, device="ipu")

    assert torch.equal(infer(poptorch, forward, X), X + 1)


def test_index_put_overwrites_where_torch_would_accumulate(poptorch):
    def forward(m, i):
        return m.zero.index_put((i,), m.zero[:4] + 1, accumulate=True)

    zero = torch.zeros(5)
    assert Calling(forward, zero=zero)(I).tolist() == [1, 1, 2, 0, 0]
    assert infer(poptorch, forward, I, zero=zero).tolist() == [1, 1, 1, 0, 0]


def test_gradients_of_an_index_put_are_those_of_overwriting(poptorch):
    def forward(m, i):
        rows = m.weight * 1
        rows = rows.index_put((i,), m.zero, accumulate=True)
        return poptorch.identity_loss(rows, "sum")

    index, zero = torch.tensor([0, 1]), torch.zeros(2, 2)
    _, module = train_once(poptorch, forward, index, zero=zero)
    moved = Calling(forward).weight.detach() - module.weight.detach()
    torch.testing.assert_close(moved, torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]))


WRITES = {
    "scatter_add": lambda m, i: m.zero.scatter_add(0, i, m.one),
    "scatter_add_": lambda m, i: m.zero.clone().scatter_add_(0, i, m.one),
    "scatter": lambda m, i: m.zero.scatter(0, i, 1.0),
    "scatter_reduce": lambda m, i: m.zero.scatter_reduce(0, i, m.one, "sum"),
    "aten": lambda m, i: ops.scatter_add.default(m.zero, 0, i, m.one),
    "index_put": lambda m, i: m.zero.index_put((i,), m.one),
    "an assignment": lambda m, i: _assign(m.zero.clone(), i, 1.0),
}


def _assign(x, key, value):
    x[key] = value
    return x


@pytest.mark.parametrize("name", WRITES)
def test_writes_out_of_range_are_dropped(poptorch, name):
    buffers = {"zero": torch.zeros(3), "one": torch.ones(4)}
    inside = infer(poptorch, WRITES[name], torch.tensor([0, 1, 0, 1]), **buffers)
    outside = infer(poptorch, WRITES[name], torch.tensor([0, 7, 3, -2]), **buffers)
    assert inside[2] == 0 and inside[:2].min() > 0
    assert outside.tolist() == [1, 0, 0]


def test_an_assignment_by_a_mask_is_a_where(poptorch):
    rows = torch.tensor([True, False, True, False])

    def forward(m, x, rows):
        x = x.clone()
        x[rows] = 7.0
        return x

    assert torch.equal(infer(poptorch, forward, X, rows), torch.where(rows[:, None], 7.0, X))


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g


def test_a_function_with_a_backward_of_its_own_is_refused(poptorch):
    with pytest.raises(poptorch.Error, match=r"autograd\.Function"):
        train_once(poptorch, lambda m, x: poptorch.identity_loss(Double.apply(m.weight), "sum"), X)
    with pytest.raises(poptorch.Error, match=r"autograd inside forward"):
        train_once(poptorch, lambda m, x: torch.autograd.backward((x @ m.weight).sum()), X)
    assert Double.apply(X).equal(2 * X)  # it works again outside


def test_buffers_change_in_place_only(poptorch):
    def rebind(m, x):
        m.seen = m.seen + 1
        return x * m.seen

    with pytest.raises(poptorch.Error, match=r"Buffer seen is reassigned .* self\.seen\.copy_"):
        infer(poptorch, rebind, X, seen=torch.zeros(1))
    assert infer(poptorch, lambda m, x: x * m.seen.add_(1), X, seen=torch.zeros(1)).equal(X)


def test_only_floating_point_buffers_live_on(poptorch):
    def forward(m, x):
        return x.sum() * 0 + m.real.add_(1), m.whole.add_(1)

    module = Calling(forward, real=torch.zeros(1), whole=torch.zeros(1, dtype=torch.int64))
    model = poptorch.inferenceModel(module)
    calls = [[t.item() for t in model(X)] for _ in range(3)]
    model.copyWeightsToHost()
    model.destroy()
    assert calls == [[1, 1], [2, 1], [3, 1]]
    assert (module.real.item(), module.whole.item()) == (3, 0)


class Counting(torch.nn.BatchNorm1d):
    """Puts a new tensor where its count was, which is let pass."""

    def forward(self, x):
        out = super().forward(x)
        self.num_batches_tracked = self.num_batches_tracked + 1
        return out


def test_a_buffer_may_follow_what_is_trained(poptorch):
    def forward(m, x):
        out = x @ m.weight
        m.mean.mul_(0.5).add_(out.mean())
        return m.mean, F.mse_loss(out - m.mean, x[:, :2])

    module = Calling(forward, mean=torch.zeros(()))
    model = poptorch.trainingModel(module)
    first = model(X)[0]
    kept = first.clone()
    second = model(X)[0]
    model.destroy()
    assert torch.equal(first, kept) and torch.equal(second, module.mean)
    assert not torch.equal(first, second)


def test_float64_is_float32_inside(poptorch):
    def lost(m, x):
        return (x.double() + 2**-40 - x.double()).abs().sum() + (m.fine - 1).abs().sum()

    fine = torch.tensor([1 + 2**-40], dtype=torch.double)
    assert Calling(lost, fine=fine)(torch.ones(1)) > 0
    assert infer(poptorch, lost, torch.ones(1), fine=fine) == 0


@pytest.mark.parametrize("kind", [torch.nn.BatchNorm1d, Counting])
def test_batch_norm_may_count(poptorch, kind):
    norm = kind(3).train()
    model = poptorch.trainingModel(
        torch.nn.Sequential(norm, _Loss(poptorch)),
        optimizer=torch.optim.SGD(norm.parameters(), lr=0.1),
    )
    model(X)
    assert norm.running_mean.abs().sum() > 0
    assert norm.num_batches_tracked == 0  # an integer
    model.destroy()


class _Loss(torch.nn.Module):
    def __init__(self, poptorch):
        super().__init__()
        self.identity_loss = poptorch.identity_loss

    def forward(self, x):
        return self.identity_loss(x.square(), "sum")
