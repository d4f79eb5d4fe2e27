"""The same bits on any number of threads, and from two Python threads at once."""

import threading

import pytest
import torch
from edge_lists import directed
from segments import segments

from zoo.ops import launcher, propagate  # noqa: F401  (registers the ops)
from zoo.ops.scatter import scatter_reduce
from zoo.ops.segment import REDUCTIONS, segment_reduce
from zoo.ops.softmax import segment_softmax


@pytest.fixture(autouse=True)
def many_chunks(monkeypatch):
    """Small work in many chunks, as if it were large."""
    before = torch.get_num_threads()
    monkeypatch.setattr(launcher, "CHUNK_SIZE", 50)
    assert launcher.chunks_for(10_000) == launcher.CHUNKS
    yield
    torch.set_num_threads(before)


def results(seed: int) -> list[torch.Tensor]:
    """All ops, forward and backward, on rows in and out of order and on a graph."""
    random = torch.Generator().manual_seed(seed)
    sizes = torch.randint(0, 9, (150,), generator=random).tolist()
    found = []
    for shuffled in (False, True):
        given = segments(sizes, features=18, shuffled=shuffled, seed=seed, dtype=torch.float32)
        x = given.x.nan_to_num(0.5).requires_grad_()
        for reduce in REDUCTIONS:
            out = segment_reduce(x, given.ptr, reduce, perm=given.perm)
            found += [out, *torch.autograd.grad(out.square().sum(), x)]
    out = segment_softmax(x, given.ptr)
    found += [out, *torch.autograd.grad(out.square().sum(), x)]
    index = torch.randint(0, 70, x.shape[:1], generator=random)
    for reduce in REDUCTIONS:
        out = scatter_reduce(x, index, size=70, reduce=reduce)
        found += [out, *torch.autograd.grad(out.square().sum(), x)]
    case = directed(nodes=200, edges=900, seed=seed)
    x = torch.randn(case.nodes, 18, generator=random, requires_grad=True)
    weight = torch.randn(len(case.src), generator=random, requires_grad=True)
    out = torch.ops.zoo.propagate(x, weight, *case.graph, False)
    return [*found, out, *torch.autograd.grad(out.square().sum(), (x, weight))]


def test_same_bits_on_any_number_of_threads_and_chunks(monkeypatch):
    torch.set_num_threads(1)
    expected = results(0)
    for threads in (2, 3):
        torch.set_num_threads(threads)
        for _ in range(3):
            assert all(map(torch.equal, results(0), expected))
    monkeypatch.setattr(launcher, "CHUNK_SIZE", 1 << 30)
    assert all(map(torch.equal, results(0), expected))


def test_two_python_threads_at_once():
    torch.set_num_threads(2)
    expected = [results(seed) for seed in range(2)]
    wrong = []

    def work(seed):
        try:
            for _ in range(5):
                if not all(map(torch.equal, results(seed), expected[seed])):
                    wrong.append(seed)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(500)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_chunks_depend_on_sizes_alone():
    for moved, chunks in ((0, 1), (49, 1), (99, 1), (100, 2), (449, 8), (10**9, launcher.CHUNKS)):
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            assert launcher.chunks_for(moved) == chunks
