"""Packs side by side: order, errors, and bits that don't depend on the number of threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import tiny

from zoo.files import sha256_file
from zoo.recipes.energy import EnergyTask, open_data
from zoo.training.lanes import lane_map
from zoo.training.loop import train
from zoo.training.progress import Display
from zoo.training.tracking_protocol import NoTracker


@pytest.fixture(autouse=True)
def threads() -> Iterator[int]:
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_results_come_in_order_whatever_takes_longest(count: int) -> None:
    torch.set_num_threads(count)

    def slow_first(item: int) -> int:
        time.sleep(0.02 if item % 3 == 0 else 0.0)
        return item * item

    assert list(lane_map(slow_first, range(12))) == [n * n for n in range(12)]
    assert list(lane_map(slow_first, [])) == []
    assert torch.get_num_threads() == count


def test_lanes_run_at_once_and_have_one_operator_thread() -> None:
    torch.set_num_threads(2)
    meeting = threading.Barrier(2, timeout=10)

    def meet(item: int) -> int:
        meeting.wait()
        torch.ones(8, 8) @ torch.ones(8, 8)
        return torch.get_num_threads()

    assert list(lane_map(meet, range(4))) == [1, 1, 1, 1]


def test_reading_ahead_is_bounded() -> None:
    torch.set_num_threads(2)
    drawn = []

    def source() -> Iterator[int]:
        for number in range(100):
            drawn.append(number)
            yield number

    results = lane_map(lambda n: n, source())
    assert next(results) == 0
    assert len(drawn) <= 6


def test_an_error_in_a_lane_comes_out_where_it_belongs() -> None:
    torch.set_num_threads(2)

    def fail(item: int) -> int:
        if item == 2:
            raise KeyError("two")
        return item

    got = []
    with pytest.raises(KeyError, match="two"):
        for value in lane_map(fail, range(5)):
            got.append(value)
    assert got == [0, 1]


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(("features", "interactions", "gaussians"), [(32, 2, 20), (128, 6, 50)])
def test_bits_do_not_depend_on_the_number_of_threads(
    tmp_path: Path, features: int, interactions: int, gaussians: int
) -> None:
    config = tiny(
        *("data.limit=30", "train.accumulate=3", "train.precision=float32"),
        *(f"model.arguments.features={features}", f"model.arguments.interactions={interactions}"),
        *(f"model.arguments.gaussians={gaussians}", "train.clip_norm=0.1", "train.epochs=1"),
    )
    hashes, predicted = set(), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        task = EnergyTask(config=config, data=open_data(config))
        folder = tmp_path / str(count)
        train(
            task=task,
            settings=config.train,
            folder=folder,
            tracker=NoTracker(),
            display=Display(quiet=True),
        )
        hashes.add(sha256_file(folder / "checkpoints" / "best" / "weights.safetensors"))
        predicted.append(task.predictions(task.module, "test")[1])
    assert len(hashes) == 1
    assert np.array_equal(predicted[0], predicted[1])
    assert np.array_equal(predicted[0], predicted[2])
