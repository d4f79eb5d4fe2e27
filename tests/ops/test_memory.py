"""Large results take the memory of earlier ones, once nobody can see those any more."""

import threading

import pytest
import torch

from zoo.ops import memory
from zoo.ops.memory import new_rows


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch):
    monkeypatch.setattr(memory, "LARGE", 1 << 16)
    monkeypatch.setattr(memory, "KEPT", 1 << 18)
    memory._free.clear()
    yield
    memory._free.clear()


def rows(count=1000, *, features=17, dtype=torch.float32):
    return new_rows(count, features, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [0, 3, 500, 5000])
def test_any_size_can_be_written(count, dtype):
    out = rows(count, dtype=dtype).fill_(2)
    assert out.shape == (count, 17) and out.dtype == dtype and out.is_contiguous()
    assert out.sum() == 34 * count
    assert count * 17 * out.itemsize < memory.SMALL or out.data_ptr() % 64 == 0


@pytest.mark.parametrize("share", [lambda t: t[5:], lambda t: t.numpy(), lambda t: t.view(-1)])
def test_memory_is_used_again_when_nobody_sees_it(share):
    first = rows()
    place, seen = first.data_ptr(), share(first)
    del first
    assert rows().data_ptr() != place
    del seen
    assert rows().data_ptr() == place


def test_only_memory_of_the_same_size_is_used_again():
    first = rows()
    place = first.data_ptr()
    del first
    assert rows(1001).data_ptr() != place
    assert rows().data_ptr() == place


def test_no_more_is_kept_than_allowed():
    held = [rows() for _ in range(10)]
    last = held[-1].data_ptr()
    while held:
        held.pop(0)
    sizes = [raw.nbytes for raw in memory._free]
    assert 0 < sum(sizes) <= memory.KEPT < sum(sizes) + sizes[0]
    places = {rows_.data_ptr() for rows_ in [rows() for _ in sizes]}
    assert last in places


def test_threads_share_it():
    wrong = []

    def work(number):
        for _ in range(300):
            out = rows().fill_(number)
            if not bool((out == number).all()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert wrong == [] and not any(t.is_alive() for t in threads)
