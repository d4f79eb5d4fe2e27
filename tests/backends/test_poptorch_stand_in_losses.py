"""Which losses the stand-in of PopTorch trains on."""

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


def test_a_loss_that_torch_knows_is_a_loss(poptorch):
    def forward(m, x, i):
        return F.cross_entropy(x @ m.weight, i % 2)

    loss, module = train_once(poptorch, forward, X, I)
    reference = Calling(forward)
    expected = reference(X, I)
    expected.backward()
    assert torch.equal(loss, expected.detach())
    assert torch.equal(module.weight.detach(), (reference.weight - reference.weight.grad).detach())


LOSSES = {
    "l1_loss": lambda z, t, i: F.l1_loss(z, t),
    "mse_loss": lambda z, t, i: F.mse_loss(z, t),
    "smooth_l1_loss": lambda z, t, i: F.smooth_l1_loss(z, t),
    "cross_entropy": lambda z, t, i: F.cross_entropy(z, i % 2),
    "nll_loss": lambda z, t, i: F.nll_loss(z.log_softmax(1), i % 2),
    "bce": lambda z, t, i: F.binary_cross_entropy(z.sigmoid(), t.sigmoid()),
    "bce_with_logits": lambda z, t, i: F.binary_cross_entropy_with_logits(z, t.sigmoid()),
    "kl_div": lambda z, t, i: F.kl_div(z.log_softmax(1), t.softmax(1), reduction="sum"),
    "poisson_nll_loss": lambda z, t, i: F.poisson_nll_loss(z, t.exp()),
    "hinge_embedding_loss": lambda z, t, i: F.hinge_embedding_loss(z, t.sign()),
    "soft_margin_loss": lambda z, t, i: F.soft_margin_loss(z, t.sign()),
    "cosine_embedding_loss": lambda z, t, i: F.cosine_embedding_loss(z, t, t[:, 0].sign()),
    "margin_ranking_loss": lambda z, t, i: F.margin_ranking_loss(
        z[:, 0], z[:, 1], torch.ones(4), 5.0
    ),
    "triplet_margin_loss": lambda z, t, i: F.triplet_margin_loss(z, t, t + 1),
    "aten.mse_loss": lambda z, t, i: ops.mse_loss.default(z, t),
    "aten.nll_loss_forward": lambda z, t, i: ops.nll_loss_forward.default(z, i % 2, None, 1, -100)[
        0
    ],
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_known_by_themselves(poptorch, name):
    def forward(m, x, i):
        return LOSSES[name](x @ m.weight, x[:, 1:], i)

    got, module = train_once(poptorch, forward, X, I)
    expected = Calling(forward)(X, I).detach()
    torch.testing.assert_close(got, expected)
    assert not torch.equal(module.weight, Calling(forward).weight)


def test_ctc_needs_a_reduction(poptorch):
    def forward(m, x, i):
        z = (x @ m.weight)[:, None].log_softmax(2)
        return F.ctc_loss(z, torch.ones(1, 1).long(), i[3:] + 3, i[3:], reduction="none")

    with pytest.raises(poptorch.Error, match="ctc_loss"):
        train_once(poptorch, forward, X, I)


def _terms(m, x, i):
    return F.mse_loss(x @ m.weight, x[:, :2]), F.cross_entropy(x @ m.weight, i % 2)


def test_one_final_loss_joins_its_terms(poptorch):
    train_once(poptorch, lambda m, x, i: poptorch.identity_loss(sum(_terms(m, x, i)), "none"), X, I)
    with pytest.raises(poptorch.Error, match="Multiple independent losses found"):
        train_once(poptorch, lambda m, x, i: sum(_terms(m, x, i)), X, I)
    with pytest.raises(poptorch.Error, match="Couldn't find a loss in graph!"):
        train_once(poptorch, lambda m, x, i: (x @ m.weight).sum(), X, I)


def test_a_metric_that_is_a_loss_function_is_another_loss(poptorch):
    def forward(m, x, i):
        with torch.no_grad():
            metric = F.l1_loss(x @ m.weight, x[:, :2])
        return metric, poptorch.identity_loss((x @ m.weight).square(), "mean")

    with pytest.raises(poptorch.Error, match="Multiple independent losses found"):
        train_once(poptorch, forward, X, I)


def test_training_starts_from_the_loss_and_not_from_what_becomes_of_it(poptorch):
    plain = train_once(poptorch, lambda m, x: F.mse_loss(x @ m.weight, x[:, :2]), X)
    scaled = train_once(poptorch, lambda m, x: 9 * F.mse_loss(x @ m.weight, x[:, :2]), X)
    assert torch.equal(scaled[1].weight, plain[1].weight)
    torch.testing.assert_close(scaled[0], 9 * plain[0])


def test_a_loss_must_depend_on_a_weight(poptorch):
    with pytest.raises(poptorch.Error, match="depends on no parameter"):
        train_once(poptorch, lambda m, x: poptorch.identity_loss(x, "sum"), X)


def test_class_weights_are_refused(poptorch):
    def forward(m, x, i):
        return F.cross_entropy(x @ m.weight, i % 2, weight=m.classes)

    with pytest.raises(poptorch.Error, match="class weights"):
        train_once(poptorch, forward, X, I, classes=torch.ones(2))
