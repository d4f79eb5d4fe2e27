"""How far filters from a table are from those of the network: the figures in FilterBank's text."""

import pytest
import torch

from zoo import hub, registry
from zoo.artifact import read_weights
from zoo.models.schnet import SchNet, SchNetArguments
from zoo.ops.cfconv_reference import cfconv


def interpolation_error(model: SchNet, *, knots: int, points: int = 5001) -> tuple[float, float]:
    """Largest and root mean square error of any layer, in units of its filters' spread (the
    standard deviation over features and distances from 0.8 Å on).
    """
    arguments = model.arguments.model_copy(update={"knots": knots})
    other = SchNet(arguments=arguments).double()
    other.load_state_dict(model.state_dict())
    distance = torch.linspace(0, arguments.cutoff, points, dtype=torch.float64)
    # one node that every edge leads to another one from: each row of the result is a filter
    count = torch.arange(points + 2, dtype=torch.int32).clamp(max=points)
    one = torch.ones(points + 1, arguments.features, dtype=torch.float64)
    ends = torch.full((points,), points, dtype=torch.int32), torch.arange(points)
    largest = mean = 0.0
    with torch.no_grad():
        direct, tables = other.filters(distance), other.filters.table()
        for exact, table in zip(direct, tables, strict=True):
            graph = (*ends, count, count, count)
            rest = (arguments.cutoff, 0, False, False)
            values = cfconv(one, table, distance, None, *graph, *rest)[:points]
            spread = float(exact[distance > 0.8].std())
            error = (values - exact).abs() / spread
            largest = max(largest, float(error.max()))
            mean = max(mean, float((error**2).mean().sqrt()))
    return largest, mean


def test_error_at_initialisation():
    torch.manual_seed(0)
    model = SchNet(arguments=SchNetArguments())
    assert model.arguments.knots == 256
    largest, mean = interpolation_error(model, knots=256)
    assert 1e-5 < largest < 1e-4 and mean < 1e-5


def test_error_falls_with_the_fourth_power_of_the_knots():
    torch.manual_seed(0)
    model = SchNet(arguments=SchNetArguments(features=16, interactions=2))
    coarse, fine = (interpolation_error(model, knots=k)[1] for k in (129, 257))
    assert coarse / fine > 12  # 16, less what float32 constants leave behind


def shipped() -> list[str]:
    """Names of SchNet entries whose weights are published."""
    return [
        f"{name}.{tag}"
        for name, entry in registry.entries().items()
        for tag, facts in entry.tags.items()
        if facts.weights and registry.card(f"{name}.{tag}").architecture == "schnet"
    ]


@pytest.mark.published
def test_error_of_shipped_weights():
    names = shipped()
    if not names:
        pytest.skip("no SchNet weights are shipped yet")
    for name in names:
        entry, tag = registry.resolve(name)
        spec, tensors = read_weights(hub.locate(weights=entry.tags[tag].weights))
        model = SchNet(arguments=SchNetArguments(**spec.arguments))
        model.load_state_dict(tensors)
        largest, mean = interpolation_error(model, knots=model.arguments.knots)
        assert largest < 5e-4 and mean < 5e-5, name
