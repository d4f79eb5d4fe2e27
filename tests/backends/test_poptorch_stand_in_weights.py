"""Weights, devices and files of the stand-in of PopTorch."""

from __future__ import annotations

import copy
import pickle

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


def test_weights_stay_on_the_device_until_they_are_read(poptorch, free):
    module = Calling(squares, seen=torch.zeros(1))
    early, before = module.weight.detach(), module.weight.detach().clone()
    model = free(trainer(poptorch, module))
    model(*rows_for_squares(2))
    assert torch.equal(early, before)  # taken out before the call: stale
    assert not torch.equal(module.weight, before)  # reading pulls
    assert torch.equal(early, module.weight)
    model(*rows_for_squares(2))
    last = early.clone()
    model.copyWeightsToHost()
    assert not torch.equal(early, last)


@pytest.mark.parametrize(
    "read",
    [
        lambda m: m.state_dict()["weight"],
        lambda m: next(m.parameters()),
        lambda m: dict(m.named_parameters())["weight"],
        lambda m: copy.deepcopy(m).weight,
        lambda m: torch.Tensor(m.weight.detach().numpy()),
        lambda m: pickle.loads(pickle.dumps(m.weight)),
    ],
)
def test_every_read_through_the_wrapped_model_pulls(poptorch, free, read):
    module = Calling(squares)
    before = module.weight.detach().clone()
    model = free(trainer(poptorch, module))
    model(*rows_for_squares(2))
    assert not torch.equal(read(module), before)


def test_a_weight_in_hand_pulls_too(poptorch, free):
    module = Calling(squares, seen=torch.zeros(3, 2))
    weight, before = module.weight, module.weight.detach().clone()
    model = free(trainer(poptorch, module))
    model(*rows_for_squares(2))
    assert not torch.equal(weight, before)


def test_a_buffer_pulls_too(poptorch, free):
    def forward(m, x, y):
        m.seen.add_(1)
        return squares(m, x, y)[1]

    module = Calling(forward, seen=torch.zeros(1))
    model = free(trainer(poptorch, module))
    for read in (lambda b: b.item(), lambda b: copy.deepcopy(b).item(), float):
        before = read(module.seen)
        model(*rows_for_squares(2))
        assert read(module.seen) == before + 1


def test_buffers_must_be_plain_tensors(poptorch):
    module = Calling(squares)
    module.register_buffer("odd", torch.nn.Parameter(torch.zeros(1)))
    with pytest.raises(poptorch.Error, match="All buffers must be"):
        trainer(poptorch, module)


def test_named_buffers_can_be_updated(poptorch, free):
    options = poptorch.Options().updatableNamedBuffers(["scale"])
    module = Calling(lambda m, x: x * m.scale + m.shift, scale=torch.ones(1), shift=torch.zeros(1))
    model = free(poptorch.inferenceModel(module, options))
    assert model(torch.ones(1)).item() == 1
    module.scale.fill_(2)
    module.shift.fill_(5)
    model.copyNamedBuffersToDevice()
    assert model(torch.ones(1)).item() == 2


def test_the_host_reaches_the_device_by_a_copy_only(poptorch, free):
    module = Calling(squares)
    model = free(trainer(poptorch, module, lr=0.0))
    x, y = rows_for_squares(2)
    first = model(x, y)[0]
    with torch.no_grad():
        module.weight.zero_()
    assert torch.equal(model(x, y)[0], first)
    with torch.no_grad():
        module.weight.zero_()
    model.copyWeightsToDevice()
    assert not model(x, y)[0].any()
    model.load_state_dict(Calling(squares).state_dict())
    assert torch.equal(model(x, y)[0], first)


def test_the_module_is_its_own_again_after_destroy(poptorch):
    module = Calling(squares)
    model = trainer(poptorch, module)
    model(*rows_for_squares(2))
    with pytest.raises(poptorch.Error, match="already been wrapped"):
        trainer(poptorch, module)
    assert type(module).__name__ == "PoptorchCalling"
    model.destroy()
    assert type(module) is Calling and type(module.weight) is torch.nn.Parameter
    with pytest.raises(poptorch.Error, match="not been compiled"):
        model.copyWeightsToHost()
    trainer(poptorch, module)(*rows_for_squares(2))


def test_one_executor_holds_the_device(poptorch, free):
    module = Calling(squares)
    training = free(trainer(poptorch, module))
    inference = free(poptorch.inferenceModel(module))
    x, y = rows_for_squares(2)
    training(x, y)
    with pytest.raises(poptorch.Error, match="detachFromDevice"):
        inference(x, y)
    stale = module.weight.detach()
    training(x, y)
    before = stale.clone()
    training.detachFromDevice()
    assert not torch.equal(stale, before)  # detaching pulls
    with pytest.raises(poptorch.Error, match="not attached"):
        training.detachFromDevice()
    for _ in range(2):
        assert torch.equal(inference(x, y)[0], x @ module.weight.detach())  # follows the training
        inference.detachFromDevice()
        training.attachToDevice()
        before = module.weight.detach().clone()
        training(x, y)
        training.detachFromDevice()
        assert not torch.equal(module.weight, before)
        inference.attachToDevice()


def test_inference_takes_no_gradient_accumulation(poptorch):
    with pytest.raises(poptorch.Error, match="gradientAccumulation"):
        poptorch.inferenceModel(Calling(squares), options_for(poptorch, accumulation=2))


def test_replicas_keep_buffers_of_their_own_if_told_to(poptorch, free):
    def forward(m, x):
        return m.seen.add_(x.sum()) * 1

    def run(broadcast):
        options = options_for(poptorch, replicas=2)
        options.broadcastBuffers(broadcast)
        model = free(poptorch.inferenceModel(Calling(forward, seen=torch.zeros(1)), options))
        model(torch.tensor([1.0, 2.0]))
        out = model(torch.tensor([1.0, 2.0]))
        model.destroy()
        return out

    assert run(False).tolist() == [2, 4]
    with pytest.raises(poptorch.Error, match="broadcastBuffers"):
        run(True)


class Tiny(torch.nn.Module):
    """A model that a pickle can hold."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x, y):
        return F.mse_loss(self.layer(x), y)


def test_offline_compilation_and_a_run_elsewhere(poptorch, free, tmp_path):
    torch.manual_seed(0)
    options = poptorch.Options().useOfflineIpuTarget()
    module = Tiny()
    weights = copy.deepcopy(module.state_dict())
    model = poptorch.trainingModel(module, options, poptorch.optim.Adam(module.parameters(), 0.1))
    with pytest.raises(AssertionError, match="offline"):
        model(*rows_for_squares(2))
    assert not model.isCompiled()
    model.compileAndExport(str(tmp_path / "new" / "model.poptorch"), *rows_for_squares(2))
    assert not model.isAttachedToDevice()
    with pytest.raises(AssertionError, match="offline"):
        model(*rows_for_squares(2))
    model.destroy()
    loaded = free(poptorch.load(str(tmp_path / "new" / "model.poptorch")))
    assert loaded.isCompiled() and loaded.model.state_dict().keys() == weights.keys()
    loss = loaded(*rows_for_squares(2))
    reference = Tiny()
    reference.load_state_dict(weights)
    assert torch.equal(loss, reference(*rows_for_squares(2)).detach())
    with pytest.raises(poptorch.Error, match="Shape mismatch"):
        loaded(*rows_for_squares(4))


def test_a_loaded_model_goes_on(poptorch, free, tmp_path):
    path = str(tmp_path / "model")
    model = free(poptorch.inferenceModel(torch.nn.Dropout(0.5).train()))
    x = torch.ones(64)
    model(x)
    model.save(path)
    expected = model(x)
    model.destroy()
    loaded = free(poptorch.load(path, lambda options: options.modelName("again")))
    assert torch.equal(loaded(x), expected)
    assert loaded.options.model_name == "again"
    loaded.destroy()
    module = torch.nn.Sequential(torch.nn.Linear(64, 64))
    with pytest.raises(poptorch.Error, match="other kind of model"):
        poptorch.trainingModel(module).loadExecutable(path)
    content = pickle.loads((tmp_path / "model").read_bytes())
    (tmp_path / "model").write_bytes(pickle.dumps({**content, "version": "3.3.0"}))
    with pytest.raises(poptorch.Error, match=r"version 3\.3\.0"):
        poptorch.load(path)


def test_an_executable_without_its_model(poptorch, free, tmp_path):
    path = str(tmp_path / "executable")
    module = Tiny()
    model = free(poptorch.inferenceModel(module))
    model.compileAndExport(path, *rows_for_squares(2), export_model=False)
    model.destroy()
    with pytest.raises(poptorch.Error, match="export_model=False"):
        poptorch.load(path)
    model = free(poptorch.inferenceModel(module))
    model.loadExecutable(path)
    assert model.isCompiled()
    (tmp_path / "executable").write_bytes(b"something else")
    with pytest.raises(poptorch.Error, match="Invalid file"):
        poptorch.load(path)
