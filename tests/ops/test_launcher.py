"""Each chunk runs once, with the same bits on any number of threads; forks and spawns work."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from edge_lists import complete, directed

from zoo.ops import cfconv, launcher  # noqa: F401  (registers the ops)
from zoo.ops.launcher import CHUNKS, launch
from zoo.ops.setup import njit
from zoo.ops.vector import numbers_at

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(autouse=True)
def threads_restored():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def results(*, seed: int, features: int = 5):
    """All three ops on a symmetric graph and a directed one."""
    random = torch.Generator().manual_seed(seed)
    found = []
    for case in (complete([6] * 40, seed=seed), directed(nodes=300, edges=900, seed=seed)):
        x, grad = (torch.randn(case.nodes, features, generator=random) for _ in range(2))
        table = torch.randn(9, 2, features, generator=random)
        graph = (*case.graph, 5.0, 0, case.symmetric)
        distance = case.distance.float()
        found.append(torch.ops.zoo.cfconv(x, table, distance, None, *graph, False))
        found.append(torch.ops.zoo.cfconv(x, table, distance, None, *graph, True))
        found.append(torch.ops.zoo.cfconv_filters(grad, x, distance, None, *graph, 9))
        found.append(torch.ops.zoo.cfconv_pairs(grad, x, table, distance, *graph))
    return found


@njit
def mark(out, scale, chunk):
    out[chunk] += scale


@njit
def fail(out, bad_chunk, chunk):
    if chunk == bad_chunk:
        raise ValueError("a kernel's own")
    out[chunk] += 1


@njit
def describe(matrix, count, flag, real, like, at, chunk):
    """What each kind of argument arrives as."""
    found = numbers_at(at, 6, like)
    found[0], found[1], found[2] = matrix[1, 2], matrix.shape[0], count
    found[3], found[4], found[5] = flag, real, chunk


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("chunks", [1, 2, CHUNKS, 100])
@pytest.mark.parametrize("openmp", [True, False])
def test_every_chunk_is_run_once(threads, chunks, openmp, monkeypatch):
    if not openmp:
        monkeypatch.setattr(launcher, "_openmp", lambda: (None, 0))
    torch.set_num_threads(threads)
    for kind in (np.int64, np.float32):
        for _ in range(20):
            runs = np.zeros(chunks, kind)
            launch(mark, runs, kind(2), chunks=chunks)
            assert runs.tolist() == [2] * chunks


def test_torch_computes_with_the_same_threads():
    run, number = launcher._openmp()
    assert (run is None) == (sys.platform != "linux") and (number == 0) == (run is None)


@pytest.mark.parametrize("like", [np.float32(0), np.float64(0)])
def test_arguments_of_every_kind_arrive(like):
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = np.zeros(6, like.dtype)
    # both chunks write; the last number says which was the last
    launch(describe, matrix, -7, True, 0.5, like, found.ctypes.data, chunks=2)
    assert found[:5].tolist() == [6, 3, -7, 1, 0.5] and found[5] in (0, 1)


def test_same_bits_on_any_number_of_threads():
    torch.set_num_threads(1)
    expected = results(seed=0)
    for threads in (2, 3):
        torch.set_num_threads(threads)
        for _ in range(5):
            for ours, theirs in zip(results(seed=0), expected, strict=True):
                assert torch.equal(ours, theirs)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bad_chunk", [0, CHUNKS - 1])
def test_an_error_in_a_kernel_is_raised_and_the_next_launch_works(threads, bad_chunk):
    torch.set_num_threads(threads)
    for _ in range(3):
        runs = np.zeros(CHUNKS, np.int64)
        with pytest.raises(RuntimeError, match="kernel fail failed"):
            launch(fail, runs, bad_chunk)
        assert runs.sum() == CHUNKS - 1  # the others were run
    launch(fail, runs, -1)
    assert runs.sum() == 2 * CHUNKS - 1


def test_a_launch_keeps_nothing_alive():
    import gc
    import weakref

    torch.set_num_threads(2)
    values = np.zeros(3)
    known = weakref.ref(values)
    launch(mark, values, 1.0, chunks=3)
    del values
    gc.collect()
    assert known() is None


def test_two_python_threads_at_once():
    torch.set_num_threads(2)
    expected = [results(seed=s) for s in range(2)]
    wrong = []

    def work(seed):
        try:
            for _ in range(20):
                same = map(torch.equal, results(seed=seed), expected[seed])
                if not all(same):
                    wrong.append(seed)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(500)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


SCRIPT = """
import multiprocessing, os, signal, sys
sys.path.insert(0, sys.argv[1])
import torch
from edge_lists import complete
from zoo.ops import cfconv, launcher

def compute():
    case = complete([6] * 30)
    x, table = torch.ones(case.nodes, 4), torch.linspace(0, 1, 9 * 2 * 4).view(9, 2, 4)
    args = (x, table, case.distance.float(), None, *case.graph, 5.0, 0, True, False)
    return torch.ops.zoo.cfconv(*args).sum(0).tolist()

def child(queue):
    torch.set_num_threads(2)
    queue.put((compute(), launcher._forked))

if __name__ == "__main__":
    torch.set_num_threads(2)
    expected = compute()
    pid = os.fork()
    if pid == 0:
        signal.alarm(500)  # a deadlocked child dies
        same = compute() == expected and launcher._forked
        os._exit(0 if same else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert compute() == expected
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    assert queue.get(timeout=500) == (expected, False)
    process.join(500)
    assert process.exitcode == 0
    print("done")
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no fork")
def test_a_fork_after_use_and_a_spawned_worker(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run = subprocess.run(
        [sys.executable, str(script), str(SUPPORT)], capture_output=True, text=True, timeout=1500
    )
    assert run.stdout == "done\n", run.stderr
