"""Optimisers of the stand-in of PopTorch: numbers read once, steps made on the device."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from poptorch_stand_in import Calling, poptorch_stand_in

X = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.0, -0.5]])


@pytest.fixture(scope="module")
def poptorch():
    with poptorch_stand_in() as module:
        yield module


@pytest.fixture
def trained(poptorch):
    """A function: the executor of a new module with an optimiser made by `choose`."""
    made = []

    def train(choose):
        module = Calling(loss).train()
        optimizer = choose(module.parameters())
        made.append(poptorch.trainingModel(module, optimizer=optimizer))
        return made[-1], module, optimizer

    yield train
    for executor in made:
        executor.destroy()


def loss(m, x):
    return F.mse_loss(x @ m.weight, x[:, :2])


def reference(choose, steps=3):
    """The weight after so many steps with an optimiser of torch's."""
    module = Calling(loss)
    optimizer = choose(module.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        loss(module, X).backward()
        optimizer.step()
    return module.weight.detach()


SAME = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "dampening": 0.1},
    "Adam": {"lr": 0.1, "betas": (0.8, 0.95), "weight_decay": 0.01},
    "AdamW": {"lr": 0.1, "eps": 1e-6},
    "RMSprop": {"lr": 0.1, "alpha": 0.9, "momentum": 0.5, "centered": True},
}


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("package", ["torch", "poptorch"])
def test_steps_are_those_of_torch(poptorch, trained, name, package):
    ours = getattr({"torch": torch, "poptorch": poptorch}[package].optim, name)
    model, module, _ = trained(lambda p: ours(p, **SAME[name]))
    for _ in range(3):
        model(X)
    expected = reference(lambda p: getattr(torch.optim, name)(p, **SAME[name]))
    assert torch.equal(module.weight, expected)


def test_the_default_is_sgd_with_a_rate_of_a_hundredth(poptorch):
    module = Calling(loss)
    model = poptorch.trainingModel(module)
    model(X)
    model.destroy()
    assert torch.equal(module.weight, reference(lambda p: torch.optim.SGD(p, lr=0.01), 1))


def test_updates_that_torch_has_not(poptorch, trained):
    """One step from zero moments, by hand: without bias correction m = (1 - b1) g and so on."""
    start, gradient = Calling(loss).weight.detach(), _gradient()
    model, module, _ = trained(lambda p: poptorch.optim.AdamW(p, lr=0.1, bias_correction=False))
    model(X)
    mean, square = 0.1 * gradient, 0.001 * gradient**2
    moved = start * (1 - 0.1 * 0.01) - 0.1 * mean / (square.sqrt() + 1e-8)
    torch.testing.assert_close(module.weight.detach(), moved)
    model.destroy()

    model, module, _ = trained(lambda p: poptorch.optim.LAMB(p, lr=0.1, weight_decay=0.5))
    model(X)
    step = gradient / (gradient.abs() + 1e-8) + 0.5 * start
    moved = start - 0.1 * start.norm() / step.norm() * step
    torch.testing.assert_close(module.weight.detach(), moved)
    model.destroy()

    model, module, _ = trained(lambda p: poptorch.optim.RMSprop(p, lr=0.1, use_tf_variant=True))
    model(X)
    moved = start - 0.1 * gradient / (0.99 + 0.01 * gradient**2 + 1e-8).sqrt()
    torch.testing.assert_close(module.weight.detach(), moved)


def _gradient():
    module = Calling(loss)
    loss(module, X).backward()
    return module.weight.grad


def test_gradients_are_clipped_by_max_grad_norm(poptorch, trained):
    norm = _gradient().norm()
    for limit, length in [(norm / 4, norm / 4), (norm * 4, norm)]:
        model, module, _ = trained(
            lambda p, limit=limit: poptorch.optim.SGD(p, lr=1.0, max_grad_norm=float(limit))
        )
        model(X)
        moved = Calling(loss).weight.detach() - module.weight.detach()
        torch.testing.assert_close(moved.norm(), length)
        model.destroy()


def test_the_rate_changes_through_set_optimizer_only(poptorch, trained):
    model, module, optimizer = trained(lambda p: poptorch.optim.SGD(p, lr=0.1))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.0)
    model(X)
    optimizer.step()  # nothing: no gradient is on the host
    schedule.step()
    after_one = module.weight.detach().clone()
    assert optimizer.param_groups[0]["lr"] == 0.0
    model(X)
    assert not torch.equal(module.weight, after_one)
    after_two = module.weight.detach().clone()
    assert torch.equal(after_two, reference(lambda p: torch.optim.SGD(p, lr=0.1), 2))
    model.setOptimizer(optimizer)
    model(X)
    assert torch.equal(module.weight, after_two)


def test_moments_outlive_a_change_of_the_rate(poptorch, trained):
    model, module, _ = trained(lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9))
    model(X)
    model.setOptimizer(poptorch.optim.SGD(module.parameters(), lr=0.0, momentum=0.9))
    model(X)
    model.setOptimizer(poptorch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9))
    model(X)

    twin = Calling(loss)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    for rate in (0.1, 0.0, 0.1):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss(twin, X).backward()
        optimizer.step()
    assert torch.equal(module.weight, twin.weight)


def test_what_is_given_is_variable_and_the_rest_constant(poptorch, trained):
    given = poptorch.optim.SGD([torch.zeros(1)], lr=0.1, momentum=0.9)
    assert not given.variable_attrs.isConstant("momentum")
    assert given.variable_attrs.isConstant("weight_decay")
    given.variable_attrs.markAsConstant("momentum")
    assert given.variable_attrs.isConstant("momentum")
    with pytest.raises(AssertionError, match="Unknown"):
        given.variable_attrs.isConstant("nothing")

    model, module, _ = trained(lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9))
    model(X)
    sgd, parameters = poptorch.optim.SGD, list(module.parameters())
    model.setOptimizer(sgd(parameters, lr=0.1, momentum=0.5))
    with pytest.raises(poptorch.Error, match="weight_decay of group 0 can't turn"):
        model.setOptimizer(sgd(parameters, lr=0.1, momentum=0.5, weight_decay=0.1))
    with pytest.raises(poptorch.Error, match=r"nesterov of group 0 was compiled in"):
        model.setOptimizer(sgd(parameters, lr=0.1, momentum=0.5, nesterov=True))
    constant = sgd(parameters, lr=0.1, momentum=0.5)
    constant.param_groups[0]["weight_decay"] = 0.1
    with pytest.raises(poptorch.Error, match="weight_decay of group 0 was compiled in"):
        model.setOptimizer(constant)
    with pytest.raises(poptorch.Error, match="can't be replaced"):
        model.setOptimizer(poptorch.optim.Adam(parameters, lr=0.1))


def test_with_an_optimiser_of_torch_defaults_are_constant(poptorch, trained):
    model, module, _ = trained(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    model(X)
    model.setOptimizer(torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.5))
    with pytest.raises(poptorch.Error, match="weight_decay"):
        model.setOptimizer(
            torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.5, weight_decay=0.1)
        )


def test_an_optimiser_may_change_freely_before_compilation(poptorch, trained):
    model, module, _ = trained(lambda p: poptorch.optim.Adam(p, lr=0.1))
    model.setOptimizer(poptorch.optim.SGD(module.parameters(), lr=0.1))
    model(X)
    assert torch.equal(module.weight, reference(lambda p: torch.optim.SGD(p, lr=0.1), 1))


def test_optimisers_that_no_ipu_knows(poptorch):
    for choose, error in [
        (lambda p: torch.optim.Adagrad(p), AssertionError),
        (lambda p: torch.optim.Adam(p, amsgrad=True), ValueError),
    ]:
        module = Calling(loss)
        with pytest.raises(error):
            poptorch.trainingModel(module, optimizer=choose(module.parameters()))
    model = poptorch.trainingModel(
        Calling(loss), optimizer=torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    )
    with pytest.raises(poptorch.Error, match="isn't one of the model's"):
        model(X)


def test_groups_have_numbers_of_their_own(poptorch):
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2), Half(poptorch))
    before = copy.deepcopy(module.state_dict())
    groups = [{"params": module[0].parameters(), "lr": 0.0}, {"params": module[1].parameters()}]
    model = poptorch.trainingModel(module, optimizer=poptorch.optim.SGD(groups, lr=0.1))
    model(X)
    model.destroy()
    changed = [not torch.equal(v, before[n]) for n, v in module.state_dict().items()]
    assert changed == [False, False, True, True]


class Half(torch.nn.Module):
    """Half the sum of squares as the loss."""

    def __init__(self, poptorch):
        super().__init__()
        self.identity_loss = poptorch.identity_loss

    def forward(self, x):
        return self.identity_loss(x.square() / 2, "sum")


def test_a_pickle_keeps_what_only_an_ipu_reads(poptorch, trained):
    choose = lambda p: poptorch.optim.Adam(p, lr=0.1, eps=1e-6, max_grad_norm=2.0)  # noqa: E731
    model, _, optimizer = trained(choose)
    model(X)
    again = pickle.loads(pickle.dumps(optimizer))
    assert again.max_grad_norm == 2.0
    assert not again.variable_attrs.isConstant("eps") and again.variable_attrs.isConstant("betas")


def test_the_state_goes_from_a_device_to_another(poptorch, trained):
    first, module, optimizer = trained(lambda p: poptorch.optim.Adam(p, lr=0.1))
    first(X)
    state = copy.deepcopy(optimizer.state_dict())
    weights = copy.deepcopy(module.state_dict())
    first(X)
    expected = module.weight.detach().clone()
    first.destroy()

    again = Calling(loss)
    again.load_state_dict(weights)
    optimizer = poptorch.optim.Adam(again.parameters(), lr=0.1)
    optimizer.load_state_dict(state)
    second = poptorch.trainingModel(again, optimizer=optimizer)
    second(X)
    second.destroy()
    assert torch.equal(again.weight, expected)

    of_torch = torch.optim.Adam(again.parameters(), lr=0.1).state_dict()
    with pytest.raises(ValueError, match="ipu_state"):
        optimizer.load_state_dict(of_torch)
