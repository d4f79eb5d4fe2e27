"""The table of PopTorch's operators, and what is said of their arguments."""

from __future__ import annotations

import pytest
import torch

from zoo.backends.ipu import rules


def said(operator, **arguments):
    return [(v.kind, v.error) for v in rules.judge(operator, arguments)]


def test_the_table_holds_names_with_their_overloads_in_torch_2_0():
    known = rules.operators()
    assert len(known) > 280
    assert {"scatter_add", "index_select", "linear", "softplus"} <= known.keys()
    assert not {"index_add", "nonzero", "unique", "isfinite"} & known.keys()
    assert "where.self" in known["where"] and "add_.Tensor" in known["add"]
    assert not any(name.endswith((".out", "_out")) for names in known.values() for name in names)


@pytest.mark.parametrize(
    ("operator", "name"),
    [
        ("add_.Tensor", "add"),
        ("copy_.default", "copy_"),
        ("__and__.Tensor", "__and__"),
        ("_to_copy.default", "to"),
        ("zero_.default", "zeros_like"),
        ("index_put_.default", "index_put"),
        ("_index_put_impl_.default", "index_put"),
    ],
)
def test_names_are_as_the_table_has_them(operator, name):
    assert rules.base_name(operator) == name


def test_operators_of_another_torch_are_known():
    assert rules.in_torch_2_0("softplus.default") and rules.in_torch_2_0("add_.Tensor")
    assert not rules.in_torch_2_0("softplus.of_tomorrow")


X, MASK, IDS = torch.ones(4, 3), torch.ones(4, dtype=torch.bool), torch.zeros(4, dtype=torch.int64)


def test_reading_and_writing_by_index():
    assert said("index.Tensor", self=X, indices=[MASK]) == [("data-dependent-shape", True)]
    assert said("index.Tensor", self=X, indices=[IDS]) == []
    uneven = [IDS.unsqueeze(1), IDS[:3]]
    assert said("index.Tensor", self=X, indices=uneven) == [("constrained-operator", True)]
    put = {"self": X, "values": torch.tensor(1.0)}
    assert said("index_put_.default", **put, indices=[MASK], accumulate=False) == []
    assert said("index_put.default", **put, indices=[IDS], accumulate=True) == [
        ("index-put-accumulate", True)
    ]
    packed = {"self": X, "values": torch.ones(2, 3)}
    assert said("index_put.default", **packed, indices=[MASK]) == [("data-dependent-shape", True)]


@pytest.mark.parametrize(
    ("operator", "good", "bad"),
    [
        ("bincount.default", {"minlength": 3}, {"minlength": 0}),
        ("one_hot.default", {"num_classes": 4}, {"num_classes": -1}),
        ("topk.default", {"sorted": True}, {"sorted": False}),
        ("embedding.default", {"sparse": False}, {"sparse": True}),
        ("scatter_reduce.two", {"reduce": "amax"}, {"reduce": "median"}),
        ("gelu.default", {"approximate": "tanh"}, {"approximate": "sigmoid"}),
        ("cross_entropy_loss.default", {"weight": None}, {"weight": X}),
        ("lstm.input", {"num_layers": 1}, {"num_layers": 2}),
        ("bitwise_and.Tensor", {"self": IDS}, {"self": IDS.to(torch.uint8)}),
        ("slice.Tensor", {"self": X, "dim": 0, "end": 2}, {"self": X, "dim": 0, "end": 0}),
        ("slice.Tensor", {"self": X, "start": -2}, {"self": X, "start": 2, "end": -2}),
        (
            "gather.default",
            {"self": X, "dim": 0, "index": IDS.unsqueeze(1).expand(4, 3)},
            {"self": X, "dim": 0, "index": torch.zeros(4, 5, dtype=torch.int64)},
        ),
        ("repeat_interleave.self_int", {"repeats": 2}, {"repeats": IDS}),
    ],
)
def test_arguments_are_looked_at(operator, good, bad):
    assert not any(error for kind, error in said(operator, **good) if kind != "missing-operator")
    assert any(error for _, error in said(operator, **bad))


def test_wide_values_are_told_by_value():
    def kind(value):
        found = rules.narrowing(value)
        return found and (found.kind, found.error)

    assert kind(torch.tensor([2**31 - 1])) is None
    assert kind(torch.tensor([2**31])) == ("wide-value", True)
    assert kind(torch.tensor([-(2**31) - 1])) == ("wide-value", True)
    assert kind(torch.tensor([1e39], dtype=torch.float64)) == ("wide-value", True)
    assert kind(torch.tensor([float("inf"), 1.0], dtype=torch.float64)) == ("dtype", False)
    assert kind(torch.tensor([1.0])) is None
    assert kind(torch.zeros(0, dtype=torch.int64)) is None
    assert kind(torch.ones(2, dtype=torch.complex64)) == ("dtype", True)
