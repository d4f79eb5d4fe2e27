"""What is wrong with the arguments shows in the result or raises; nothing reads beyond an array."""

import pytest
import torch
from edge_lists import complete, directed
from torch.testing import assert_close

from zoo.ops import cfconv  # noqa: F401  (registers the ops)
from zoo.ops.dispatch import REFERENCES

CUTOFF, KNOTS, FEATURES = 5.0, 6, 3
OPS = ("cfconv", "cfconv_filters", "cfconv_pairs")


def arguments(op: str, case, *, distance=None, graph=None, order=0, symmetric=None):
    """x or (grad, x), table, ... of one op, drawn by a fixed seed."""
    random = torch.Generator().manual_seed(0)
    shapes = ((case.nodes, FEATURES), (case.nodes, FEATURES), (KNOTS, 2, FEATURES))
    x, grad, table = (torch.randn(s, generator=random, dtype=torch.float64) for s in shapes)
    distance = case.distance if distance is None else distance
    symmetric = case.symmetric if symmetric is None else symmetric
    rest = (*(graph or case.graph), CUTOFF, order, symmetric)
    return {
        "cfconv": [x, table, distance, None, *rest, False],
        "cfconv_filters": [grad, x, distance, None, *rest, KNOTS],
        "cfconv_pairs": [grad, x, table, distance, *rest],
    }[op]


def call(op: str, *args):
    return getattr(torch.ops.zoo, op)(*args)


@pytest.mark.parametrize("case", [complete([4, 3, 5, 4, 2, 3, 3]), directed(nodes=9, edges=30)])
@pytest.mark.parametrize("op", OPS)
def test_a_nan_distance_shows(case, op):
    # one pair of nodes, so that a symmetric graph stays symmetric
    hit = torch.nonzero(case.pair == case.pair[0]).flatten()
    distance = case.distance.clone()
    distance[hit] = torch.nan
    args = arguments(op, case, distance=distance)
    out, expected = call(op, *args), REFERENCES[f"zoo::{op}"](*args)
    assert_close(out, expected, equal_nan=True)
    bad = {
        "cfconv": torch.isin(torch.arange(case.nodes), case.dst[hit]),
        "cfconv_filters": torch.arange(KNOTS) < 2,  # counted to the first interval
        "cfconv_pairs": torch.isin(torch.arange(len(distance)), hit),
    }[op]
    rows = out.flatten(1) if out.dim() > 1 else out.unsqueeze(1)
    assert rows[bad].isnan().all() and rows[~bad].isfinite().all()


@pytest.mark.parametrize("value", [-0.3, -1e30, -torch.inf, torch.inf, 1e300])
@pytest.mark.parametrize("op", OPS)
def test_impossible_distances_stay_within_the_table(op, value):
    case = directed(nodes=9, edges=30)
    distance = case.distance.clone()
    distance[4] = value
    args = arguments(op, case, distance=distance)
    out, expected = call(op, *args), REFERENCES[f"zoo::{op}"](*args)
    assert_close(out.nan_to_num(), expected.nan_to_num())
    assert out.isfinite().all() == (value != -torch.inf)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nan_features_and_tables_show(dtype):
    case = complete([4, 3, 5, 4, 2, 3, 3])
    for spoilt in (0, 1):
        args = arguments("cfconv", case, distance=case.distance.clamp(max=4.9).to(dtype))
        args[:2] = (t.to(dtype) for t in args[:2])
        args[spoilt].view(-1)[0] = torch.nan
        assert call("cfconv", *args)[:, 0].isnan().any()


@pytest.mark.parametrize("which", range(5), ids=["src", "dst", "dst_ptr", "src_ptr", "src_perm"])
@pytest.mark.parametrize("bad", [-1, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("op", OPS)
def test_ids_out_of_range(op, which, bad):
    case = directed(nodes=9, edges=30)
    graph = [t.clone() for t in case.graph]
    graph[which][5] = bad
    with pytest.raises(IndexError, match="names a node outside|don't fit"):
        call(op, *arguments(op, case, graph=graph))


def test_the_first_id_too_many_and_pointers_that_fall():
    case = directed(nodes=9, edges=30)
    for which, value in ((0, case.nodes), (1, case.nodes), (4, len(case.distance))):
        graph = [t.clone() for t in case.graph]
        graph[which][0] = value
        with pytest.raises(IndexError):
            call("cfconv", *arguments("cfconv", case, graph=graph))
    for which in (2, 3):
        graph = [t.clone() for t in case.graph]
        graph[which][4] = graph[which][3] - 1
        with pytest.raises(IndexError):
            call("cfconv", *arguments("cfconv", case, graph=graph))


def test_a_checked_graph_that_is_then_spoilt():
    case = directed(nodes=9, edges=30)
    graph = [t.clone() for t in case.graph]
    call("cfconv", *arguments("cfconv", case, graph=graph))
    graph[0][0] = 1000
    with pytest.raises(IndexError):
        call("cfconv", *arguments("cfconv", case, graph=graph))
    with torch.inference_mode():
        graph = [t.clone() for t in case.graph]
        call("cfconv", *arguments("cfconv", case, graph=graph))
        graph[0][0] = 1000
        with pytest.raises(IndexError):
            call("cfconv", *arguments("cfconv", case, graph=graph))


@pytest.mark.parametrize("op", OPS)
def test_padding_ids_may_be_anything(op):
    case = directed(nodes=9, edges=30)
    graph = [t.clone() for t in case.graph]
    for which in (0, 1, 4):
        graph[which][case.count :] = 2**31 - 1
    expected = call(op, *arguments(op, case))
    assert torch.equal(call(op, *arguments(op, case, graph=graph)), expected)


@pytest.mark.parametrize("op", OPS)
def test_shapes_that_do_not_fit(op):
    case = directed(nodes=9, edges=30)
    good = arguments(op, case)
    for position, value in enumerate(good):
        if not isinstance(value, torch.Tensor):
            continue
        args = list(good)
        # one row fewer, as a slip would have it; a table of one knot has no interval
        args[position] = value[:1] if value.dim() == 3 else value[:-1]
        with pytest.raises((ValueError, IndexError)):
            call(op, *args)
        if value.dim() > 1:
            args[position] = value[..., :-1]
            with pytest.raises(ValueError, match=r"node features|the table is"):
                call(op, *args)
        if value.is_floating_point():
            args[position] = value.float()
            with pytest.raises(ValueError, match="mixed precisions"):
                call(op, *args)


def test_too_few_knots():
    args = arguments("cfconv_filters", directed(nodes=9, edges=30))
    with pytest.raises(ValueError, match="at least 2 knots"):
        call("cfconv_filters", *args[:-1], 1)
